"""Speaks to a registry in frames written down from the specification, with libzmq and nothing of hansa's.

Each step sends one message and compares what comes back byte by byte. Of the text for people only its
beginning is compared. It reports a line of JSON a step and then waits for a line on stdin.
"""

import argparse
import json
import sys

import zmq

NAME = b"raw-client"
HERE = b"tcp://10.0.0.1:5000"

REGISTER = [b"\x01\x00", b"payment", b"tcp://10.0.0.1:5000", b"\x02\x00\x00\x00"]
REGISTER_WITHOUT_WEIGHT = [b"\x01\x00", b"payment", b"tcp://10.0.0.1:5000"]
REGISTER_WILDCARD = [b"\x01\x00", b"payment", b"tcp://*:5000", b"\x01\x00\x00\x00"]
REGISTER_NONSENSE = [b"\x01\x00", b"payment", b"not an endpoint", b"\x01\x00\x00\x00"]
REGISTER_EMPTY = [b"\x01\x00", b"payment", b"", b"\x01\x00\x00\x00"]
HEARTBEAT = [b"\x04\x00", b"payment", b"tcp://10.0.0.1:5000"]
HEARTBEAT_UNKNOWN = [b"\x04\x00", b"ghost", b"tcp://10.0.0.1:5000"]
UPDATE_WEIGHT = [b"\x07\x00", b"payment", b"tcp://10.0.0.1:5000", b"\x09\x00\x00\x00"]
UPDATE_WEIGHT_UNKNOWN_SERVICE = [b"\x07\x00", b"ghost", b"tcp://10.0.0.1:5000", b"\x09\x00\x00\x00"]
UPDATE_WEIGHT_UNKNOWN_ENDPOINT = [b"\x07\x00", b"payment", b"tcp://10.0.0.9:5000", b"\x09\x00\x00\x00"]
UNREGISTER = [b"\x03\x00", b"payment", b"tcp://10.0.0.1:5000"]
UNKNOWN_MESSAGE = [b"\x99\x00", b"payment"]

ACK_OK = [b"\x02\x00", b"\x00", b"tcp://10.0.0.1:5000", b""]
NOT_REGISTERED = [b"\x02\x00", b"\xff", b"tcp://10.0.0.1:5000", b"not registered"]
NOT_REGISTERED_THERE = [b"\x02\x00", b"\xff", b"tcp://10.0.0.9:5000", b"not registered"]

# What is said, and the answer; None where the specification has none.
STEPS: list[tuple[str, list[bytes], list[bytes] | None]] = [
    ("heartbeat before registering", HEARTBEAT, NOT_REGISTERED),
    ("register", REGISTER, ACK_OK),
    ("heartbeat", HEARTBEAT, None),
    ("update weight", UPDATE_WEIGHT, None),
    ("update weight of an unknown service", UPDATE_WEIGHT_UNKNOWN_SERVICE, NOT_REGISTERED),
    ("update weight of an unknown endpoint", UPDATE_WEIGHT_UNKNOWN_ENDPOINT, NOT_REGISTERED_THERE),
    ("heartbeat of an unknown entry", HEARTBEAT_UNKNOWN, NOT_REGISTERED),
    ("a wildcard endpoint", REGISTER_WILDCARD, [b"\x02\x00", b"\x02", b"tcp://*:5000", b""]),
    ("nonsense for an endpoint", REGISTER_NONSENSE, [b"\x02\x00", b"\x02", b"not an endpoint", b""]),
    ("an empty endpoint", REGISTER_EMPTY, [b"\x02\x00", b"\x02", b"", b""]),
    ("a message that does not exist", UNKNOWN_MESSAGE, [b"\x02\x00", b"\xff", b"", b""]),
    ("register without a weight", REGISTER_WITHOUT_WEIGHT, ACK_OK),
    ("unregister", UNREGISTER, None),
    ("heartbeat after unregistering", HEARTBEAT, NOT_REGISTERED),
]


def fits(frames: list[bytes], expected: list[bytes]) -> bool:
    """Byte by byte; a failure also says why, in words of the registry's choice."""
    if expected[1] == b"\x00":
        return frames == expected
    return (
        len(frames) == 4
        and frames[:3] == expected[:3]
        and frames[3].startswith(expected[3])
        and bool(frames[3])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry", required=True)
    arguments = parser.parse_args()
    socket = zmq.Context().socket(zmq.DEALER)
    socket.setsockopt(zmq.ROUTING_ID, NAME)
    socket.setsockopt(zmq.RCVTIMEO, 20_000)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(arguments.registry)
    for step, message, expected in STEPS:
        socket.send_multipart(message)
        # An answer where there must be none would be taken for that of the next step, which then fails.
        frames = None if expected is None else socket.recv_multipart()
        is_right = frames is None or expected is None or fits(frames, expected)
        shown = None if frames is None else [frame.decode("latin-1") for frame in frames]
        print(json.dumps({"step": step, "answer": shown, "is_right": is_right}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
