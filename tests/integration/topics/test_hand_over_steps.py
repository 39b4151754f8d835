"""Topics that are handed over, each standing still at another step, while somebody comes to harm.

Six topics are called by the steps that were written last, so one harm hits all steps. Who comes to harm is a
process: the old owner, the new one, or the store; the other nodes are here. Who is cut off is so from the
store and from all nodes, as by a cable. Each topic retains its last message: that is what an owner seals,
besides its counting. At random moments, under load: `test_hand_over_processes`.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest

from hansa import HansaError, SpotNode, Store, Subscription, open_store
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.handovers import Handovers
from hansa.errors import Unavailable
from hansa.ids import format_id, routing_id
from hansa.keys import topic_name
from tests.support.discovery_cast import until
from tests.support.handover_stage import within
from tests.support.held_store import HeldStore
from tests.support.reserved_ports import reserved_endpoints
from tests.support.store_process import StoreProcess
from tests.support.tcp_proxy import TcpProxy
from tests.support.topics_cast import TopicCast, numbered, payloads
from tests.support.topics_processes import NodeProcess

pytestmark = [pytest.mark.spec("OWN-03", "OWN-05"), pytest.mark.timeout(180)]

OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN = HandoverStep
# Somebody outside withdraws what was offered, and the new owner's answer comes too late.
HELD: Final = {
    "old": {PREPARED: SEALED},
    "new": {OFFERED: PREPARED, WITHDRAWN: PREPARED, SEALED: TAKEN, TAKEN: DONE},
}
LEASE_S, LONG_LEASE_S = 4.0, 60.0
TIMEOUT_S: Final = 10.0
STOP_S: Final = 5.0
DOWN_S: Final = 1.0
LOOK_S: Final = 0.05
WAIT_S_MAX: Final = 90.0
MESSAGES_COUNT: Final = 10
# The one with the highest number is dialled by all others.
VICTIM, OTHER, PUBLISHER, READER = 70, 3, 20, 30

# What becomes of each topic: who owns it, what the record says, and whether the last message is still there.
OLD_STOPPED: Final = {
    OFFERED: ("new", WITHDRAWN, False),
    PREPARED: ("new", WITHDRAWN, False),
    SEALED: ("new", DONE, True),
    TAKEN: ("new", DONE, True),
    DONE: ("new", DONE, True),
    WITHDRAWN: ("new", WITHDRAWN, False),
}
NEW_CUT: Final = {
    OFFERED: ("old", WITHDRAWN, True),
    PREPARED: ("old", WITHDRAWN, True),
    SEALED: ("old", WITHDRAWN, True),
    # Nothing was given out since it was sealed: the old owner creates it anew, and is given that.
    TAKEN: ("old", DONE, True),
    DONE: ("old", DONE, False),
    WITHDRAWN: ("old", WITHDRAWN, True),
}
STORE_KILLED: Final = {
    **dict.fromkeys((OFFERED, PREPARED, SEALED, TAKEN, DONE), ("new", DONE, True)),
    WITHDRAWN: ("old", WITHDRAWN, True),
}

Ends = Mapping[HandoverStep, tuple[str, HandoverStep, bool]]


class Stage:
    """Four nodes, one of them a process if it is to come to harm, and six topics."""

    def __init__(self, stack: AsyncExitStack, cast: TopicCast, store: Store, service: str) -> None:
        self._stack = stack
        self._cast = cast
        self._store = store
        self._service = service
        self._handovers = Handovers(store)
        self._held: list[HeldStore] = []
        self._subscriptions: dict[HandoverStep, Subscription] = {}
        self.victim: NodeProcess | None = None
        self.cables: list[TcpProxy] = []
        self.nodes: dict[str, SpotNode] = {}
        self.doing = f"{service}: the nodes begin"
        self._ids: dict[str, bytes] = {}

    async def begin(self, address: str, bound: str = "", *, victim: str = "") -> None:
        """Each topic stands at the step by which it is called, and everybody has what was published."""
        registry = await self._cast.registry(heartbeat_timeout=1.5)
        for name in ("old", "new", "publisher", "reader"):
            number = {"publisher": PUBLISHER, "reader": READER}.get(
                name, VICTIM if name == (victim or "new") else OTHER
            )
            self._ids[name] = routing_id(number)
            held = {self._record(topic): step for topic, step in HELD.get(name, {}).items()}
            if name == victim:
                where = str(registry.pub), str(registry.router)
                await self._process(number, where, address, bound, held)
                continue
            gate = HeldStore(self._store, held, _nobody)
            self._held.append(gate)
            self.nodes[name] = await self._cast.node(
                registry, number, service=self._service, store=cast(Store, gate), claim_ttl=LONG_LEASE_S
            )
        await until(lambda: all(len(node.peers) == 3 for node in self.nodes.values()), "all are connected")
        for topic in HandoverStep:
            await self._create(topic)
        reader, publisher = self.nodes["reader"].spot(), self.nodes["publisher"].spot()
        for topic in HandoverStep:
            subscription = self._subscriptions[topic] = await reader.subscribe(topic.value)
            await subscription.active()
            for payload in numbered(range(MESSAGES_COUNT)):
                await publisher.publish(topic.value, payload)
            assert await payloads(subscription, MESSAGES_COUNT) == numbered(range(MESSAGES_COUNT))
        to = format_id(self._ids["new"])
        for topic in HandoverStep:
            await self._handovers.offer("topic", self._record(topic), to, timeout=TIMEOUT_S)
        for topic in HandoverStep:
            if topic is not WITHDRAWN:
                await self._reached(topic, topic)
        await self._handovers.withdraw("topic", self._record(WITHDRAWN))

    async def _process(
        self, number: int, where: tuple[str, str], address: str, bound: str, held: Mapping[str, HandoverStep]
    ) -> None:
        self.cables = [
            await self._stack.enter_async_context(TcpProxy(target))
            for target in (bound, address.replace("etcd", "tcp"))
        ]
        self.victim = await self._stack.enter_async_context(
            NodeProcess(
                number,
                *where,
                service=self._service,
                claim_ttl=LEASE_S,
                bind=bound,
                advertise=self.cables[0].endpoint,
                store=self.cables[1].endpoint.replace("tcp", "etcd"),
                held=json.dumps({name: step.value for name, step in held.items()}),
            )
        )
        await self.victim.ready()

    async def _create(self, topic: HandoverStep) -> None:
        if "old" in self.nodes:
            await self.nodes["old"].heir.create_topic(topic.value, retain=True)
        else:
            assert self.victim is not None
            assert await self.victim.do("create", topic=topic.value, retain=True) == {"event": "create"}

    async def _reached(self, topic: HandoverStep, *steps: HandoverStep) -> Handover:
        """Wait until its record is at one of these steps."""
        while True:
            with suppress(Unavailable):
                record = await self._handovers.get("topic", self._record(topic))
                if record is not None and record.step in steps:
                    return record
            await asyncio.sleep(LOOK_S)

    def open(self) -> None:
        """Let go on what the nodes hold back that are here."""
        for gate in self._held:
            gate.open()

    async def ended(self, ends: Ends) -> None:
        """Each topic comes to have its owner, and its record says what happened."""
        for topic, (name, step, _) in ends.items():
            node = self.nodes[name]
            self.doing = f"{self._service}: {topic.value} comes to {name}"
            while topic.value not in node.owned:
                # It is free, if nobody was to take it; or it will be.
                with suppress(HansaError):
                    await node.heir.create_topic(topic.value, retain=True)
                await asyncio.sleep(LOOK_S)
            self.doing = f"{self._service}: {topic.value} is {step.value}"
            record = await self._reached(topic, DONE, WITHDRAWN)
            assert record.step is step, (topic, record)
            assert bool(record.trouble) == (step is WITHDRAWN), (topic, record)
            assert (record.source, record.target) == (
                format_id(self._ids["old"]),
                format_id(self._ids["new"]),
            )

    async def judge(self, ends: Ends) -> None:
        """All know one owner of each topic; nothing is read twice; and what was sealed is there, or gone."""
        self.doing = f"{self._service}: all know who owns, and read"
        owners = {topic.value: self._ids[name] for topic, (name, _, _) in ends.items()}
        for node in self.nodes.values():
            await until(partial(_knows, node, owners), "all know all owners")
            mine = sorted(topic for topic, owner in owners.items() if owner == node.routing_id)
            assert sorted(node.owned) == mine, node
        publisher = self.nodes["publisher"].spot()
        for topic, (_, _, is_kept) in ends.items():
            await self._subscriptions[topic].active()
            subscription = await publisher.subscribe(topic.value)
            await subscription.active()
            await publisher.publish(topic.value, b"last")
            assert await payloads(self._subscriptions[topic], 1) == [b"last"], topic
            kept = numbered([MESSAGES_COUNT - 1]) if is_kept else []
            assert await payloads(subscription, 1 + len(kept)) == [*kept, b"last"], topic

    def _record(self, topic: HandoverStep) -> str:
        return topic_name(self._service, topic.value)


def _knows(node: SpotNode, owners: Mapping[str, bytes]) -> bool:
    return dict(node.topics) == owners


def _nobody(event: str, entry: str = "", **found: Any) -> None:
    """What is held is seen in the records."""


async def play(address: str, victim: str, ends: Ends, *, is_cut: bool) -> None:
    """A process is stopped or cut off, until the others have come to an end without it."""
    async with TopicCast() as cast, AsyncExitStack() as stack:
        (bound,) = stack.enter_context(reserved_endpoints(1))
        store = await stack.enter_async_context(open_store(address))
        stage = Stage(stack, cast, store, f"spot-node.{victim}")
        async with within(WAIT_S_MAX, lambda: stage.doing):
            await stage.begin(address, bound, victim=victim)
            assert stage.victim is not None
            if is_cut:
                for cable in stage.cables:
                    cable.hold()
                await stage.victim.begin("open")
            else:
                stage.victim.freeze()
            stage.open()
            struck_s = asyncio.get_running_loop().time()
            await stage.ended(ends)
            await asyncio.sleep(struck_s + STOP_S - asyncio.get_running_loop().time())
            if is_cut:
                for cable in stage.cables:
                    cable.forward()
            else:
                stage.victim.thaw()
                await stage.victim.begin("open")
            while (await stage.victim.do("topics"))["owned"]:
                await asyncio.sleep(LOOK_S)
            await stage.ended(ends)
            await stage.judge(ends)


async def kill_store(served: StoreProcess) -> None:
    """It is killed, and starts again; all leases are longer than that."""
    address = f"etcd://{served.address}"
    async with TopicCast() as cast, AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(address))
        stage = Stage(stack, cast, store, "spot-node.store")
        async with within(WAIT_S_MAX, lambda: stage.doing):
            await stage.begin(address)
            served.kill()
            stage.open()
            await asyncio.sleep(DOWN_S)
            await asyncio.to_thread(served.start)
            await stage.ended(STORE_KILLED)
            await stage.judge(STORE_KILLED)


async def test_whoever_is_stopped_cut_off_or_killed_at_each_step_a_topic_has_one_owner_and_what_was_sealed(
    tmp_path: Path,
) -> None:
    with StoreProcess(tmp_path / "kept") as kept, StoreProcess(tmp_path / "killed") as killed:
        async with asyncio.TaskGroup() as runs:
            runs.create_task(play(f"etcd://{kept.address}", "old", OLD_STOPPED, is_cut=False))
            runs.create_task(play(f"etcd://{kept.address}", "new", NEW_CUT, is_cut=True))
            runs.create_task(kill_store(killed))
