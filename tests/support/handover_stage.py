"""Locks that stand still, each at another step of its hand-over, between nodes that are processes.

Six locks are called by the steps that were written last, so one harm hits all steps. The old and the new
owner are processes, and so is whoever asks, if somebody does; who comes after them (the heir) is in the test.
Each reaches the store through a proxy of its own. Who is cut off goes on acting, and nobody hears it: what it
sends waits on the way, as in a cut cable, and arrives when the cable is mended.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

from hansa.coordination import FencedKey, Handovers, Hold, Lock, Session
from hansa.coordination.handover import Handover, HandoverStep
from hansa.errors import HansaError, Unavailable
from hansa.store import Store, open_store
from tests.support.peer_process import PeerProcess
from tests.support.tcp_proxy import TcpProxy


class Harm(StrEnum):
    """What comes over somebody."""

    KILL = "kill"
    STOP = "stop"
    CUT = "cut"


class End(NamedTuple):
    """What becomes of a lock: who owns it, what its record says, and who has read what was sealed."""

    owner: str
    step: HandoverStep
    reader: str = ""


STEPS: Final = (
    HandoverStep.OFFERED,
    HandoverStep.PREPARED,
    HandoverStep.SEALED,
    HandoverStep.TAKEN,
    HandoverStep.DONE,
)
LOCKS: Final = (*STEPS, HandoverStep.WITHDRAWN)
# Who holds back the next one.
HOLDERS: Final = {
    HandoverStep.OFFERED: "new",
    HandoverStep.PREPARED: "old",
    HandoverStep.SEALED: "new",
    HandoverStep.TAKEN: "new",
}
# Longer than the lease of who is to lose it, and shorter than everybody else's.
STOP_S: Final = 5.0
LEASE_S, LONG_LEASE_S = 4.0, 60.0
LOOK_S: Final = 0.02
# What each tells last of a lock.
_LAST: Final = {"old": ("kept", "gave"), "new": ("owns", "failed"), "asker": ("asked",)}


@asynccontextmanager
async def within(seconds: float, doing: Callable[[], str]) -> AsyncIterator[None]:
    """Whatever takes longer than that fails, and the error says what was being done."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as late:
        late.add_note(doing())
        raise


class Told:
    """A process, and what it has told."""

    def __init__(self, peer: PeerProcess, *, last: tuple[str, ...]) -> None:
        self.peer = peer
        self.reads: dict[HandoverStep, str] = {}
        """What it has read of what was sealed, by the lock."""
        self.heard: list[dict[str, Any]] = []
        """What nobody has waited for so far."""
        self._last = last
        self._settled: set[str] = set()

    async def until(self, event: str, lock: HandoverStep | None = None) -> dict[str, Any]:
        """The first event of this kind, of this lock; each is given once."""
        wanted = event, "" if lock is None else lock.value
        while True:
            for one in self.heard:
                if (one["event"], one["lock"]) == wanted:
                    self.heard.remove(one)
                    return one
            await self._hear()

    async def settled(self, lock: HandoverStep) -> None:
        """Wait until what it did with a lock has come to an end."""
        while lock.value not in self._settled:
            await self._hear()

    async def _hear(self) -> None:
        heard = await self.peer.hear()
        self.heard.append(heard)
        if heard["event"] == "read":
            lock = HandoverStep(heard["lock"])
            assert lock not in self.reads, heard
            self.reads[lock] = heard["state"]
        if heard["event"] in self._last:
            self._settled.add(heard["lock"])


class HandoverStage:
    """Two or three nodes that are processes, one that is not, and six locks between them.

    `short` are those whose leases end when they are stopped or cut off. `starts` has few of many stages begin
    at the same time: starting processes takes the processor, and leases would end for want of it.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        store: Store,
        cluster: str,
        *,
        starts: asyncio.Semaphore,
        short: tuple[str, ...] = (),
        timeout_s: float,
    ) -> None:
        self._starts = starts
        self._stack = stack
        self._store = store
        self._cluster = cluster
        self._short = short
        self._timeout_s = timeout_s
        self._handovers = Handovers(store, cluster=cluster)
        self._heirs: dict[HandoverStep, tuple[Hold, bytes]] = {}
        self._fences: dict[HandoverStep, int] = {}
        self._asked_by = ""
        self.proxies: dict[str, TcpProxy] = {}
        self.nodes: dict[str, Told] = {}
        self._doing = "the nodes begin"

    @property
    def doing(self) -> str:
        """What is waited for, and what everybody has told besides."""
        told = {name: node.heard for name, node in self.nodes.items()}
        return f"{self._cluster}: {self._doing}; told: {told}"

    async def begin(self, address: str, *, is_asked: bool) -> None:
        """Each lock stands at the step by which it is called; its owner was asked to hand it over, or not."""
        async with self._starts:
            await self._begin(address, is_asked=is_asked)

    async def _begin(self, address: str, *, is_asked: bool) -> None:
        self._asked_by = "asker" if is_asked else ""
        names = [name for name in _LAST if name != "asker" or is_asked]
        for name in (*names, "heir"):
            way = await self._stack.enter_async_context(TcpProxy(address.removeprefix("etcd://")))
            self.proxies[name] = way
        reached = {
            name: f"etcd://{way.endpoint.removeprefix('tcp://')}" for name, way in self.proxies.items()
        }
        for name in names:
            lease_s = LEASE_S if name in self._short else LONG_LEASE_S
            arguments = reached[name], self._cluster, name, str(lease_s), str(self._timeout_s)
            peer = PeerProcess("coordination/handover_peer.py", *arguments)
            self.nodes[name] = Told(await self._stack.enter_async_context(peer), last=_LAST[name])
        for name in names:
            await self.nodes[name].until("ready")
        old, new = self.nodes["old"], self.nodes["new"]
        await old.peer.say("acquire")
        for lock in LOCKS:
            self._fences[lock] = (await old.until("owns", lock))["fence"]
        await new.peer.say("acquire")
        await self._line_up(await self._stack.enter_async_context(open_store(reached["heir"])))
        if is_asked:
            await old.peer.say("heed")
            await self.nodes["asker"].peer.say("ask new")
        else:
            await old.peer.say("give new")
        for step, name in HOLDERS.items():
            await self.nodes[name].until("held", step)
        owns = await new.until("owns", HandoverStep.DONE)
        assert (owns["state"], owns["before"]) == ("state of done", "old")
        kept = await old.until("kept", HandoverStep.WITHDRAWN)
        assert (kept["error"], kept["is_held"]) == ("usage", True), kept
        await self.reached({lock: lock for lock in LOCKS})

    async def _line_up(self, store: Store) -> None:
        """Have the heir stand in each line, behind the new owner."""
        session = await self._stack.enter_async_context(
            Session(store, LONG_LEASE_S, cluster=self._cluster, node="heir")
        )
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        for lock in LOCKS:
            await self._standing(session, lock, 1)
            task = tasks.create_task(self._inherit(session, lock))
            self._stack.callback(task.cancel)
            await self._standing(session, lock, 2)

    async def _standing(self, session: Session, lock: HandoverStep, count: int) -> None:
        while len(await Lock(session, lock.value).waiting()) < count:
            await asyncio.sleep(LOOK_S)

    async def _inherit(self, session: Session, lock: HandoverStep) -> None:
        try:
            hold = await Lock(session, lock.value).acquire()
        except HansaError as error:
            error.add_note(self.doing)
            raise
        before = await FencedKey(session.store, f"{self._cluster}/{lock.value}").take(hold.fence)
        self._heirs[lock] = hold, before or b""

    async def reached(self, steps: Mapping[HandoverStep, HandoverStep]) -> None:
        """Wait until the records of these locks are at these steps."""
        for lock, step in steps.items():
            while (record := await self._record(lock)) is None or record.step is not step:
                await asyncio.sleep(LOOK_S)

    async def open(self, *names: str) -> None:
        """Let what these hold back go on."""
        for name in names or self.nodes:
            await self.nodes[name].peer.say("open")

    async def strike(self, victim: str, how: Harm) -> list[str]:
        """Do harm to one of the processes, and let go on what was held; gives those that live.

        The ways of all to the store are cut if that is the victim.
        """
        if victim == "store":
            assert how is Harm.CUT, "the store is killed and stopped by whoever has started it"
            await self._cut(*self.proxies)
            return list(self.nodes)
        others = [name for name in self.nodes if name != victim]
        peer = self.nodes[victim].peer
        match how:
            case Harm.KILL:
                await peer.kill()
                await self.open(*others)
                return others
            case Harm.STOP:
                peer.freeze()
                await self.open(*others)
                await asyncio.sleep(STOP_S)
                peer.process.send_signal(signal.SIGCONT)
                await self.open(victim)
            case Harm.CUT:
                await self._cut(victim)
        return list(self.nodes)

    async def _cut(self, *names: str) -> None:
        """Cut their ways. Everybody acts on what it knows, and these learn nothing."""
        for name in names:
            self.proxies[name].hold()
        await self.open()
        await asyncio.sleep(STOP_S)
        for name in names:
            self.proxies[name].forward()

    async def judge(self, ends: Mapping[HandoverStep, End], living: list[str]) -> None:
        """Each lock has one owner, its state one reader, and its record says what happened."""
        for lock, end in ends.items():
            self._doing = f"{lock.value} comes to its end, {end}"
            fence = await self._owned(lock, end)
            self._check_record(lock, end, fence, await self._ended(lock))
        for name in living:
            for lock in LOCKS:
                self._doing = f"{name} tells what came of {lock.value}"
                # Who comes next waits on, as long as the old owner owns.
                if name != "new" or lock is not HandoverStep.WITHDRAWN or ends[lock].owner != "old":
                    await self.nodes[name].settled(lock)
        assert await self._writers(living) == {lock: [end.owner] for lock, end in ends.items()}
        for lock, end in ends.items():
            reads = {name: node.reads[lock] for name, node in self.nodes.items() if lock in node.reads}
            if lock in self._heirs and (state := self._heirs[lock][0].state):
                reads["heir"] = state.decode()
            assert reads == ({end.reader: f"state of {lock.value}"} if end.reader else {}), lock

    async def _owned(self, lock: HandoverStep, end: End) -> int:
        """Wait until it has its owner, who has found what the one before it has written; gives its fence."""
        if end.owner == "heir":
            while lock not in self._heirs:
                await asyncio.sleep(LOOK_S)
            hold, before = self._heirs[lock]
            # The last who owned it: of what is done already the new owner was it.
            assert before.decode() == ("new" if lock is HandoverStep.DONE else "old"), lock
            return hold.fence
        if end.owner == "old":
            if lock is not HandoverStep.WITHDRAWN:
                kept = await self.nodes["old"].until("kept", lock)
                assert (kept["error"], kept["is_held"]) == ("handover-withdrawn", True), lock
            return self._fences[lock]
        if lock is HandoverStep.DONE:
            return 0  # It owned before.
        owns = await self.nodes["new"].until("owns", lock)
        assert owns["before"] == "old", lock
        fence: int = owns["fence"]
        return fence

    def _check_record(self, lock: HandoverStep, end: End, fence: int, record: Handover) -> None:
        """What, from whom, to whom, who asked, both epochs, each step, and why, if it was withdrawn."""
        assert (record.step, record.number) == (end.step, 1), record
        assert (record.source, record.target, record.asked_by) == ("old", "new", self._asked_by), record
        assert (record.epoch, record.state) == (self._fences[lock], b""), record
        if end.step is HandoverStep.DONE:
            assert (list(record.times), record.trouble) == (list(STEPS), ""), record
            assert record.taken_by == end.reader, record
            assert record.next_epoch > record.epoch, record
            if end.reader == end.owner and fence:
                assert record.next_epoch == fence, record
        else:
            # It may have come further than it stood, when that was let go on.
            early = STEPS[: STEPS.index(record.reached) + 1]
            assert (list(record.times), bool(record.trouble)) == ([*early, end.step], True), record
            assert lock is HandoverStep.WITHDRAWN or lock in early, record
            assert HandoverStep.TAKEN not in early, record

    async def _record(self, lock: HandoverStep) -> Handover | None:
        while True:
            with suppress(Unavailable):
                return await self._handovers.get("lock", lock.value)

    async def _ended(self, lock: HandoverStep) -> Handover:
        """Wait until its hand-over has ended; gives the record."""
        while (record := await self._record(lock)) is None or record.is_open:
            await asyncio.sleep(LOOK_S)
        return record

    async def _writers(self, living: list[str]) -> dict[HandoverStep, list[str]]:
        """Who holds each lock, and could write under its fence just now."""
        found: dict[HandoverStep, list[str]] = {lock: [] for lock in LOCKS}
        for name in living:
            await self.nodes[name].peer.say("write")
            wrote = await self.nodes[name].until("wrote")
            written = sorted(lock for lock, could in wrote["could"].items() if could == "written")
            assert written == wrote["held"], (name, wrote)
            for lock in written:
                found[HandoverStep(lock)].append(name)
        for lock, (hold, _) in self._heirs.items():
            if hold.is_held:
                found[lock].append("heir")
        return found
