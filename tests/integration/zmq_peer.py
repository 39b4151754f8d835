"""One libzmq socket in a process of its own, for hansa to talk to.

It shares no code with hansa. It says what it does in lines of JSON: first {"bound": endpoint} or
{"connected": endpoint}, then whatever its behaviour reports. A line on its standard input makes a source
begin.

    echo    send every message back to whom it came from
    source  wait for a line, then send --count numbered messages
    sink    receive --count numbered messages and report whether each was the next
    topics  receive --count messages and report their first parts
    ask     for each line: send it as a message, wait for an answer, report it
    wait    do nothing, and report what the monitor sees
"""

import argparse
import json
import sys
import time
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message


def main() -> None:
    arguments = parse()
    context = zmq.Context()
    socket = context.socket(getattr(zmq, arguments.type.upper()))
    configure(socket, arguments)
    monitor = socket.get_monitor_socket() if arguments.behaviour == "wait" else None
    if arguments.bind:
        socket.bind(arguments.bind)
        report(bound=socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
    else:
        socket.connect(arguments.connect)
        report(connected=arguments.connect)
    if monitor is not None:
        watch(monitor)
    else:
        BEHAVIOURS[arguments.behaviour](socket, arguments)
    socket.close(linger=20_000)
    context.term()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("type", choices=["router", "dealer", "pub", "sub", "xpub", "xsub", "req", "rep"])
    parser.add_argument("behaviour", choices=[*BEHAVIOURS, "wait"])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bind")
    where.add_argument("--connect")
    parser.add_argument("--id", default="")
    parser.add_argument("--to", default="", help="whom a ROUTER sends to")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--subscribe", action="append", default=[])
    parser.add_argument("--heartbeat-ms", type=int, default=0)
    return parser.parse_args()


def configure(socket: "zmq.Socket[bytes]", arguments: argparse.Namespace) -> None:
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    if arguments.id:
        socket.setsockopt(zmq.ROUTING_ID, arguments.id.encode())
    if arguments.type == "router":
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # libzmq forgets a lost peer only when the program next uses the socket. Without this it would take a
        # peer that has returned meanwhile for a second one of that id, and ignore it for good.
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
    if arguments.type == "pub":
        socket.setsockopt(zmq.XPUB_NODROP, 1)
    for prefix in arguments.subscribe:
        socket.setsockopt(zmq.SUBSCRIBE, prefix.encode())
    if arguments.heartbeat_ms:
        socket.setsockopt(zmq.HEARTBEAT_IVL, arguments.heartbeat_ms)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * arguments.heartbeat_ms)
        socket.setsockopt(zmq.HEARTBEAT_TTL, 5 * arguments.heartbeat_ms)


def report(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def echo(socket: "zmq.Socket[bytes]", _: argparse.Namespace) -> None:
    while True:
        socket.send_multipart(socket.recv_multipart(copy=False), copy=False)


def source(socket: "zmq.Socket[bytes]", arguments: argparse.Namespace) -> None:
    prefix = [arguments.to.encode()] if arguments.to else []
    payload = b"x" * arguments.size
    if arguments.type in ("pub", "xpub"):
        # Nobody can know when a subscription has arrived: repeat until the other side says that it hears us.
        while not lines_waiting():
            socket.send_multipart([b"hello"])
            time.sleep(0.005)
    sys.stdin.readline()
    for number in range(arguments.count):
        message = [*prefix, b"%d" % number, payload]
        while True:
            try:
                socket.send_multipart(message)
                break
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                time.sleep(0.005)
    report(sent=arguments.count)
    sys.stdin.readline()  # stay until told, so that the other side can still answer


def sink(socket: "zmq.Socket[bytes]", arguments: argparse.Namespace) -> None:
    expected = 0
    while expected < arguments.count:
        parts = socket.recv_multipart()
        if parts[0] == b"hello":
            if expected == 0:
                report(heard="hello")
            continue
        if arguments.type == "router":
            parts = parts[1:]
        if int(parts[0]) != expected or len(parts) != 2 or len(parts[1]) != arguments.size:
            report(received=expected, wrong=[part[:40].decode("latin-1") for part in parts])
            return
        expected += 1
    report(received=expected, wrong=None)


def topics(socket: "zmq.Socket[bytes]", arguments: argparse.Namespace) -> None:
    heard: list[str] = []
    while len(heard) < arguments.count:
        first = socket.recv_multipart()[0].decode("latin-1")
        if first.startswith("hello"):
            report(heard=first)
        else:
            heard.append(first)
    report(topics=heard)


def ask(socket: "zmq.Socket[bytes]", arguments: argparse.Namespace) -> None:
    prefix = [arguments.to.encode()] if arguments.to else []
    for line in sys.stdin:
        question = line.strip().encode()
        tries = 0
        while True:
            tries += 1
            try:
                socket.send_multipart([*prefix, question])
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                time.sleep(0.02)
                continue
            # An answer to an earlier try, which was thought lost, is as good.
            if socket.poll(500):
                answer = socket.recv_multipart()
                if answer[-1] == question:
                    break
        report(answer=answer[-1].decode(), tries=tries)


def watch(monitor: "zmq.Socket[bytes]") -> None:
    names: dict[int, str] = {
        zmq.EVENT_HANDSHAKE_SUCCEEDED: "connected",
        zmq.EVENT_DISCONNECTED: "disconnected",
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "handshake failed",
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshake failed",
    }
    while True:
        event = recv_monitor_message(monitor)
        if (name := names.get(event["event"])) is not None:
            report(seen=name)


def lines_waiting() -> bool:
    poller = zmq.Poller()
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    return bool(poller.poll(0))


BEHAVIOURS = {"echo": echo, "source": source, "sink": sink, "topics": topics, "ask": ask}

if __name__ == "__main__":
    main()
