"""A provider without a line of hansa's: libzmq, and frames written down from the specification.

It registers (DEALER), sends heartbeats, and answers calls (ROUTER) reading only the first two bytes of a
call's msgId frame. It reports in lines of JSON and takes words on stdin: "leave" unregisters.
"""

import argparse
import json
import sys

import zmq

NAME = b"raw-provider"
SERVICE = b"raw"
REGISTER = b"\x01\x00"
REGISTER_ACK = b"\x02\x00"
UNREGISTER = b"\x03\x00"
HEARTBEAT = b"\x04\x00"
OK = b"\x00"
WEIGHT_3 = b"\x03\x00\x00\x00"
# Calls: what to answer by msgId.
ECHO = b"\x00\x00"
REFUSE = b"\x2a\x00"
ERROR = b"\xff\xff"
BEAT_MS = 100


def report(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def answer(msg_frame: bytes, payload: list[bytes]) -> list[bytes]:
    if msg_frame[:2] == REFUSE:
        return [ERROR, b"insufficient-funds", b"not enough money"]
    return [msg_frame[:2], b"raw", *payload]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry", required=True)
    arguments = parser.parse_args()
    context = zmq.Context()
    calls = context.socket(zmq.ROUTER)
    calls.setsockopt(zmq.ROUTING_ID, NAME)
    calls.setsockopt(zmq.ROUTER_HANDOVER, 1)
    calls.bind("tcp://127.0.0.1:*")
    endpoint = bytes(calls.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\x00")
    registry = context.socket(zmq.DEALER)
    registry.setsockopt(zmq.ROUTING_ID, NAME)
    registry.setsockopt(zmq.LINGER, 1000)
    registry.connect(arguments.registry)
    registry.send_multipart([REGISTER, SERVICE, endpoint, WEIGHT_3])
    is_registered = False
    poller = zmq.Poller()
    for source in (calls, registry, sys.stdin.fileno()):
        poller.register(source, zmq.POLLIN)
    while True:
        ready = dict(poller.poll(BEAT_MS))
        if calls in ready:
            caller, request_id, msg_frame, *payload = calls.recv_multipart()
            calls.send_multipart([caller, request_id, *answer(msg_frame, payload)])
            report(call=msg_frame.hex(), request_id=request_id.hex())
        if registry in ready:
            frames = registry.recv_multipart()
            is_registered = frames == [REGISTER_ACK, OK, endpoint, b""]
            report(endpoint=endpoint.decode(), ack=[frame.hex() for frame in frames], ok=is_registered)
        if sys.stdin.fileno() in ready:
            if sys.stdin.readline().strip() != "leave":
                break
            registry.send_multipart([UNREGISTER, SERVICE, endpoint])
            is_registered = False
            report(left=True)
        if is_registered:
            registry.send_multipart([HEARTBEAT, SERVICE, endpoint])


if __name__ == "__main__":
    main()
