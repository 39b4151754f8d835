"""Sends bad messages to a registry, a provider or a node as fast as it goes; tells what it must have counted.

Blocking sockets and bytes, nothing of hansa's transport. A connection sends a batch, then something that is
answered: when the answer is there, everything before it has been read. A batch that reaches the number of
strikes ends there, because it must have ended the connection.
"""

import argparse
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.limits import STRIKES_MAX  # noqa: E402
from hansa.wire.business import encode_call  # noqa: E402
from hansa.wire.registry import Heartbeat, encode  # noqa: E402
from hansa.wire.topics import SUBSCRIBE, TOPIC_REMOVE  # noqa: E402
from tests.integration.faults.bad_messages import (  # noqa: E402
    GARBAGE,
    Frames,
    node_messages,
    node_verdict,
    provider_messages,
    provider_verdict,
    registry_messages,
    registry_verdict,
)
from tests.integration.faults.orders import tell  # noqa: E402
from tests.support import zmtp_bytes as zmtp  # noqa: E402

BATCH_MAX = 400
# Per so many connections that shake hands, one that does not even do that.
GARBAGE_EVERY = 4
ANSWER_S_MAX = 60.0
# Who hears nothing for long believes that it hangs.
PROGRESS_S = 1.0


class Attacker:
    """One after another: connections, each with its batch."""

    def __init__(self, kind: str, endpoint: str, seed: int, claimed: tuple[str, str]) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._address = host, int(port)
        self._chance = random.Random(seed)
        self._kind = kind
        self._messages: Iterator[Frames]
        self._verdict: Callable[[Frames], tuple[str, bool]]
        if kind == "registry":
            self._messages, self._verdict = registry_messages(seed, claimed), registry_verdict
        elif kind == "provider":
            self._messages, self._verdict = provider_messages(seed), provider_verdict
        else:
            self._messages, self._verdict = node_messages(seed), node_verdict
        self._marker = seed << 16
        self.counts: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.frames_count = 0
        self.expelled_count = 0
        self.connections_count = 0

    def run(self, frames_count: int) -> None:
        told_at = time.monotonic()
        while self.frames_count < frames_count:
            if time.monotonic() - told_at > PROGRESS_S:
                told_at = time.monotonic()
                tell("progress", frames=self.frames_count)
            self._send_batch(frames_count - self.frames_count)
            if self.connections_count % GARBAGE_EVERY == 0:
                self._send_garbage()

    def _send_batch(self, count_max: int) -> None:
        out, strikes = bytearray(), 0
        for frames in islice(self._messages, self._chance.randint(1, min(BATCH_MAX, count_max))):
            verdict, is_strike = self._verdict(frames)
            out += zmtp.message(*frames)
            self.counts[verdict] += 1
            self.frames_count += 1
            strikes += is_strike
            if strikes == STRIKES_MAX:
                break
        with self._connected() as peer:
            peer.sendall(zmtp.greeting() + zmtp.ready(b"DEALER") + out)
            if strikes == STRIKES_MAX:
                _read_all(peer)
                self.expelled_count += 1
                self.ended["protocol-violation"] += 1
                return
            question, mark = self._question()
            peer.sendall(zmtp.message(*question))
            _read_until(peer, mark)
            # In order, so that the other side sees an end and not a break.
            peer.shutdown(socket.SHUT_WR)
            _read_all(peer)
            self.ended["closed-by-peer"] += 1

    def _send_garbage(self) -> None:
        reason, garbage = self._chance.choice(GARBAGE)
        with self._connected() as peer:
            try:
                peer.sendall(garbage)
                _read_all(peer)
            except ConnectionError:
                pass  # It was thrown out before it had said everything.
        self.frames_count += 1
        self.ended[reason] += 1

    def _question(self) -> tuple[Frames, bytes]:
        """Something that is answered, and by what its answer is known."""
        self._marker += 1
        if self._kind == "node":
            # Nobody owns it, which is said with its name.
            self.counts["subscribe"] += 1
            topic = b"marker:%d" % self._marker
            return [SUBSCRIBE, topic], zmtp.frame(TOPIC_REMOVE, more=True) + zmtp.frame(topic, more=True)
        if self._kind == "registry":
            self.counts["heartbeat"] += 1
            question = Heartbeat(service="nobody", endpoint="tcp://nowhere:1", token=self._marker)
            return encode(question), struct.pack("<I", self._marker)
        self.counts["call"] += 1
        return encode_call(self._marker, 0, [b"still there?"]), struct.pack("<Q", self._marker)

    def _connected(self) -> socket.socket:
        self.connections_count += 1
        return socket.create_connection(self._address, timeout=ANSWER_S_MAX)


def _read_all(peer: socket.socket) -> None:
    try:
        while peer.recv(65_536):
            pass
    except ConnectionError:
        pass


def _read_until(peer: socket.socket, mark: bytes) -> None:
    tail = b""
    while mark not in tail:
        data = peer.recv(65_536)
        assert data, "thrown out without reason"
        # An answer may lie across two pieces.
        tail = tail[-len(mark) :] + data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["registry", "provider", "node"], required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--claim", nargs=2, default=("pay", "tcp://h:1"), help="a service and an endpoint")
    arguments = parser.parse_args()
    attacker = Attacker(arguments.kind, arguments.endpoint, arguments.seed, tuple(arguments.claim))
    attacker.run(arguments.frames)
    tell(
        "done",
        counts=attacker.counts,
        ended=attacker.ended,
        frames=attacker.frames_count,
        expelled=attacker.expelled_count,
        connections=attacker.connections_count,
    )


if __name__ == "__main__":
    main()
