"""A registry without a line of hansa's: libzmq, and frames written down from the specification.

It knows nothing of hansa's own frames: its answers bring no token back, its lists end after the last
provider. It reports every message in a line of JSON, and takes words on stdin: "forget" loses all entries
without telling anybody, as a restart would; "replay" tells the first list of all once more.
"""

import argparse
import json
import sys

import zmq

REGISTER = b"\x01\x00"
UNREGISTER = b"\x03\x00"
HEARTBEAT = b"\x04\x00"
UPDATE_WEIGHT = b"\x07\x00"
NAMES = {
    REGISTER: "REGISTER",
    UNREGISTER: "UNREGISTER",
    HEARTBEAT: "HEARTBEAT",
    UPDATE_WEIGHT: "UPDATE_WEIGHT",
}
SERVICE_LIST = b"\x05\x00"
REGISTRY_ID = b"\x0b\x0a\x00\x00"  # 2571
ACK_OK = [b"\x02\x00", b"\x00"]
ACK_OTHER = [b"\x02\x00", b"\xff"]
REPEAT_MS = 100

# (service, endpoint): routing id, weight frame.
Entries = dict[tuple[bytes, bytes], tuple[bytes, bytes]]


def u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def service_list(entries: Entries, list_seq: int) -> list[bytes]:
    services = sorted({service for service, _ in entries})
    frames = [SERVICE_LIST, REGISTRY_ID, list_seq.to_bytes(8, "little"), u32(len(services))]
    for service in services:
        found = [(endpoint, *entry) for (name, endpoint), entry in entries.items() if name == service]
        frames += [service, u32(len(found))]
        for provider in found:
            frames += provider
    return frames


def take(entries: Entries, peer: bytes, frames: list[bytes]) -> list[bytes] | None:
    """Do what a provider says; what to answer. Only the frames that the specification names are looked at."""
    what, key = frames[0], (frames[1], frames[2])
    if what == REGISTER:
        entries[key] = peer, frames[3]
        return [*ACK_OK, frames[2], b""]
    if what == HEARTBEAT and key not in entries:
        return [*ACK_OTHER, frames[2], b"not registered"]
    if what == UPDATE_WEIGHT and key in entries:
        entries[key] = peer, frames[3]
    if what == UNREGISTER:
        entries.pop(key, None)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    context = zmq.Context()
    router, pub = context.socket(zmq.ROUTER), context.socket(zmq.PUB)
    for socket in (router, pub):
        socket.bind("tcp://127.0.0.1:*")
    where = [bytes(socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\x00").decode() for socket in (pub, router)]
    print(json.dumps({"pub": where[0], "router": where[1]}), flush=True)
    entries: Entries = {}
    told: list[list[bytes]] = []
    poller = zmq.Poller()
    poller.register(router, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while True:
        ready = dict(poller.poll(REPEAT_MS))
        if router in ready:
            peer, *frames = router.recv_multipart()
            answer = take(entries, peer, frames)
            if answer is not None:
                router.send_multipart([peer, *answer])
            facts = {"heard": NAMES[frames[0]], "service": frames[1].decode(), "frames": len(frames)}
            print(json.dumps(facts), flush=True)
        if sys.stdin.fileno() in ready:
            word = sys.stdin.readline().strip()
            if word == "forget":
                entries.clear()
            elif word == "replay":
                pub.send_multipart(told[0])
            else:
                break
            continue
        # Whenever something may have changed, and now and then: nobody tells a PUB who is new.
        if entries or told:
            told.append(service_list(entries, 1000 + len(told)))
            pub.send_multipart(told[-1])


if __name__ == "__main__":
    main()
