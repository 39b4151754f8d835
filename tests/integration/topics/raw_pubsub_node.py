"""A node of the PUB/SUB mesh without a line of hansa's: libzmq, and the frames of the specification.

A PUB is bound and registered through a DEALER; one SUB connects to the PUB of every other node that is
listed. It publishes two frames. In lines of JSON it reports every message that it gets with all its frames,
and it takes words on stdin:

    subscribe PREFIX, publish TOPIC PAYLOAD, send HEX HEX ..., leave
"""

import argparse
import json
import sys

import zmq

REGISTER, REGISTER_ACK, UNREGISTER, HEARTBEAT = b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x04\x00"
SERVICE_LIST = b"\x05\x00"
SERVICE = b"spot-node"
BEAT_MS = 50


def report(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def u32(frame: bytes) -> int:
    assert len(frame) == 4, frame
    return int.from_bytes(frame, "little")


def listed(frames: list[bytes]) -> set[bytes]:
    """The endpoints of the nodes in a SERVICE_LIST."""
    found: set[bytes] = set()
    at = 4
    for _ in range(u32(frames[3])):
        name, count = frames[at], u32(frames[at + 1])
        at += 2
        for _ in range(count):
            if name == SERVICE:
                found.add(frames[at])
            at += 3
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pub", required=True)
    parser.add_argument("--router", required=True)
    parser.add_argument("--number", type=int, required=True)
    arguments = parser.parse_args()
    context = zmq.Context()
    ours = context.socket(zmq.PUB)
    ours.bind("tcp://127.0.0.1:*")
    endpoint = bytes(ours.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\x00")
    theirs = context.socket(zmq.SUB)
    registry = context.socket(zmq.DEALER)
    registry.setsockopt(zmq.ROUTING_ID, b"\x01" + arguments.number.to_bytes(4, "big"))
    registry.setsockopt(zmq.LINGER, 1000)
    registry.connect(arguments.router)
    registry.send_multipart([REGISTER, SERVICE, endpoint, b"\x01\x00\x00\x00"])
    lists = context.socket(zmq.SUB)
    lists.setsockopt(zmq.SUBSCRIBE, SERVICE_LIST)
    lists.connect(arguments.pub)
    dialled = {endpoint}
    is_registered = False
    poller = zmq.Poller()
    for source in (theirs, registry, lists, sys.stdin.fileno()):
        poller.register(source, zmq.POLLIN)
    while True:
        ready = dict(poller.poll(BEAT_MS))
        if registry in ready:
            frames = registry.recv_multipart()
            is_registered = frames == [REGISTER_ACK, b"\x00", endpoint, b""]
            report(registered=is_registered)
        if lists in ready:
            for node in listed(lists.recv_multipart()) - dialled:
                dialled.add(node)
                theirs.connect(node.decode())
        if theirs in ready:
            report(heard=[frame.hex() for frame in theirs.recv_multipart()])
        if sys.stdin.fileno() in ready:
            what, *rest = sys.stdin.readline().split() or ["leave"]
            if what == "leave":
                break
            if what == "subscribe":
                theirs.setsockopt(zmq.SUBSCRIBE, rest[0].encode())
            elif what == "publish":
                ours.send_multipart([word.encode() for word in rest])
            else:
                assert what == "send", what
                ours.send_multipart([bytes.fromhex(word) for word in rest])
            report(did=what)
        if is_registered:
            registry.send_multipart([HEARTBEAT, SERVICE, endpoint])
    registry.send_multipart([UNREGISTER, SERVICE, endpoint])
    for socket in (registry, lists, theirs, ours):
        socket.close()
    context.term()
    report(left=True)


if __name__ == "__main__":
    main()
