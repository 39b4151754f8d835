"""Members as real processes on a real etcd: frozen, killed, blocked, and gone in order."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.support.etcd_servers import EtcdGroup
from tests.support.peer_process import PeerProcess

INTERVAL_S, TIMEOUT_S = 0.5, 2.0
LEASE_S = 2 * TIMEOUT_S
# etcd knows whole seconds, and looks for ended leases twice a second; a look comes once an interval. The rest
# is for a machine that is busy with other tests.
LATE_S = 3.0


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdGroup]:
    with EtcdGroup() as group:
        yield group


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def start(stack: AsyncExitStack, etcd: EtcdGroup, *names: str) -> dict[str, PeerProcess]:
    """Members that all know each other."""
    times = (str(INTERVAL_S), str(TIMEOUT_S))
    peers = {
        name: await stack.enter_async_context(
            PeerProcess("coordination/member_peer.py", etcd.address, name, *times)
        )
        for name in names
    }
    for peer in peers.values():
        heard = await peer.hear()
        known = set(heard["members"])
        while not known.issuperset(names):
            known.add((await peer.hear()).get("id"))
    return peers


async def hear(peer: PeerProcess, event: str, name: str | None = None) -> dict[str, Any]:
    """The next event of this kind, of this member; anything else before it is wrong."""
    heard = await peer.hear()
    # On a machine that is busy with other tests a loop may be late by itself.
    while heard["event"] == "LoopLagged":
        heard = await peer.hear()
    assert (heard["event"], heard.get("id")) == (event, name), heard
    return heard


@pytest.mark.spec("CRD-05")
@pytest.mark.spec("CRD-06")
async def test_a_frozen_a_killed_and_a_leaving_process_are_told_apart(
    stack: AsyncExitStack, etcd: EtcdGroup
) -> None:
    etcd.wipe()
    peers = await start(stack, etcd, "a", "b", "c", "d", "e")
    others = [peers[name] for name in ("a", "b")]
    # One goes in order: seen at once.
    began_s = time.monotonic()
    await peers["c"].say("leave")
    for peer in (*others, peers["d"], peers["e"]):
        left = await hear(peer, "MemberLeft", "c")
        assert left["reason"] == "left"
        assert left["at"] - began_s < 1.0
    # One freezes: suspected, then down.
    began_s = time.monotonic()
    peers["d"].freeze()
    for peer in (*others, peers["e"]):
        suspected = await hear(peer, "MemberSuspected", "d")
        assert TIMEOUT_S - INTERVAL_S <= suspected["at"] - began_s <= TIMEOUT_S + LATE_S
    for peer in (*others, peers["e"]):
        down = await hear(peer, "MemberDown", "d")
        assert LEASE_S - INTERVAL_S <= down["at"] - began_s <= LEASE_S + LATE_S
        assert down["reason"] == "its lease ended"
    # And thaws: it finds out by itself, and joins again.
    peers["d"].process.send_signal(signal.SIGCONT)
    joined = [await hear(peer, "MemberJoined", "d") for peer in (*others, peers["e"])]
    assert {one["incarnation"] > down["incarnation"] for one in joined} == {True}
    assert {one["reason"].split(":")[0] for one in joined} == {"joined again"}
    rejoined = await peers["d"].hear()
    while rejoined["event"] != "Rejoined":
        rejoined = await peers["d"].hear()
    assert rejoined["incarnation"] == joined[0]["incarnation"]
    # One is killed: nobody says goodbye for it.
    began_s = time.monotonic()
    await peers["e"].kill()
    for peer in others:
        await hear(peer, "MemberSuspected", "e")
        down = await hear(peer, "MemberDown", "e")
        assert down["at"] - began_s <= LEASE_S + LATE_S


@pytest.mark.spec("CRD-07")
async def test_a_blocked_loop_is_reported_and_not_mistaken_for_death_up_to_the_timeout(
    stack: AsyncExitStack, etcd: EtcdGroup
) -> None:
    etcd.wipe()
    peers = await start(stack, etcd, "a", "b")
    # With renewals from the loop alone the longest silence would be a block and an interval: too long.
    for _ in range(2):
        await peers["b"].say(f"block {TIMEOUT_S - 0.2}")
        lagged = await peers["b"].hear()
        assert lagged["event"] == "LoopLagged"
        stuck = re.fullmatch(r"the event loop was stuck for (\d+\.\d) s", lagged["reason"])
        # A busy machine lets it run a little later than it could.
        assert stuck, lagged["reason"]
        assert 1.0 <= float(stuck[1]) <= TIMEOUT_S + LATE_S
        await hear(peers["b"], "blocked")
    # Longer than the timeout it renews no more: a stuck program must not look alive for ever.
    began_s = time.monotonic()
    await peers["b"].say(f"block {TIMEOUT_S + LEASE_S + LATE_S}")
    # Nothing was told of the blocks before.
    suspected = await hear(peers["a"], "MemberSuspected", "b")
    assert suspected["at"] - began_s > TIMEOUT_S
    down = await hear(peers["a"], "MemberDown", "b")
    assert LEASE_S < down["at"] - began_s <= TIMEOUT_S + LEASE_S + LATE_S
    joined = await hear(peers["a"], "MemberJoined", "b")
    assert joined["incarnation"] > down["incarnation"]
    told = [await peers["b"].hear()]
    while told[-1]["event"] != "blocked" or len(told) < 3:
        told.append(await peers["b"].hear())
    assert {"LoopLagged", "Rejoined"} <= {one["event"] for one in told}
    async with asyncio.timeout(10):
        await peers["b"].say("leave")
        await hear(peers["a"], "MemberLeft", "b")
