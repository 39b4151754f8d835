"""A member that is UP and fenced does not exist: whoever is shown UP may act on what it has.

For a while it can look so: a session that is lost leaves its record behind for its margin, until the lease
ends; and who has joined again is given what it had by the leader, who may have been lost with it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from hansa.coordination.member import MemberStatus
from hansa.coordination.members import Members
from hansa.coordination.placed import Placement
from hansa.errors import TimedOut
from hansa.keys import Keys
from hansa.limits import MEMBER_HEARTBEAT_TIMEOUT_S, SESSION_MARGIN_SHARE
from hansa.store.values import Get, prefix_range
from tests.support.worker_stage import GROUP, WorkerLife, WorkerStage, stay

KEYS = Keys()
LEASE_S = 2 * MEMBER_HEARTBEAT_TIMEOUT_S
MARGIN_S = SESSION_MARGIN_SHARE * LEASE_S
LOOK_S = 0.05
# The election of another leader, and its first steps.
LATE_S = 1.0
RUN_S = 60.0


class Witness:
    """Looks again and again who is UP and cannot act on what it has, and for how long that is so."""

    def __init__(self, stage: WorkerStage, members: Members) -> None:
        self._stage = stage
        self._members = members
        self._since_s: dict[tuple[str, bytes], float] = {}
        self.longest_s = 0.0

    async def look(self) -> dict[tuple[str, bytes], float]:
        """Who is so now, with which entry, and for how long."""
        now = self._stage.loop.time()
        fenced = await self._fenced()
        self._since_s = {found: self._since_s.get(found, now) for found in fenced}
        lasted_s = {found: now - since_s for found, since_s in self._since_s.items()}
        self.longest_s = max(self.longest_s, *lasted_s.values(), 0.0) if lasted_s else self.longest_s
        return lasted_s

    async def _fenced(self) -> list[tuple[str, bytes]]:
        prefixes = (KEYS.nodes, KEYS.assignments(GROUP))
        outcome = await self._stage.store.commit([], [Get(*prefix_range(prefix)) for prefix in prefixes])
        nodes = {item.key: item.lease for item in outcome.items if item.key.startswith(KEYS.nodes)}
        found = []
        for item in outcome.items:
            if not item.key.startswith(KEYS.assignments(GROUP)):
                continue
            entry = Placement.decode(item.value)
            seen = self._members.view.get(entry.node)
            if seen is None or seen.status is not MemberStatus.UP:
                continue
            session = self._stage.workers[entry.node].members.sessions.session
            is_live = session is not None and session.lease == entry.lease
            if not is_live or nodes.get(KEYS.node(entry.node)) != entry.lease:
                found.append((entry.node, item.key))
        return found


async def stopped(stage: WorkerStage, one: WorkerLife) -> None:
    stage.stop(one)
    await asyncio.sleep(2 * LEASE_S)
    stage.go_on(one)


async def killed(stage: WorkerStage, one: WorkerLife) -> None:
    stage.strike(one)


async def deaf(stage: WorkerStage, one: WorkerLife) -> None:
    """The store hears it, and it does not hear the store: its lease lives longer than its session."""
    one.store.is_deaf = True
    await asyncio.sleep(3 * LEASE_S)
    one.store.is_deaf = False


async def revoked(stage: WorkerStage, one: WorkerLife) -> None:
    for _ in range(3):
        await stage.lose_session(one)
        await asyncio.sleep(1.0)


async def followed(stage: WorkerStage, one: WorkerLife) -> None:
    """Another process comes under its name."""
    await stage.work(one.name, stay)


async def away(stage: WorkerStage, one: WorkerLife) -> None:
    """The store answers nobody for longer than their leases."""
    stage.store.pause()
    await asyncio.sleep(2 * LEASE_S)
    stage.store.resume()


@pytest.mark.parametrize("strike", [stopped, killed, deaf, revoked, followed, away])
@pytest.mark.parametrize("victim", ["a", "b"])
def test_who_is_up_can_act_on_what_it_has_but_for_the_margin_of_its_lease(
    strike: Callable[[WorkerStage, WorkerLife], Awaitable[None]], victim: str
) -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define(*(f"p{number}" for number in range(6)))
        # The first one leads.
        for name in ("a", "b", "c"):
            await stage.work(name, stay)
        async with Members(stage.store) as members:
            witness = Witness(stage, members)
            await asyncio.sleep(5.0)
            assert await witness.look() == {}
            struck = asyncio.ensure_future(strike(stage, stage.workers[victim]))
            ends_s = stage.loop.time() + RUN_S
            while stage.loop.time() < ends_s:
                # While the store is away nobody can say: the view is shown as stale then.
                with suppress(TimedOut):
                    await witness.look()
                await asyncio.sleep(LOOK_S)
            await struck
            assert witness.longest_s <= MARGIN_S + LATE_S
            assert await witness.look() == {}
            owners = {found.owner for found in (await stage.outside.all()).values()}
            assert owners == {"a", "b", "c"} - ({victim} if strike is killed else set())

    WorkerStage.play(scene)
