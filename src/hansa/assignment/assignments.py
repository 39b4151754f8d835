"""A group from outside: what there is to do, who has what, and how a person changes that.

`Assignments` has no place in the cluster and owns nothing: the command line and other programs use it. It
writes definitions, settings and resources, which the group's leader goes by, and offers, which begin a
hand-over. It must: change a definition only as it was read; keep each resource in one partition, whoever
assigns it at the same time; and name as owner whoever the entry names.

`AssignmentView` follows a group: what a follower of the leader knows, with the events of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from hansa.assignment.handoff import HandoffHead, Handoffs
from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.plan import Plan, Plans
from hansa.assignment.planner import Candidate, Sharing, share_out
from hansa.assignment.topology import (
    Assignment,
    PartitionAssigned,
    PartitionRevoked,
    PartitionUpdated,
    TopologyBook,
    TopologyEvent,
    candidate_of,
    handovers_of,
    standby_of,
)
from hansa.coordination.following import Following, Snapshot, changes, patiently
from hansa.coordination.handover import Handover
from hansa.coordination.member import Member, decoded_record
from hansa.coordination.placed import Placement
from hansa.coordination.placing import Placer
from hansa.errors import (
    AlreadyClosed,
    BadRecord,
    Conflict,
    NotThere,
    StoreCorrupt,
    TimedOut,
)
from hansa.keys import Keys, as_name
from hansa.limits import COMMIT_TRIES_MAX, EVENTS_COUNT_MAX, HANDOVER_S, STORE_TXN_COUNT_MAX
from hansa.runtime.mailboxes import EventFeeds, EventStream, Waiters
from hansa.runtime.tasks import Closing, TaskScope
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, KeyValue, Operation, Put
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

_BY_HAND: Final = "by hand"


class Assignments:
    """The partitions of one group, and who has them. Every call raises what the store raises."""

    def __init__(
        self,
        store: Store,
        group: str,
        *,
        cluster: str = "default",
        environment: Environment | None = None,
    ) -> None:
        self.store = store
        self.group = group
        self.cluster = cluster
        self.environment = environment if environment is not None else Environment()
        self._keys = Keys(cluster)
        self._handoffs = Handoffs(store, group, cluster=cluster, environment=self.environment)

    # -- what there is to do

    async def define(self, *partitions: Partition) -> None:
        """Define partitions, or define them anew: the leader has each of them owned.

        Not all at once if they are many: whoever is cut off in between calls it again.
        """
        puts = [Put(self._keys.partition(self.group, each.name), each.encode()) for each in partitions]
        await self._in_batches(puts)

    async def undefine(self, *names: str) -> None:
        """Have partitions be no more: their owners lose them. What they left stays until it is swept."""
        await self._in_batches([Delete(self._keys.partition(self.group, name)) for name in names])

    async def partitions(self) -> dict[str, Partition]:
        """What is defined, by name. A definition that cannot be read is left out, and logged."""
        found: dict[str, Partition] = {}
        book = TopologyBook(self.group)
        for item in (await self.store.scan(self._keys.partitions(self.group))).items:
            heard(book, found, self._keys, item, is_there=True)
        return found

    async def settings(self) -> GroupSettings:
        """How the work is shared out. Raises `BadRecord`."""
        item = await self.store.get(self._keys.group(self.group))
        return GroupSettings() if item is None else GroupSettings.decode(item.value)

    async def configure(self, **settings: Any) -> GroupSettings:
        """Change some settings (see `GroupSettings`); gives all. Raises `BadArgument`, `BadRecord`."""
        return await self._change_settings(lambda before: replace(before, **settings))

    async def drain(self, *nodes: str) -> None:
        """Have nodes give up all that others can have, and give them nothing more, until `undrain`."""
        await self._change_settings(lambda before: before.with_draining(before.draining | set(nodes)))

    async def undrain(self, *nodes: str) -> None:
        """Give nodes their share again."""
        await self._change_settings(lambda before: before.with_draining(before.draining - set(nodes)))

    async def pin(self, partition: str, node: str) -> None:
        """Have one node, and no other, have a partition; `""` ends that. Raises `NotThere`, `BadRecord`."""
        await self._change(partition, lambda before: replace(before, pinned=node))

    # -- who has what

    async def all(self) -> dict[str, Assignment]:
        """Who has which partition, by name, without what they left: `get` reads that."""
        book, candidates, definitions = await self.read()
        return {
            name: _standby(found, definitions.get(name), candidates)
            for name, found in sorted(book.assignments.items())
        }

    async def get(self, partition: str) -> Assignment | None:
        """Who has one partition, with the handoff that was saved last; None for one that is not defined.

        Raises `StoreCorrupt` when the handoff is damaged, `BadRecord`.
        """
        book, candidates, definitions = await self.read(partition)
        found = book.assignments.get(partition)
        if found is None:
            return None
        saved = await self._handoffs.load(partition)
        handoff = None if saved is None else saved.handoff
        return _standby(replace(found, handoff=handoff), definitions.get(partition), candidates)

    def view(self) -> AssignmentView:
        """Follow who has what: `async with assignments.view() as view`."""
        return AssignmentView(self)

    # -- plans and moves

    async def plan(self) -> Sharing:
        """What the leader would do now, and why; nothing is done. Raises `BadRecord`."""
        book, candidates, definitions = await self.read()
        settings = await self.settings()
        owners = {
            name: found.owner
            for name, found in book.assignments.items()
            if name in definitions and found.owner
        }
        draining = [
            replace(each, is_draining=each.is_draining or each.node in settings.draining)
            for each in candidates
        ]
        return share_out(draining, definitions.values(), owners, per_node_max=settings.per_node_max)

    async def last_plan(self) -> Plan | None:
        """The plan that the leader has decided on last, None before the first."""
        return await Plans(self.store, self.group, cluster=self.cluster).load()

    async def move(
        self, partition: str, to: str, *, timeout: float = HANDOVER_S, reason: str = ""
    ) -> Handover:
        """Ask the owner of a partition to hand it over to a node; gives the record of the offer.

        `Handovers.follow` tells how it goes on. The partition stays there until something asks for a new
        plan: `pin` it to have it stay for good. Raises `NoOwner`, `NoSuccessor`, `Conflict`, `BadArgument`.
        """
        placer = Placer(
            self.store,
            self._keys.assignments(self.group),
            kind=handovers_of(self.group),
            guard=None,
            node=_BY_HAND,
            cluster=self.cluster,
        )
        entry = self._keys.assignment(self.group, partition)
        return await placer.offer(entry, to, timeout=timeout, reason=reason or _BY_HAND)

    # -- single resources

    async def assign(self, resource: str, to: str = "", *, resource_group: str = "") -> Assignment:
        """Assign one resource to a partition, from now on, and gives who has that.

        Without `to` it goes where it is already, or else to the partition with the fewest resources for its
        weight, of those bound to the `resource_group`. Raises `NotThere` when there is no such partition,
        `Conflict` when it changes all the time, `BadArgument` when it is full.
        """
        key = self._keys.resource(self.group, resource)
        for _ in range(COMMIT_TRIES_MAX):
            item = await self.store.get(key)
            now = "" if item is None else item.value.decode()
            definitions = await self.partitions()
            if now in definitions and to in ("", now):
                return await self._assignment(now)
            target = definitions.get(to or _roomiest(definitions.values(), resource_group))
            if target is None:
                which = repr(to) if to else f"of resource group {resource_group!r}"
                raise NotThere(f"group {self.group!r} has no partition {which} for resource {resource!r}")
            compares = [Compare.revision(key, "=", 0 if item is None else item.mod_revision)]
            changed = {target.name: replace(target, resources=(*target.resources, resource))}
            if now in definitions:
                left = definitions[now]
                others = tuple(each for each in left.resources if each != resource)
                changed[now] = replace(left, resources=others)
            puts: list[Operation] = [Put(key, target.name.encode())]
            if await self._put_definitions(changed, definitions, compares, puts):
                return await self._assignment(target.name)
        raise Conflict(
            f"resource {resource!r} of {self.group!r} could not be assigned: all the time others do"
        )

    async def look_up(self, resource: str) -> Assignment | None:
        """Who has a resource, None if nobody was assigned it; also one that a definition names."""
        item = await self.store.get(self._keys.resource(self.group, resource))
        if item is not None:
            return await self.get(item.value.decode())
        for name, partition in (await self.partitions()).items():
            if resource in partition.resources:
                return await self.get(name)
        return None

    async def unassign(self, resource: str) -> bool:
        """Take a resource from its partition; says whether it had one. Raises `Conflict`."""
        key = self._keys.resource(self.group, resource)
        for _ in range(COMMIT_TRIES_MAX):
            item = await self.store.get(key)
            definitions = await self.partitions()
            changed = {
                name: replace(each, resources=tuple(one for one in each.resources if one != resource))
                for name, each in definitions.items()
                if resource in each.resources
            }
            if item is None and not changed:
                return False
            compares = [Compare.revision(key, "=", 0 if item is None else item.mod_revision)]
            if await self._put_definitions(changed, definitions, compares, [Delete(key)]):
                return True
        raise Conflict(f"resource {resource!r} of {self.group!r} could not be taken: it changes all the time")

    # -- small things

    async def read(self, partition: str = "") -> tuple[TopologyBook, list[Candidate], dict[str, Partition]]:
        """All that is known of the partitions, or of one of them, and of the workers; for views."""
        keys, book = self._keys, TopologyBook(self.group)
        definitions: dict[str, Partition] = {}
        for prefix in (keys.partitions(self.group), keys.handoffs(self.group), keys.assignments(self.group)):
            if partition:
                item = await self.store.get(prefix + as_name(partition, "a partition"))
                items: Sequence[KeyValue] = () if item is None else (item,)
            else:
                items = (await self.store.scan(prefix)).items
            for item in items:
                heard(book, definitions, keys, item, is_there=True)
        return book, await self._candidates(), definitions

    async def _candidates(self) -> list[Candidate]:
        found = []
        for item in (await self.store.scan(self._keys.nodes)).items:
            record = decoded_record(item)
            if record is None:
                continue
            member = Member(info=record.info, status=record.info.status, incarnation=record.incarnation)
            if (candidate := candidate_of(member, self.group)) is not None:
                found.append(candidate)
        return found

    async def _assignment(self, partition: str) -> Assignment:
        return await self.get(partition) or Assignment(group=self.group, partition=partition)

    async def _change(self, partition: str, change: Callable[[Partition], Partition]) -> None:
        key = self._keys.partition(self.group, partition)
        for _ in range(COMMIT_TRIES_MAX):
            item = await self.store.get(key)
            if item is None:
                raise NotThere(f"group {self.group!r} has no partition {partition!r}: define it first")
            after = change(Partition.decode(item.value))
            same = Compare.revision(key, "=", item.mod_revision)
            if (await self.store.commit([same], [Put(key, after.encode())])).is_success:
                return
        raise Conflict(f"partition {partition!r} of {self.group!r} is changed by others all the time")

    async def _change_settings(self, change: Callable[[GroupSettings], GroupSettings]) -> GroupSettings:
        key = self._keys.group(self.group)
        for _ in range(COMMIT_TRIES_MAX):
            item = await self.store.get(key)
            after = change(GroupSettings() if item is None else GroupSettings.decode(item.value))
            same = Compare.revision(key, "=", 0 if item is None else item.mod_revision)
            if (await self.store.commit([same], [Put(key, after.encode())])).is_success:
                return after
        raise Conflict(f"the settings of group {self.group!r} are changed by others all the time")

    async def _put_definitions(
        self,
        changed: Mapping[str, Partition],
        before: Mapping[str, Partition],
        compares: Sequence[Compare],
        then: Sequence[Operation],
    ) -> bool:
        keys = {name: self._keys.partition(self.group, name) for name in changed}
        same = [Compare.revision(keys[name], "=", before[name].revision) for name in changed]
        puts = [Put(keys[name], each.encode()) for name, each in changed.items()]
        return (await self.store.commit([*compares, *same], [*then, *puts])).is_success

    async def _in_batches(self, operations: Sequence[Operation]) -> None:
        for start in range(0, len(operations), STORE_TXN_COUNT_MAX):
            await self.store.commit([], operations[start : start + STORE_TXN_COUNT_MAX])


class AssignmentView:
    """Who has which partition of a group, followed; made by `Assignments.view`. Use it with `async with`.

    Entering reads all. A store that is away is waited for: the view stays as it was. What was missed is told
    as one difference. Entering raises `AlreadyClosed` when the store was closed.
    """

    def __init__(self, assignments: Assignments) -> None:
        self._outside = assignments
        self.group = assignments.group
        self._keys = Keys(assignments.cluster)
        self._book = TopologyBook(assignments.group)
        self._definitions: dict[str, Partition] = {}
        self._name = f"the view of group {assignments.group}"
        self._handoffs = Handoffs(assignments.store, assignments.group, cluster=assignments.cluster)
        self._feeds = EventFeeds[TopologyEvent](f"the events of {self._name}", count_max=EVENTS_COUNT_MAX)
        self._tasks = TaskScope(self._name, self._failed)
        self._closing = Closing()
        self._changed = Waiters()
        self._read_count = 0
        self._failure: BaseException | None = None
        self.last_applied_index = 0
        """The store's revision at which the last change was made that this view has applied."""

    @property
    def assignments(self) -> Mapping[str, Assignment]:
        """Who has which partition, by name, without what they left."""
        return self._book.assignments

    @property
    def counts(self) -> Mapping[str, int]:
        """How many partitions each node has."""
        return Counter(each.owner for each in self.assignments.values() if each.owner)

    def events(self) -> EventStream[TopologyEvent]:
        """What happens from this call on, with the handoffs where somebody was assigned a partition."""
        return self._feeds.open()

    async def until(
        self, condition: Callable[[Mapping[str, Assignment]], bool], *, timeout: float | None = None
    ) -> Mapping[str, Assignment]:
        """Wait until who has what fulfils a condition, and gives that. Raises `TimedOut`, `AlreadyClosed`."""
        try:
            async with asyncio.timeout(timeout):
                while not condition(self.assignments):
                    if self._failure is not None:
                        raise self._failure
                    await self._changed.wait()
        except TimeoutError:
            raise TimedOut(f"{self._name}: it has not come to that after {timeout} s") from None
        return self.assignments

    async def __aenter__(self) -> Self:
        keys, group = self._keys, self.group
        prefixes = (keys.partitions(group), keys.handoffs(group), keys.assignments(group))
        for prefix in prefixes:
            self._tasks.spawn(self._follow(prefix), f"follows {prefix!r}")
        try:
            while self._read_count < len(prefixes):
                if self._failure is not None:
                    raise self._failure
                await self._changed.wait()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Follow no more. Twice does no harm."""
        await self._closing.once(self._close)

    async def _close(self) -> None:
        await self._tasks.close()
        self._feeds.close()

    async def _follow(self, prefix: bytes) -> None:
        following = Following(self._outside.store, prefix, environment=self._outside.environment)
        try:
            async for news in following:
                puts, deletes = changes(news)
                events: list[TopologyEvent] = []
                for items, is_there in ((deletes, False), (puts, True)):
                    for item in items:
                        at = item if is_there else replace(item, mod_revision=news.revision)
                        events += heard(self._book, self._definitions, self._keys, at, is_there=is_there)
                self.last_applied_index = max(self.last_applied_index, news.revision)
                is_first = isinstance(news, Snapshot)
                self._read_count += is_first
                self._changed.wake_all()
                for event in () if is_first else events:
                    self._feeds.put(await self._with_handoff(event))
        finally:
            following.close()

    async def _with_handoff(self, event: TopologyEvent) -> TopologyEvent:
        """Also what was left, for an event that says who begins with it."""
        if not isinstance(event, PartitionAssigned | PartitionRevoked | PartitionUpdated):
            return event
        with suppress(StoreCorrupt, BadRecord, Conflict):
            saved = await patiently(
                lambda: self._handoffs.load(event.partition), self._outside.environment.chance
            )
            return replace(event, handoff=None if saved is None else saved.handoff)
        return event

    def _failed(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            if not isinstance(error, AlreadyClosed):
                logger.error("%s ended: %s", self._name, error, exc_info=error)
        self._changed.wake_all()


def heard(
    book: TopologyBook, definitions: dict[str, Partition], keys: Keys, item: KeyValue, *, is_there: bool
) -> list[TopologyEvent]:
    """Tell a book of one record; gives what that means. One that cannot be read is logged, and left out."""
    group, at = book.group, item.mod_revision
    try:
        if item.key.startswith(prefix := keys.partitions(group)):
            name = item.key.removeprefix(prefix).decode()
            definitions.pop(name, None)
            definition = Partition.decode(item.value, revision=at) if is_there else None
            if definition is not None:
                definitions[name] = definition
            return book.hear_definition(name, definition, revision=at)
        if item.key.startswith(prefix := keys.handoffs(group)):
            name = item.key.removeprefix(prefix).decode()
            return book.hear_handoff(name, HandoffHead.of(item) if is_there else None, revision=at)
        name = item.key.removeprefix(keys.assignments(group)).decode()
        return book.hear_entry(name, Placement.decode(item.value) if is_there else None, revision=at)
    except BadRecord as error:
        logger.warning("group %r: %r: %s", group, item.key, error)
        return []


def _standby(found: Assignment, definition: Partition | None, candidates: Iterable[Candidate]) -> Assignment:
    # A Kafka group's need no definition: all its workers could have them.
    definition = definition or Partition(name=found.partition)
    return replace(found, standby=standby_of(definition, found.owner, candidates))


def _roomiest(definitions: Iterable[Partition], resource_group: str) -> str:
    """The partition with the fewest resources for its weight; empty if there is none."""
    fitting = [each for each in definitions if each.resource_group == resource_group]
    fitting.sort(key=lambda each: (len(each.resources) / each.weight, each.name))
    return fitting[0].name if fitting else ""
