"""A node of the topic mesh without a line of hansa's: libzmq, and frames written down from the specification.

One ROUTER binds and dials, a DEALER registers it, a SUB hears who else is there. Of two nodes the one with
the lower id dials. It answers QUERY with the topics that it owns, gives each message for one of them to who
has subscribed, and asks each newcomer for its topics. It looks only at the frames that the specification
names. In lines of JSON it reports every message that it gets, and it takes words on stdin:

    own TOPIC, remove TOPIC, subscribe TOPIC, unsubscribe TOPIC, publish TOPIC PAYLOAD, query, leave
"""

import argparse
import json
import sys

import zmq

REGISTER, REGISTER_ACK, UNREGISTER, HEARTBEAT = b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x04\x00"
SERVICE_LIST = b"\x05\x00"
SERVICE = b"spot-node"
PUBLISH, SUBSCRIBE, UNSUBSCRIBE, QUERY = b"\x01", b"\x02", b"\x03", b"\x04"
QUERY_RESP, TOPIC_ANNOUNCE, TOPIC_REMOVE, MESSAGE = b"\x05", b"\x06", b"\x07", b"\x08"
NAMES = {
    PUBLISH: "PUBLISH",
    SUBSCRIBE: "SUBSCRIBE",
    UNSUBSCRIBE: "UNSUBSCRIBE",
    QUERY: "QUERY",
    QUERY_RESP: "QUERY_RESP",
    TOPIC_ANNOUNCE: "TOPIC_ANNOUNCE",
    TOPIC_REMOVE: "TOPIC_REMOVE",
    MESSAGE: "MESSAGE",
}
BEAT_MS = 100


def report(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def u32(frame: bytes) -> int:
    assert len(frame) == 4, frame
    return int.from_bytes(frame, "little")


def listed(frames: list[bytes]) -> dict[bytes, bytes]:
    """The endpoints of the nodes in a SERVICE_LIST, by routing id."""
    found: dict[bytes, bytes] = {}
    at = 4
    for _ in range(u32(frames[3])):
        name, count = frames[at], u32(frames[at + 1])
        at += 2
        for _ in range(count):
            endpoint, routing_id, _ = frames[at : at + 3]
            at += 3
            if name == SERVICE:
                found[routing_id] = endpoint
    return found


class Node:
    """What it knows, and the ROUTER."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", number: int) -> None:
        self.routing_id = b"\x01" + number.to_bytes(4, "big")
        self.router = context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTING_ID, self.routing_id)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.router.setsockopt(zmq.LINGER, 1000)
        self.router.bind("tcp://127.0.0.1:*")
        self.endpoint = bytes(self.router.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\x00")
        self.dialled: set[bytes] = set()
        self.met: set[bytes] = set()
        self.owned: dict[bytes, set[bytes]] = {}
        """Topics, each with the nodes that have subscribed."""
        self.owners: dict[bytes, bytes] = {}

    def follow(self, nodes: dict[bytes, bytes]) -> None:
        """Dial who is new and has a higher id."""
        for routing_id, endpoint in nodes.items():
            if routing_id > self.routing_id and endpoint not in self.dialled:
                self.dialled.add(endpoint)
                self.router.connect(endpoint.decode())
            if routing_id != self.routing_id:
                self.meet(routing_id)

    def meet(self, peer: bytes) -> None:
        """The first thing said to anybody is QUERY; who is not connected yet is asked later."""
        if peer not in self.met and self.say(peer, QUERY):
            self.met.add(peer)
            report(met=peer.hex())

    def say(self, peer: bytes, *frames: bytes) -> bool:
        try:
            self.router.send_multipart([peer, *frames])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def tell_all(self, *frames: bytes) -> None:
        for peer in self.met:
            self.say(peer, *frames)

    def take(self) -> None:
        """One message, and what it means."""
        peer, command, *fields = self.router.recv_multipart()
        topic = fields[0] if fields else b""
        if command == QUERY:
            self.meet(peer)
            self.say(peer, QUERY_RESP, len(self.owned).to_bytes(4, "little"), *self.owned)
        elif command == QUERY_RESP:
            for owned in fields[1 : 1 + u32(fields[0])]:
                self.owners[owned] = peer
        elif command == TOPIC_ANNOUNCE:
            self.owners[topic] = peer
            if topic in self.owned and peer < self.routing_id:
                del self.owned[topic]
                report(demoted=topic.decode())
        elif command == TOPIC_REMOVE:
            self.owners.pop(topic, None)
        elif command == SUBSCRIBE and topic in self.owned:
            self.owned[topic].add(peer)
        elif command == UNSUBSCRIBE and topic in self.owned:
            self.owned[topic].discard(peer)
        elif command == PUBLISH and topic in self.owned:
            self.publish(topic, fields[1])
        report(heard=NAMES[command], peer=peer.hex(), fields=[field.hex() for field in fields])

    def publish(self, topic: bytes, payload: bytes) -> None:
        """To the subscribers of an own topic, else to the owner."""
        if topic not in self.owned:
            self.say(self.owners[topic], PUBLISH, topic, payload)
            return
        for peer in self.owned[topic]:
            self.say(peer, MESSAGE, topic, payload)

    def obey(self, words: list[str]) -> None:
        """One order of the test."""
        what, *rest = words
        topic = rest[0].encode() if rest else b""
        if what == "own":
            self.owned[topic] = set()
            self.tell_all(TOPIC_ANNOUNCE, topic)
        elif what == "remove":
            del self.owned[topic]
            self.tell_all(TOPIC_REMOVE, topic)
        elif what == "subscribe":
            self.say(self.owners[topic], SUBSCRIBE, topic)
        elif what == "unsubscribe":
            self.say(self.owners[topic], UNSUBSCRIBE, topic)
        elif what == "publish":
            self.publish(topic, rest[1].encode())
        else:
            assert what == "query", what
            self.tell_all(QUERY)
        report(did=what)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pub", required=True)
    parser.add_argument("--router", required=True)
    parser.add_argument("--number", type=int, required=True)
    arguments = parser.parse_args()
    context = zmq.Context()
    node = Node(context, arguments.number)
    registry = context.socket(zmq.DEALER)
    registry.setsockopt(zmq.ROUTING_ID, node.routing_id)
    registry.setsockopt(zmq.LINGER, 1000)
    registry.connect(arguments.router)
    registry.send_multipart([REGISTER, SERVICE, node.endpoint, b"\x01\x00\x00\x00"])
    lists = context.socket(zmq.SUB)
    lists.setsockopt(zmq.SUBSCRIBE, SERVICE_LIST)
    lists.connect(arguments.pub)
    nodes: dict[bytes, bytes] = {}
    is_registered = False
    poller = zmq.Poller()
    for source in (node.router, registry, lists, sys.stdin.fileno()):
        poller.register(source, zmq.POLLIN)
    while True:
        ready = dict(poller.poll(BEAT_MS))
        if registry in ready:
            frames = registry.recv_multipart()
            is_registered = frames == [REGISTER_ACK, b"\x00", node.endpoint, b""]
            report(registered=is_registered, endpoint=node.endpoint.decode())
        if lists in ready:
            nodes = listed(lists.recv_multipart())
        node.follow(nodes)
        if node.router in ready:
            node.take()
        if sys.stdin.fileno() in ready:
            words = sys.stdin.readline().split()
            if words in ([], ["leave"]):
                break
            node.obey(words)
        if is_registered:
            registry.send_multipart([HEARTBEAT, SERVICE, node.endpoint])
    registry.send_multipart([UNREGISTER, SERVICE, node.endpoint])
    for socket in (registry, lists, node.router):
        socket.close()
    context.term()
    report(left=True)


if __name__ == "__main__":
    main()
