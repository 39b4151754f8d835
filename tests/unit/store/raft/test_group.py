"""Calls to a member that does not answer end with an error that says so."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hansa.errors import AlreadyClosed, StoreUnavailable, TimedOut
from hansa.store.raft.group import MemberCalls, MemberPool, fetch_measures


class Silent:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.address = ""
        self.writers: list[asyncio.StreamWriter] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.connected.set()


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    silent = Silent()
    server = await asyncio.start_server(silent.take, "127.0.0.1", 0)
    silent.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield silent
    server.close()
    for writer in silent.writers:
        writer.close()


async def test_a_member_that_is_silent_or_away_is_given_up_in_time(silent: Silent) -> None:
    calls, away = MemberCalls(silent.address), MemberCalls("127.0.0.1:1")
    async with asyncio.timeout(10):
        with pytest.raises(TimedOut, match="Status"):
            await calls.status(timeout_s=0.2)
        with pytest.raises(StoreUnavailable, match="Status"):
            await away.status()
    await calls.close()
    await away.close()


async def test_closing_ends_a_call_with_an_error_and_not_with_a_cancellation(silent: Silent) -> None:
    pool = MemberPool()
    outcomes: list[BaseException] = []

    async def ask() -> None:
        try:
            await pool.at(silent.address).status(timeout_s=30)
        except (AlreadyClosed, asyncio.CancelledError) as error:
            outcomes.append(error)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(ask())
        await silent.connected.wait()
        await pool.keep_only(set())
    assert [type(outcome) for outcome in outcomes] == [AlreadyClosed]
    with pytest.raises(AlreadyClosed):
        calls = MemberCalls(silent.address)
        await calls.close()
        await calls.status()


async def test_cancelling_a_call_cancels_it(silent: Silent) -> None:
    calls = MemberCalls(silent.address)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(calls.status(timeout_s=30))
        await silent.connected.wait()
        task.cancel()
    assert task.cancelled()
    await calls.close()


async def test_measures_of_a_member_that_is_silent_or_away_are_given_up(silent: Silent) -> None:
    async with asyncio.timeout(10):
        for address in (silent.address, "127.0.0.1:1"):
            with pytest.raises(StoreUnavailable, match="metrics"):
                await fetch_measures(address)
