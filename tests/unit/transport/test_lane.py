"""Senders that wait for room in a lane."""

import asyncio
from typing import Any, cast

import pytest

from hansa.errors import AlreadyClosed, BadArgument
from hansa.transport.connection import Connection, Lane
from hansa.transport.environment import SocketOptions
from hansa.transport.outbox import Batch


class Sink:
    """Takes whatever a lane writes."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_writable = True

    def write_batch(self, batch: Batch) -> None:
        self.pieces += batch.pieces


def full_lane() -> Lane:
    lane = Lane(b"peer", SocketOptions(outgoing_count_max=1))
    lane.post([b"first"])
    return lane


async def waiting(lane: Lane, *messages: list[Any]) -> list[asyncio.Task[bool]]:
    """Sends that have all come as far as waiting for room."""
    tasks = [asyncio.ensure_future(lane.send(parts)) for parts in messages]
    while len(lane._senders) < len(tasks):
        await asyncio.sleep(0)
    return tasks


async def test_a_sender_that_fails_when_its_turn_comes_does_not_hold_up_the_next() -> None:
    lane, sink = full_lane(), Sink()
    bad, good = await waiting(lane, ["no bytes"], [b"second"])
    lane.start(cast("Connection", sink))
    with pytest.raises(BadArgument):
        await bad
    assert await asyncio.wait_for(good, 5)
    await asyncio.sleep(0)
    assert sink.pieces[1::2] == [b"first", b"second"]


async def test_senders_go_on_in_the_order_they_came() -> None:
    lane, sink = full_lane(), Sink()
    tasks = await waiting(lane, *([b"%d" % number] for number in range(5)))
    lane.start(cast("Connection", sink))
    assert all(await asyncio.wait_for(asyncio.gather(*tasks), 5))
    await asyncio.sleep(0)
    assert sink.pieces[1::2] == [b"first", b"0", b"1", b"2", b"3", b"4"]


async def test_closing_ends_every_sender_and_says_what_is_lost() -> None:
    lane = full_lane()
    tasks = await waiting(lane, [b"1"], [b"2"])
    assert lane.close() == 1
    for task in tasks:
        with pytest.raises(AlreadyClosed):
            await task


async def test_what_a_broken_connection_cannot_take_stays_in_the_lane() -> None:
    lane, sink = Lane(b"peer", SocketOptions()), Sink()
    lane.start(cast(Connection, sink))
    sink.is_writable = False
    lane.post([b"late"])
    lane.flush()
    assert (sink.pieces, lane.outbox.held_count) == ([], 1)
    assert lane.close() == 1
