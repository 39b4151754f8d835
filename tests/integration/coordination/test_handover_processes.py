"""Locks that are handed over between processes; one is killed, stopped or cut off, at each step once.

Five locks stand still at five steps at the same time, so that one kill -9 hits all of them. The old and the
new owner are processes, and so is whoever asks; who comes after them (the heir) waits in the test. Each
process reaches the store through a proxy of its own. Who is cut off goes on acting, and nobody hears it: what
it sends waits on the way, as in a cut cable, and arrives when the cable is mended.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Any, Final

import pytest

from hansa.coordination import FencedKey, Handovers, Hold, Lock, Session
from hansa.store import Store, open_store
from tests.support.etcd_servers import EtcdGroup
from tests.support.peer_process import PeerProcess
from tests.support.store_process import StoreProcess
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.timeout(120)


class Harm(StrEnum):
    """What comes over a process."""

    KILL = "kill"
    STOP = "stop"
    CUT = "cut"


LOCKS: Final = ("offered", "prepared", "sealed", "taken", "done")
STOP_S: Final = 5.0
HEIR_LEASE_S: Final = 10.0
LOOK_S: Final = 0.02
WAIT_S_MAX: Final = 40.0

# By the process that comes to harm: for each lock who owns it in the end, whether with the state, and what
# the record says.
OLD_GONE: Final = {
    "offered": ("new", False, "withdrawn"),
    "prepared": ("new", False, "withdrawn"),
    "sealed": ("new", True, "done"),
    "taken": ("new", True, "done"),
    "done": ("new", True, "done"),
}
NEW_GONE: Final = {
    "offered": ("old", False, "withdrawn"),
    "prepared": ("old", False, "withdrawn"),
    "sealed": ("old", False, "withdrawn"),
    "taken": ("heir", True, "done"),
    # The one that is gone has read it.
    "done": ("heir", False, "done"),
}
# Nobody needs who asked for it.
ASKER_GONE: Final = dict.fromkeys(LOCKS, ("new", True, "done"))
EXPECTED: Final = {"old": OLD_GONE, "new": NEW_GONE, "asker": ASKER_GONE}
LAST: Final = {"old": ("kept", "gave"), "new": ("owns", "failed"), "asker": ("asked",)}


class Told:
    """A process, and what it has told."""

    def __init__(self, peer: PeerProcess, *, last: tuple[str, ...]) -> None:
        self.peer = peer
        self._heard: list[dict[str, Any]] = []
        # What it tells last of a lock, and the locks of which it has.
        self._last = last
        self._settled: set[str] = set()

    async def until(self, event: str, lock: str = "") -> dict[str, Any]:
        """The first event of this kind, of this lock; each is given once."""
        while True:
            for one in self._heard:
                if (one["event"], one["lock"]) == (event, lock):
                    self._heard.remove(one)
                    return one
            await self._hear()

    async def settled(self, lock: str) -> None:
        """Wait until what it did with a lock has come to an end."""
        while lock not in self._settled:
            await self._hear()

    async def _hear(self) -> None:
        heard = await self.peer.hear()
        self._heard.append(heard)
        if heard["event"] in self._last:
            self._settled.add(heard["lock"])


class Stage:
    """Two nodes that are processes, one that is not, and five locks between them."""

    def __init__(self, stack: AsyncExitStack, store: Store, cluster: str) -> None:
        self._stack = stack
        self._store = store
        self._cluster = cluster
        self._handovers = Handovers(store, cluster=cluster)
        self._proxies: dict[str, TcpProxy] = {}
        self.heirs: dict[str, Hold] = {}
        self.nodes: dict[str, Told] = {}

    async def begin(self, address: str, *, is_asked: bool) -> None:
        """Each lock stands at the step by which it is called; its owner was asked to hand it over, or not."""
        for name, last in LAST.items():
            if name == "asker" and not is_asked:
                continue
            way = await self._stack.enter_async_context(TcpProxy(address.removeprefix("etcd://")))
            self._proxies[name] = way
            reached = f"etcd://{way.endpoint.removeprefix('tcp://')}"
            peer = PeerProcess("coordination/handover_peer.py", reached, self._cluster, name)
            self.nodes[name] = Told(await self._stack.enter_async_context(peer), last=last)
        old, new = self.nodes["old"], self.nodes["new"]
        await old.peer.say("acquire")
        for lock in LOCKS:
            await old.until("owns", lock)
        await new.until("ready")
        await new.peer.say("acquire")
        session = await self._stack.enter_async_context(
            Session(self._store, HEIR_LEASE_S, cluster=self._cluster, node="heir")
        )
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        for lock in LOCKS:
            await self._standing(session, lock, 1)
            task = tasks.create_task(self._inherit(session, lock))
            self._stack.callback(task.cancel)
            await self._standing(session, lock, 2)
        if is_asked:
            asker = self.nodes["asker"]
            await asker.until("ready")
            await old.peer.say("heed")
            await asker.peer.say("ask new")
        else:
            await old.peer.say("give new")
        for lock, name in (("prepared", "old"), ("offered", "new"), ("sealed", "new"), ("taken", "new")):
            await self.nodes[name].until("held", lock)
        owns = await new.until("owns", "done")
        assert (owns["state"], owns["before"]) == ("state of done", "old")

    async def _standing(self, session: Session, lock: str, count: int) -> None:
        while len(await Lock(session, lock).waiting()) < count:
            await asyncio.sleep(LOOK_S)

    async def _inherit(self, session: Session, lock: str) -> None:
        hold = await Lock(session, lock).acquire()
        await FencedKey(self._store, f"{self._cluster}/{lock}").take(hold.fence)
        self.heirs[lock] = hold

    async def strike(self, victim: str, how: Harm) -> list[Told]:
        """Do harm to one of them, and let go on what was held; gives those that live."""
        struck, way = self.nodes[victim], self._proxies[victim]
        others = [node for node in self.nodes.values() if node is not struck]
        match how:
            case Harm.KILL:
                await struck.peer.kill()
            case Harm.STOP:
                struck.peer.freeze()
            case Harm.CUT:
                way.hold()
                # It acts on what it knows, and learns nothing.
                await struck.peer.say("open")
        for other in others:
            await other.peer.say("open")
        if how is Harm.KILL:
            return others
        await asyncio.sleep(STOP_S)
        if how is Harm.CUT:
            way.forward()
        else:
            struck.peer.process.send_signal(signal.SIGCONT)
            await struck.peer.say("open")
        return [*others, struck]

    async def owner(self, lock: str, name: str) -> str:
        """Wait until this one owns a lock; gives the state that it was handed."""
        if name == "heir":
            while lock not in self.heirs:
                await asyncio.sleep(LOOK_S)
            return self.heirs[lock].state.decode()
        if name == "old":
            kept = await self.nodes["old"].until("kept", lock)
            assert kept == {"event": "kept", "lock": lock, "error": "handover-withdrawn", "is_held": True}
            return ""
        if lock == "done":
            return f"state of {lock}"  # It owned before.
        state: str = (await self.nodes["new"].until("owns", lock))["state"]
        return state

    async def ended(self, lock: str) -> str:
        """Wait until its hand-over has ended; gives the last step."""
        while True:
            record = await self._handovers.get("lock", lock)
            if record is not None and not record.is_open:
                return record.step.value
            await asyncio.sleep(LOOK_S)

    async def writers(self, living: list[Told]) -> dict[str, list[str]]:
        """Who holds each lock, and could write under its fence just now."""
        found: dict[str, list[str]] = {lock: [] for lock in LOCKS}
        for node in living:
            await node.peer.say("write")
            wrote = await node.until("wrote")
            name = next(name for name, one in self.nodes.items() if one is node)
            written = sorted(lock for lock, could in wrote["could"].items() if could == "written")
            assert written == wrote["held"], (name, wrote)
            for lock in written:
                found[lock].append(name)
        for lock, hold in self.heirs.items():
            if hold.is_held:
                found[lock].append("heir")
        return found


async def play(address: str, victim: str, how: Harm) -> None:
    """One kill, stop or cut, and what is true afterwards."""
    expected = EXPECTED[victim]
    cluster = f"{victim}-{how}"
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        store = await stack.enter_async_context(open_store(address))
        stage = Stage(stack, store, cluster)
        await stage.begin(address, is_asked=victim == "asker")
        living = await stage.strike(victim, how)
        for lock, (name, has_state, step) in expected.items():
            state = await stage.owner(lock, name)
            assert state == (f"state of {lock}" if has_state else ""), f"{cluster}: {lock}"
            assert await stage.ended(lock) == step, f"{cluster}: {lock}"
        for node in living:
            for lock in LOCKS:
                await node.settled(lock)
        owners = {lock: [name] for lock, (name, _, _) in expected.items()}
        assert await stage.writers(living) == owners, cluster


@pytest.fixture
async def address(tmp_path: Any) -> AsyncIterator[str]:
    with StoreProcess(tmp_path) as store:
        yield f"etcd://{store.address}"


@pytest.mark.spec("OWN-04", "OWN-05")
async def test_whoever_is_killed_stopped_or_cut_off_at_whichever_step_one_owns_and_what_was_sealed_is_there(
    address: str,
) -> None:
    async with asyncio.TaskGroup() as runs:
        for victim in EXPECTED:
            for how in Harm:
                runs.create_task(play(address, victim, how))


@pytest.mark.spec("OWN-04", "OWN-05")
async def test_the_same_on_etcd() -> None:
    with EtcdGroup() as group:
        async with asyncio.TaskGroup() as runs:
            runs.create_task(play(group.address, "old", Harm.STOP))
            runs.create_task(play(group.address, "new", Harm.KILL))
            runs.create_task(play(group.address, "old", Harm.CUT))
