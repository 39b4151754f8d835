"""Topics that move from node to node while they are published to and read, and trouble at each step of it.

Three or four nodes share two topics, claimed in a store. All nodes publish to both topics, and listen; guests
subscribe and unsubscribe. The owner of a topic hands it over now and then, or somebody outside asks for it;
some nodes drain and leave, and others take their place. In some runs one node does not listen to the second
topic, a topic retains its last message, or its messages are too large for the record of the hand-over. Clocks
run up to a hundredth fast or slow.

Each seed has a strike of its own, at a step of a hand-over (`strikes`): 240 seeds in a row have all of them.
A victim that is cut off is cut off from the store only, or from all hosts. In some runs connections between
nodes break as well at that moment, and in some there is trouble at random from a little later on.

Always: at most one of the running nodes publishes a topic, and that node owns the topic in the store; while
the topic is sealed no node publishes it; the steps of a record follow each other, and what was sealed is what
the next owner is given. A number is given once and none is left out, over all owners of a counting; no
subscription is given a message twice, nor those of one publisher in another order; what it lost is reported
exactly. A publish that reached nobody is reported to a node, or an owner died at that time.

If no node dies, stands still for longer than its lease, or is cut off, no program can notice anything: every
message reaches every listener, no publish is refused, no subscription is suspended.

When the faults are over: every topic has one owner and moves once more, no hand-over is open, nothing is
held, and every node publishes a last message of each topic, which reaches every node. A topic that retains
its last message then moves with it; later subscribers are given that message.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from contextvars import Context
from dataclasses import replace
from itertools import combinations
from typing import ClassVar, Final

from hansa.chance import Chance
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.handovers import Handovers
from hansa.errors import Conflict, NoOwner, StoreUnavailable, TimedOut
from hansa.ids import format_id
from hansa.store.values import EventKind, WatchBatch
from hansa.testing.faults import FaultPlan, draw_plan, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.scenarios.moving_cast import NAMES, TIMEOUTS_S, TOPICS, MovingCast, MovingNode
from hansa.testing.scenarios.moving_living import MovingLife
from hansa.testing.scenarios.spot_posts import Fate, Post
from hansa.testing.scenarios.strikes import Harm, StruckStore, Victim, cells, draw_strike
from hansa.testing.simulation import Scenario
from hansa.testing.world import World
from hansa.topics import SubscriptionState
from hansa.transport.environment import Environment

__all__ = ["CELLS", "TopicMoves"]

ASKER: Final = "asker"
CELLS: Final = cells(Victim.OLD, Victim.NEW, Victim.ASKER, Victim.STORE)
# Shares no factor with their number: a few seeds in a row have something of all moments, harms and victims.
CELLS_STRIDE: Final = 77
# By then most topics have moved.
TROUBLE_FROM_S: Final = 2.0
# What came due while a node was paused runs when the node goes on, in the same instant.
MOMENT_S: Final = 0.001
# A node that stands still for so long may be given up by others.
LONG_S: Final = 3.0
# How long before its death an owner may have taken messages that it held for a hand-over.
UNDERWAY_S: Final = 12.0
# How long after its death a node may still be taken for the owner.
DETECTION_S: Final = 12.0


class TopicMoves(Scenario):
    """Topics that are handed over while they are used: nobody notices, or is told exactly what was lost."""

    name: ClassVar[str] = "topic_moves"
    chaos_s: ClassVar[float] = 5.0
    quiet_s: ClassVar[float] = 90.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("topic moves")
        self.cell = CELLS[world.seed * CELLS_STRIDE % len(CELLS)]
        self.store = StruckStore(world, witness=self._witness, hosts_of=self._hosts_of)
        self.cast = MovingCast(world, chance, self.store, chaos_s=self.chaos_s, look=self._look)
        self.cast.is_asked_only = self.cell.victim is Victim.ASKER
        self._is_asked = self.cell.victim is Victim.ASKER or chance.flip(0.3)
        self._breaks = chance.flip(0.15)
        """Whether connections between nodes break at steps of hand-overs."""
        self._misfortune = chance.fork("misfortune")
        self.was_smooth = False
        """Whether programs were to notice nothing at all."""

    @property
    def steps(self) -> Counter[HandoverStep]:
        """How often each step was taken."""
        steps: Counter[HandoverStep] = Counter()
        for truth in self.cast.truths.values():
            steps.update(truth.steps)
        return steps

    def begin(self) -> None:
        for name in self.cast.names:
            self.world.host(name, lambda host: MovingLife(host, self.cast).run()).start()
        self.world.host(ASKER, self._ask).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        strike = draw_strike(
            chance.fork("strike"),
            self.cell,
            self.store.name,
            skipped_max=2,
            skips_s=self.chaos_s / 2,
            may_be_wide=True,
        )
        if chance.flip(0.7):
            # Most strikes without a companion are no `trouble`: programs must not notice them.
            strike = replace(strike, companion=None)
        if strike.companion is not None or (
            strike.cell.victim in (Victim.OLD, Victim.NEW)
            and strike.cell.harm is not Harm.CUT
            and strike.lasting_s > LONG_S
        ):
            self.cast.trouble = "the strike"
        if chance.flip(0.75):
            return (strike,)
        self.cast.trouble = "trouble at random"
        # In most of that trouble no topic moves at all: the strike comes before it, at the first such step.
        strike = replace(strike, skips_s=0.0)
        when = {"begins_s": TROUBLE_FROM_S, "chaos_s": self.chaos_s}
        trouble = draw_store_plan(chance, self.cast.names, self.store.name, ttl_s=self.cast.ttl_s, **when)
        if chance.flip(0.5):
            pairs = list(combinations(self.cast.names, 2))
            trouble += draw_plan(chance.fork("mesh"), self.cast.names, pairs=pairs, **when)
        return tuple(sorted((strike, *trouble), key=lambda fault: fault.at_s))

    def calm(self) -> None:
        self.store.calm()
        self.cast.is_calm = True

    # The asker from outside.

    async def _ask(self, host: Host) -> None:
        """Look after the hand-overs of others, and ask for some."""
        chance = host.chance.fork("asker")
        async with self.store.link(host) as link:
            handovers = Handovers(link, name=ASKER, environment=Environment(chance=chance.fork("handovers")))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(handovers.look_after(), name="looks after hand-overs")
                while True:
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    if not self._is_asked or self.cast.is_calm or not self.cast.is_restful():
                        continue
                    topic = chance.choose(TOPICS)
                    owner = self.cast.owner(topic)
                    others = [one for one in self.cast.newest().values() if one.node.routing_id != owner]
                    target = chance.choose(others or [None])
                    try:
                        if target is not None:
                            await handovers.move(
                                "topic",
                                NAMES[topic],
                                format_id(target.node.routing_id),
                                timeout=chance.choose(TIMEOUTS_S),
                                reason="somebody wants it there",
                            )
                    except (Conflict, NoOwner, StoreUnavailable, TimedOut) as error:
                        host.record(f"asks in vain: {error.code}")

    # The targets of strikes and breaks.

    def _hosts_of(self, victim: Victim, record: Handover) -> Sequence[str]:
        match victim:
            case Victim.OLD:
                name = self.cast.host_of(record.source)
            case Victim.NEW:
                name = self.cast.host_of(record.target)
            case Victim.ASKER:
                name = record.asked_by
            case _:
                name = self.store.name
        return [name] if name in self.world.hosts else []

    def _break(self, record: Handover) -> None:
        """A connection of the old or the new owner to another node breaks, now or soon."""
        chance = self._misfortune
        first = self.cast.host_of(chance.choose((record.source, record.target)))
        second = chance.choose([name for name in self.cast.names if name != first])
        after_s = chance.choose((0.0, chance.uniform(0.0, 0.05)))
        if first:
            self.cast.disturb("a connection breaks")
            self.world.loop.call_later(after_s, self.world.network.reset, first, second, context=Context())

    # The judge, while the run goes on.

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        for topic, truth in self.cast.truths.items():
            beginnings_count = truth.beginnings_count
            truth.follow(batch, origin)
            if truth.beginnings_count > beginnings_count:
                self.cast.books.begin_anew(topic)
            for event in batch.events:
                key = event.item.key
                if key.startswith(truth.prefix) and event.kind is EventKind.DELETE and not origin:
                    self.cast.disturb(f"a lease has ended, and with it {key!r}")
                if key == truth.record_key and event.kind is EventKind.PUT and truth.record is not None:
                    if truth.record.step is HandoverStep.TAKEN and not self.cast.is_whole():
                        self.cast.disturb("not all nodes hear each other")
                    is_chaotic = not self.cast.is_calm
                    if self._breaks and is_chaotic and self._misfortune.flip(0.2):
                        self._break(truth.record)
            self._look(topic, f"revision {batch.revision}")

    def _look(self, topic: str, when: str) -> None:
        """Judge the owners at this instant; if one of them goes on after a pause just now, a moment later.

        Such a node learns of its loss at this very instant, and others may have their turn before it.
        """
        if not (problem := self._problem(topic)):
            return
        if any(one.life.resumed_s == self.world.loop.time() for one in self.cast.publishing(topic)):
            self.world.loop.call_later(MOMENT_S, self._look, topic, when, context=Context())
        else:
            self.world.fail("a topic has one owner", f"{topic}, after {when}: {problem}")

    def _problem(self, topic: str) -> str:
        owners = self.cast.publishing(topic)
        if len(owners) > 1:
            return f"{', '.join(map(str, owners))} own it"
        owner = self.cast.owner(topic)
        if owners and owners[0].node.routing_id != owner:
            return f"{owners[0]} owns it, and in the store {owner.hex() or 'nobody'}"
        return ""

    # The judge, at the end.

    def unsettled(self) -> str:
        nodes = self.cast.newest()
        if parting := [str(one) for one in nodes.values() if one.is_over]:
            return f"{parting} are about to leave"
        problem = self._unowned() or next(filter(None, map(self._restless, nodes.values())), "")
        if problem or self.cast.unmoved:
            return f"{sorted(self.cast.unmoved)} have not moved; {problem}"
        self.cast.round_called.set()
        if not all(one.has_finished for one in nodes.values()):
            return "the last messages are not published"
        for one in nodes.values():
            for topic, account in one.accounts.items():
                for post in self.cast.last_posts:
                    if post.topic == topic and post.fate is Fate.DONE and post not in account.given:
                        return f"{post} has not come to {account}"
        if self.cast.retaining is None:
            self.cast.retaining = self.cast.still_retained()
            self.cast.unmoved |= self.cast.retaining
            return f"{sorted(self.cast.unmoved)} have not moved with their last messages"
        self.cast.is_late = True
        for one in nodes.values():
            if self.cast.retaining - one.served:
                return f"nobody has given the latest of {sorted(self.cast.retaining - one.served)} to {one}"
        self._judge()
        return ""

    def _unowned(self) -> str:
        for topic, truth in self.cast.truths.items():
            owners = self.cast.publishing(topic)
            if len(owners) != 1:
                return f"{topic} is owned by {list(map(str, owners))}"
            if truth.record is not None and truth.record.is_open:
                return f"a hand-over is open: {truth.record}"
        counts = Counter(self.store.living_leases().values())
        surplus = {name: count for name, count in counts.items() if count > 1}
        return f"leases that nobody needs: {surplus}" if surplus else ""

    def _restless(self, one: MovingNode) -> str:
        """What a node still waits for; empty: nothing."""
        owners = {topic: self.cast.owner(topic) for topic in TOPICS}
        if one.node.topics != owners:
            return f"{one} knows {one.node.topics}, not {owners}"
        if len(one.node.peers) != len(self.cast.names) - 1:
            return f"{one} has {len(one.node.peers)} peers"
        for subscription in one.listener.subscriptions:
            if subscription.state is not SubscriptionState.ACTIVE:
                return f"{one} has {subscription.text} {subscription.state}"
        moves, wants = one.machine.moves, one.machine.wants
        waiting: dict[str, Collection[object]] = {
            "holds": moves.holds,
            "is switching": moves.switching,
            "forwards": moves.leaving,
            "expects": moves.arrivals,
            "adopts": moves.adoptions,
            "crosses": wants.crossings,
        }
        return "; ".join(f"{one} {what} {list(found)}" for what, found in waiting.items() if found)

    def _judge(self) -> None:
        for one in self.cast.nodes:
            self.cast.drain(one)
        self.cast.books.judge(self.cast.watched)
        lost = [post for post in self.cast.books.posts.lost(self.cast.watched) if not self._is_excused(post)]
        if len(lost) > self.cast.told_count:
            self.world.fail(
                "a publish that reached nobody is told",
                f"{self.cast.told_count} were told, and lost are {', '.join(map(str, lost))}",
            )
        self.was_smooth = not self.cast.trouble
        if self.cast.trouble:
            return
        missed_count = self.cast.books.missed_count()
        if self.cast.noticed or lost or missed_count or self.cast.books.holes_count():
            self.world.fail(
                "without trouble nobody notices a hand-over",
                f"{self.cast.noticed}, {missed_count} were missed, and lost are {', '.join(map(str, lost))}",
            )

    def _is_excused(self, post: Post) -> bool:
        """Whether its publisher ended too early to hear of it, or an owner that had it died."""
        for one in self.cast.nodes:
            if one.label == post.node and one.is_over:
                # The node held it when it ended.
                return True
            is_crashed = str(one.life) in self.world.crashed_lives
            if is_crashed and one.seen_s - UNDERWAY_S < post.settled_s < one.seen_s + DETECTION_S:
                return True
        return False
