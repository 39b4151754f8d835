"""Members of a cluster, and an observer, under every fault.

Three to twelve members join, say that they drain and that they are up again, change what they say of
themselves, leave and come back. They stutter: they are paused and cut off for less than their lease lasts,
and for longer; they crash and return under the same id.

Always: each event follows from the one before it, none comes twice; a member is down only if it lost its
record, and left only if it said so; a member whose stutter stays within bounds keeps its record.

Where the store goes back in time it has older records, and members that know better join again.

When the faults are over: all views are equal, and equal to what the store has; each member's last
acknowledged statement is what all views show of it. How many members were suspected, and how many of them
although they were well, is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from hansa.chance import Chance
from hansa.coordination.member import MemberStatus, NodeInfo
from hansa.coordination.members import Members
from hansa.errors import Conflict, StoreUnavailable, TimedOut
from hansa.store.values import KeyValue, WatchBatch
from hansa.testing.faults import FaultPlan, draw_rewinds, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.scenarios.roster_truth import RosterTruth, RosterView
from hansa.testing.simulation import Scenario
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["RosterScenario"]

INTERVAL_S = 0.8
TIMEOUT_S = 2.4
# A member that is well for this long gets several heartbeats through, on the worst of the networks.
SPELL_S_MIN = 3.2
LOOKER = "looker"


class RosterScenario(Scenario):
    """Members that stutter, crash and return: nobody is down without a cause, all views converge."""

    name: ClassVar[str] = "roster"
    chaos_s: ClassVar[float] = 14.0
    quiet_s: ClassVar[float] = 40.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("roster")
        self.store = StoreHost(world, witness=self._witness, rewound=self._rewound)
        self.truth = RosterTruth(
            world, self.store.name, interval_s=INTERVAL_S, timeout_s=TIMEOUT_S, spell_s_min=SPELL_S_MIN
        )
        self.names = [f"m{number:02}" for number in range(1, 1 + chance.choose((3, 3, 3, 4, 4, 5, 6, 12)))]
        self.is_calm = False
        self._is_summed_up = False
        self._views: dict[str, RosterView] = {}
        # The last thing that each was told that it has said, as far as that is known.
        self._said: dict[str, dict[str, object]] = {}

    def begin(self) -> None:
        for name in (*self.names, LOOKER):
            self.world.host(name, self._live).start()
        self.store.start()
        self.truth.look()

    def plan(self, chance: Chance) -> FaultPlan:
        hosts, store, ttl_s = [*self.names, LOOKER], self.store.name, 2 * TIMEOUT_S
        return (
            *draw_store_plan(chance, hosts, store, chaos_s=self.chaos_s, ttl_s=ttl_s),
            *draw_rewinds(chance.fork("rewinds"), store, chaos_s=self.chaos_s, ttl_s=ttl_s),
        )

    def check(self) -> None:
        self.truth.look()

    def calm(self) -> None:
        self.is_calm = True
        self.truth.look()

    def unsettled(self) -> str:
        for name in (*self.names, LOOKER):
            view = self._views.get(name)
            if view is None:
                return f"{name} has no view"
            if name != LOOKER and not view.members.is_member:
                return f"{name} is no member"
            if missing := view.difference(self.names):
                return missing
        for name, said in self._said.items():
            info = self.truth.records[name].info
            if any(getattr(info, field) != value for field, value in said.items()):
                self.world.fail("what was acknowledged is said", f"{name} said {said}, not {info}")
        if not self._is_summed_up:
            self._is_summed_up = True
            self.world.history.record("", str(self.truth))
        return ""

    # What runs on the hosts.

    async def _live(self, host: Host) -> None:
        chance = host.chance.fork("member")
        # A life that crashed had no time to say so.
        self.truth.stays(host.name, is_staying=False)
        self._views.pop(host.name, None)
        async with StoreLink(host, self.store) as link:
            while True:
                try:
                    await self._stay(host, link, chance)
                except (StoreUnavailable, TimedOut) as error:
                    host.record(f"cannot join: {error.code}")
                await asyncio.sleep(chance.uniform(0.0, 2.0))

    async def _stay(self, host: Host, link: StoreLink, chance: Chance) -> None:
        node = None
        if host.name != LOOKER:
            node = NodeInfo(id=host.name, host=host.name, port=7000, metadata={"life": str(host.life)})
            self._said[host.name] = {"status": node.status, "metadata": node.metadata}
        async with Members(
            link,
            node,
            heartbeat_interval=INTERVAL_S,
            heartbeat_timeout=TIMEOUT_S,
            environment=Environment(chance=chance.fork("members")),
        ) as members:
            view = self._views[host.name] = RosterView(host, members, self.truth)
            self.truth.stays(host.name, is_staying=True)
            try:
                async with asyncio.TaskGroup() as tasks:
                    listening = tasks.create_task(self._listen(view), name="listening")
                    await self._act(host, members, chance)
                    listening.cancel()
            finally:
                del self._views[host.name]
                self.truth.stays(host.name, is_staying=False)
            host.record("leaves")

    async def _listen(self, view: RosterView) -> None:
        async for event in view.events:
            view.hear(event)

    async def _act(self, host: Host, members: Members, chance: Chance) -> None:
        """Say this and that, until it is time to leave; when all is calm, stay."""
        for number in range(chance.choose((1, 4, 40))):
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            if self.is_calm:
                break
            if host.name != LOOKER and chance.flip(0.5):
                # One thing, or two at once: neither may undo the other.
                fields = chance.choose((("status",), ("metadata",), ("status", "metadata")))
                async with asyncio.TaskGroup() as tasks:
                    for field in fields:
                        tasks.create_task(self._say(host, members, chance, field, number), name=field)
        if self.is_calm:
            await asyncio.Event().wait()

    async def _say(self, host: Host, members: Members, chance: Chance, field: str, number: int) -> None:
        said = self._said[host.name]
        value: object = chance.choose((MemberStatus.UP, MemberStatus.DRAINING))
        if field == "metadata":
            value = {"life": str(host.life), "number": str(number)}
        before = said.pop(field, None)
        try:
            if isinstance(value, MemberStatus):
                await members.set_status(value)
            elif isinstance(value, dict):
                await members.update(metadata=value)
        except (Conflict, StoreUnavailable):
            if before is not None:
                said[field] = before
        except TimedOut:
            host.record(f"does not know whether its {field} is {value}")
        else:
            said[field] = value

    def _rewound(self, items: Sequence[KeyValue], revision: int) -> None:
        self.truth.rewound(items)

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        self.truth.follow(batch, origin)
