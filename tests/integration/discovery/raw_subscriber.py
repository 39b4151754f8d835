"""Hears a registry's lists with a libzmq SUB that subscribes to everything, and nothing of hansa's.

It reads SERVICE_LIST as the specification lays it out, passes over frames behind the last provider, and over
every other message. Each list is a line of JSON.
"""

import argparse
import json
from collections import Counter

import zmq

SERVICE_LIST = b"\x05\x00"


def number(frame: bytes, size: int) -> int:
    assert len(frame) == size, f"{frame!r} has {len(frame)} bytes instead of {size}"
    return int.from_bytes(frame, "little")


def read(frames: list[bytes]) -> dict[str, object]:
    """Frames 1 to N of 7.5."""
    registry_id, list_seq = number(frames[1], 4), number(frames[2], 8)
    services: dict[str, list[list[object]]] = {}
    at = 4
    for _ in range(number(frames[3], 4)):
        name, count = frames[at].decode(), number(frames[at + 1], 4)
        at += 2
        services[name] = []
        for _ in range(count):
            endpoint, routing_id, weight = frames[at : at + 3]
            assert 1 <= len(routing_id) <= 255
            services[name].append([endpoint.decode(), routing_id.hex(), number(weight, 4)])
            at += 3
    return {"registry_id": registry_id, "list_seq": list_seq, "services": services, "more": len(frames) - at}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry", required=True)
    arguments = parser.parse_args()
    socket = zmq.Context().socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(arguments.registry)
    passed: Counter[str] = Counter()
    while True:
        frames = socket.recv_multipart()
        if frames[0] != SERVICE_LIST:
            passed[frames[0].hex()] += 1
            continue
        print(json.dumps({**read(frames), "passed": passed}), flush=True)


if __name__ == "__main__":
    main()
