"""The simulator finds what it is there to find: each test plants one bug and expects it to be caught."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from hansa.testing.network import SimWire
from hansa.testing.scenarios import RouterDealer
from hansa.testing.scenarios.router_dealer import Ledger
from hansa.transport import Disconnected
from hansa.transport.connection import Connection
from hansa.transport.outbox import Batch
from hansa.transport.zmtp_socket import ZmtpSocket
from tests.support.planted_bugs import first_failure

SEEDS_MAX = 40


def broken() -> str:
    return first_failure(RouterDealer, range(SEEDS_MAX)).failure.broken.invariant


def lose_a_message(socket: ZmtpSocket, original: Callable[..., None], connection: Any, messages: Any) -> None:
    connection.planted = getattr(connection, "planted", 0) + len(messages)
    original(socket, connection, messages[:-1] if connection.planted % 7 == 0 else messages)


def repeat_a_message(
    socket: ZmtpSocket, original: Callable[..., None], connection: Any, messages: Any
) -> None:
    connection.planted = getattr(connection, "planted", 0) + len(messages)
    original(socket, connection, [*messages, messages[-1]] if connection.planted % 7 == 0 else messages)


def swap_messages(socket: ZmtpSocket, original: Callable[..., None], connection: Any, messages: Any) -> None:
    original(socket, connection, messages[::-1])


@pytest.mark.parametrize(
    ("bug", "invariant"),
    [
        (lose_a_message, "all is well 120 s after the last fault"),
        (repeat_a_message, "nothing is delivered twice"),
        (swap_messages, "order is kept"),
    ],
)
def test_a_socket_that_mishandles_messages_is_caught(
    bug: Callable[..., None], invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ZmtpSocket.connection_received
    monkeypatch.setattr(
        ZmtpSocket,
        "connection_received",
        lambda socket, connection, messages: bug(socket, original, connection, messages),
    )
    assert broken() == invariant


def test_a_socket_that_does_not_report_what_is_in_doubt_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RouterDealer._on_event

    def silent(self: RouterDealer, host: Any, life: str, event: Any) -> None:
        if isinstance(event, Disconnected):
            event = dataclasses.replace(event, in_doubt_count=event.in_doubt_count // 2)
        original(self, host, life, event)

    monkeypatch.setattr(RouterDealer, "_on_event", silent)
    failure = first_failure(RouterDealer, range(SEEDS_MAX), shrink_tries_max=12)
    assert failure.failure.broken.invariant in (
        "all is well 120 s after the last fault",
        "the counts are what the events say",
    )
    assert len(failure.failure.plan) <= 3, "the faults that matter, and few others"


def test_a_connection_that_forgets_a_batch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Connection.write_batch
    written = {"count": 0}

    def forgetful(self: Connection, batch: Batch) -> None:
        written["count"] += 1
        if written["count"] % 100:
            original(self, batch)

    monkeypatch.setattr(Connection, "write_batch", forgetful)
    assert broken() == "all is well 120 s after the last fault"


def test_a_network_that_garbles_bytes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = SimWire.arrive
    seen = {"bytes": 0}

    def garbled(self: SimWire, data: bytes) -> None:
        seen["bytes"] += len(data)
        original(self, data[:-1] + b"?" if seen["bytes"] > 50_000 and len(data) > 100 else data)

    monkeypatch.setattr(SimWire, "arrive", garbled)
    assert broken() in (
        "messages arrive whole and alone",
        "only what was sent is delivered",
        "after the faults everybody is reachable",
        "all is well 120 s after the last fault",
    )


def test_books_that_are_not_kept_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "report_lost", lambda self, channel, count: None)
    assert "make sim" in str(first_failure(RouterDealer, range(SEEDS_MAX)))
