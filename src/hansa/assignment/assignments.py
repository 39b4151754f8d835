"""A group seen from outside: its partitions, who has which, and how a person changes that.

`Assignments` is no member of the cluster and owns nothing: the command line and other programs use it. It
writes definitions, settings and resources, by which the group's leader goes, and offers, which begin a
hand-over. It must: change a definition only as it was read; keep each resource in one partition, even if
several programs assign it at the same time; and report as owner the node that the entry names.

`AssignmentView` follows a group: it keeps a copy of who has what up to date, and reports the events.
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
from hansa.assignment.planner import Candidate, Sharing, may_have, share_out
from hansa.assignment.topology import (
    Assignment,
    TopologyBook,
    TopologyEvent,
    candidate_of,
    handovers_of,
    standby_of,
)
from hansa.coordination.following import Following, Snapshot, changes, patiently
from hansa.coordination.handover import Handover
from hansa.coordination.handovers import Handovers
from hansa.coordination.member import Member, decoded_record
from hansa.coordination.placed import Placement
from hansa.coordination.placing import Placer
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadRecord,
    Conflict,
    NoOwner,
    NoSuccessor,
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
    """The partitions of one group, and their owners. Every call raises what the store raises."""

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

    # -- definitions and settings

    async def define(self, *partitions: Partition) -> None:
        """Define partitions, or define them anew: the leader finds an owner for each of them.

        Many partitions take several transactions: a caller that is cut off in between calls it again.
        """
        puts = [Put(self._keys.partition(self.group, each.name), each.encode()) for each in partitions]
        await self._in_batches(puts)

    async def undefine(self, *names: str) -> None:
        """Delete partitions: their owners lose them. Their handoffs stay until they are swept."""
        await self._in_batches([Delete(self._keys.partition(self.group, name)) for name in names])

    async def partitions(self) -> dict[str, Partition]:
        """All defined partitions, by name. A definition that cannot be read is logged and left out."""
        found: dict[str, Partition] = {}
        book = TopologyBook(self.group)
        for item in (await self.store.scan(self._keys.partitions(self.group))).items:
            heard(book, found, self._keys, item, is_there=True)
        return found

    async def settings(self) -> GroupSettings:
        """The group's settings. Raises `BadRecord`."""
        item = await self.store.get(self._keys.group(self.group))
        return GroupSettings() if item is None else GroupSettings.decode(item.value)

    async def configure(self, **settings: Any) -> GroupSettings:
        """Change some settings (see `GroupSettings`); returns all. Raises `BadArgument`, `BadRecord`."""
        return await self._change_settings(lambda before: replace(before, **settings))

    async def drain(self, *nodes: str) -> None:
        """Have nodes give up all that others may have, and give them nothing more, until `undrain`."""
        await self._change_settings(lambda before: before.with_draining(before.draining | set(nodes)))

    async def undrain(self, *nodes: str) -> None:
        """Give nodes their share again."""
        await self._change_settings(lambda before: before.with_draining(before.draining - set(nodes)))

    async def pin(self, partition: str, node: str) -> None:
        """Let one node, and no other, have a partition; `""` ends that. Raises `NotThere`, `BadRecord`."""
        await self._change(partition, lambda before: replace(before, pinned=node))

    # -- who has what

    async def workers(self) -> dict[str, Candidate]:
        """The workers of the group, by node, as the planner sees them. Raises `BadRecord`."""
        draining = (await self.settings()).draining
        return _candidates((await self.store.scan(self._keys.nodes)).items, self.group, draining)

    async def all(self) -> dict[str, Assignment]:
        """All partitions and their owners, by name, without handoffs (see `get`). Raises `BadRecord`."""
        book, definitions = await self._read()
        return _with_standby(book, definitions, await self.workers())

    async def get(self, partition: str) -> Assignment | None:
        """One partition and its owner, with the last saved handoff; None if it is not defined.

        Raises `StoreCorrupt` when the handoff is damaged, `BadRecord`.
        """
        book, definitions = await self._read(partition)
        found = _with_standby(book, definitions, await self.workers()).get(partition)
        if found is None:
            return None
        saved = await self._handoffs.load(partition)
        return replace(found, handoff=None if saved is None else saved.handoff)

    def view(self) -> AssignmentView:
        """A view that follows the group: `async with assignments.view() as view`."""
        return AssignmentView(self)

    # -- plans and moves

    async def plan(self) -> Sharing:
        """What the leader would do now, and why; this call changes nothing. Raises `BadRecord`."""
        book, definitions = await self._read()
        owners = {name: each.owner for name, each in book.assignments.items() if each.owner}
        return share_out(
            (await self.workers()).values(),
            definitions.values(),
            {name: owners[name] for name in definitions.keys() & owners.keys()},
            per_node_max=(await self.settings()).per_node_max,
        )

    async def last_plan(self) -> Plan | None:
        """The plan that the leader decided on last, None before the first."""
        return await Plans(self.store, self.group, cluster=self.cluster).load()

    async def move(
        self, partition: str, to: str, *, timeout: float = HANDOVER_S, reason: str = "", by: str = _BY_HAND
    ) -> Handover:
        """Ask the owner of a partition to hand it over to a worker, and wait; returns the record.

        The record's step is then done or withdrawn. `by` says who asks, for the record. The partition stays
        with the worker until something calls for a new plan: `pin` it to keep it there for good. Raises
        `NotThere`, `NoOwner`, `NoSuccessor` for a worker that is not there or may not have it, `Conflict`,
        `BadArgument`, and as `Handovers.ended`. Cancelling it takes the offer back, unless the partition is
        on its way already.
        """
        await self._check_move(partition, to)
        placer = Placer(
            self.store,
            self._keys.assignments(self.group),
            kind=handovers_of(self.group),
            guard=None,
            node=by,
            cluster=self.cluster,
        )
        entry = self._keys.assignment(self.group, partition)
        try:
            offer = await placer.offer(entry, to, timeout=timeout, reason=reason or _BY_HAND)
        except Conflict as error:
            what = f"partition {partition!r} of {self.group!r}"
            raise Conflict(f"{what} is on its way already, or was changed meanwhile: {error}") from error
        handovers = Handovers(self.store, cluster=self.cluster, name=by, environment=self.environment)
        return await handovers.ended(offer)

    async def _check_move(self, partition: str, to: str) -> None:
        """Raise what can be said before asking, in the words of a group."""
        what = f"partition {partition!r} of {self.group!r}"
        book, definitions = await self._read(partition)
        workers = await self.workers()
        found, definition = book.assignments.get(partition), definitions.get(partition)
        if found is not None and found.generation:
            raise BadArgument(f"{what} cannot be moved by hand: the broker of its Kafka group shares it out")
        if found is None or definition is None:
            raise NotThere(f"{what} is not defined")
        if not found.owner:
            raise NoOwner(f"nobody has {what} now{f': {found.reason}' if found.reason else ''}")
        stays = f"{what} stays at {found.owner!r}"
        worker = workers.get(to)
        if found.owner == to:
            raise NoSuccessor(f"{what} is at {to!r} already")
        if worker is not None and not may_have(worker, definition):
            raise NoSuccessor(f"{stays}: {to!r} may not have it, by its role, its resource group or its pin")
        if worker is None or worker.is_draining:
            why = "does not work for the group" if worker is None else "is draining"
            others = ", ".join(standby_of(definition, found.owner, workers.values())) or "nobody"
            raise NoSuccessor(f"{stays}: {to!r} {why}; these could have it: {others}")

    # -- single resources

    async def assign(self, resource: str, to: str = "", *, resource_group: str = "") -> Assignment:
        """Assign one resource to a partition, from now on; returns that partition with its owner.

        Without `to` it stays where it is, or else goes to the partition with the fewest resources for its
        weight, of those bound to the `resource_group`. Raises `NotThere` when there is no such partition,
        `Conflict` when others change it all the time, `BadArgument` when the partition is full.
        """
        key = self._keys.resource(self.group, resource)
        for _ in range(COMMIT_TRIES_MAX):
            item = await self.store.get(key)
            definitions = await self.partitions()
            having = _having(definitions, resource)
            written = "" if item is None else item.value.decode()
            if having and to in ("", *having) and [written] == having:
                return await self._assignment(written)
            name = to or (having[0] if having else _roomiest(definitions.values(), resource_group))
            target = definitions.get(name)
            if target is None:
                which = repr(to) if to else f"of resource group {resource_group!r}"
                raise NotThere(f"group {self.group!r} has no partition {which} for resource {resource!r}")
            compares = [Compare.revision(key, "=", 0 if item is None else item.mod_revision)]
            changed = _without(definitions, resource)
            changed[name] = replace(target, resources=(*target.resources, resource))
            puts: list[Operation] = [Put(key, name.encode())]
            if await self._put_definitions(changed, definitions, compares, puts):
                return await self._assignment(name)
        raise Conflict(
            f"resource {resource!r} of {self.group!r} could not be assigned: all the time others do"
        )

    async def look_up(self, resource: str) -> Assignment | None:
        """The partition that has a resource, with its owner; None if no partition has it. Raises as `get`."""
        item = await self.store.get(self._keys.resource(self.group, resource))
        if item is not None:
            # Looking at one partition instead of all; its definition may have been overwritten since.
            found = await self.get(item.value.decode())
            if found is not None and resource in found.resources:
                return found
        for name in _having(await self.partitions(), resource):
            return await self.get(name)
        return None

    async def unassign(self, resource: str) -> bool:
        """Take a resource from its partition; returns whether it had one. Raises `Conflict`."""
        key = self._keys.resource(self.group, resource)
        for _ in range(COMMIT_TRIES_MAX):
            item = await self.store.get(key)
            definitions = await self.partitions()
            changed = _without(definitions, resource)
            if item is None and not changed:
                return False
            compares = [Compare.revision(key, "=", 0 if item is None else item.mod_revision)]
            if await self._put_definitions(changed, definitions, compares, [Delete(key)]):
                return bool(changed)
        raise Conflict(f"resource {resource!r} of {self.group!r} could not be taken: it changes all the time")

    # -- small things

    async def _read(self, partition: str = "") -> tuple[TopologyBook, dict[str, Partition]]:
        """All that the store says of the partitions, or of one of them."""
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
        return book, definitions

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


async def all_groups(store: Store, *, cluster: str = "default") -> dict[str, int]:
    """The groups of a cluster that have partitions or settings, by name: how many partitions are defined."""
    keys = Keys(cluster)
    found = Counter[str]()
    for prefix in (keys.all_partitions, keys.groups):
        for item in (await store.scan(prefix, keys_only=True)).items:
            group, slash, _ = item.key.removeprefix(prefix).decode().partition("/")
            found[group] += bool(slash)
    return dict(sorted(found.items()))


class AssignmentView:
    """A view of a group: which node has which partition, kept up to date. Use it with `async with`.

    Entering reads everything. While the store cannot be reached, the view stays as it was; what it missed
    comes as one difference. Entering raises `AlreadyClosed` when the store was closed.
    """

    def __init__(self, assignments: Assignments) -> None:
        self._outside = assignments
        self.group = assignments.group
        self._keys = Keys(assignments.cluster)
        self._book = TopologyBook(assignments.group)
        self._definitions: dict[str, Partition] = {}
        self._records: dict[bytes, KeyValue] = {}
        self._draining: frozenset[str] = frozenset()
        self._workers: Mapping[str, Candidate] | None = None
        self._name = f"the view of group {assignments.group}"
        self._handoffs = Handoffs(assignments.store, assignments.group, cluster=assignments.cluster)
        self._feeds = EventFeeds[TopologyEvent](f"the events of {self._name}", count_max=EVENTS_COUNT_MAX)
        self._tasks = TaskScope(self._name, self._failed)
        self._closing = Closing()
        self._changed = Waiters()
        self._read_count = 0
        self._failure: BaseException | None = None
        self._applied_index = 0

    @property
    def assignments(self) -> Mapping[str, Assignment]:
        """All partitions and their owners, by name, without handoffs, and without `standby`."""
        return self._book.assignments

    @property
    def last_applied_index(self) -> int:
        """The store's revision of the last change that this view has applied."""
        return self._applied_index

    @property
    def workers(self) -> Mapping[str, Candidate]:
        """The workers of the group, by node, as the planner sees them."""
        if self._workers is None:
            self._workers = _candidates(self._records.values(), self.group, self._draining)
        return self._workers

    def all(self) -> dict[str, Assignment]:
        """All partitions and their owners, by name, with `standby`; without handoffs."""
        return _with_standby(self._book, self._definitions, self.workers)

    def of(self, node: str) -> dict[str, Assignment]:
        """The partitions of one node, as in `all`; if there are very many, that is much less work."""
        having = {name: one for name, one in self.assignments.items() if one.owner == node}
        return {name: _backed(one, self._definitions, self.workers) for name, one in sorted(having.items())}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many partitions each node has."""
        return Counter(each.owner for each in self.assignments.values() if each.owner)

    def events(self) -> EventStream[TopologyEvent]:
        """What happens from this call on; each event has the handoff that was saved last."""
        return self._feeds.open()

    async def until(
        self, condition: Callable[[Mapping[str, Assignment]], bool], *, timeout: float | None = None
    ) -> Mapping[str, Assignment]:
        """Wait until the assignments fulfil a condition; returns them. Raises `TimedOut`, `AlreadyClosed`."""
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
        group, keys = self.group, self._keys
        followed: Mapping[bytes, Callable[[KeyValue, bool], list[TopologyEvent]]] = {
            keys.partitions(group): self._hear,
            keys.handoffs(group): self._hear,
            keys.assignments(group): self._hear,
            keys.nodes: self._hear_node,
            keys.group(group): self._hear_settings,
        }
        for key, hear in followed.items():
            self._tasks.spawn(self._follow(key, hear), f"follows {key!r}")
        try:
            while self._read_count < len(followed):
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
        """Stop following. Closing twice does no harm."""
        await self._closing.once(self._close)

    async def _close(self) -> None:
        await self._tasks.close()
        self._feeds.close()

    async def _follow(self, key: bytes, hear: Callable[[KeyValue, bool], list[TopologyEvent]]) -> None:
        environment = self._outside.environment
        # Only prefixes end with a slash.
        exact = not key.endswith(b"/")
        following = Following(self._outside.store, key, exact=exact, environment=environment)
        try:
            async for news in following:
                puts, deletes = changes(news)
                events: list[TopologyEvent] = []
                for item in deletes:
                    events += hear(replace(item, mod_revision=news.revision), False)
                for item in puts:
                    events += hear(item, True)
                is_first = isinstance(news, Snapshot)
                self._read_count += is_first
                self._changed.wake_all()
                for event in () if is_first else events:
                    self._feeds.put(await self._with_handoff(event))
        finally:
            following.close()

    def _hear(self, item: KeyValue, is_there: bool) -> list[TopologyEvent]:
        self._applied_index = max(self._applied_index, item.mod_revision)
        return heard(self._book, self._definitions, self._keys, item, is_there=is_there)

    def _hear_node(self, item: KeyValue, is_there: bool) -> list[TopologyEvent]:
        if is_there:
            self._records[item.key] = item
        else:
            self._records.pop(item.key, None)
        self._workers = None
        return []

    def _hear_settings(self, item: KeyValue, is_there: bool) -> list[TopologyEvent]:
        try:
            settings = GroupSettings.decode(item.value) if is_there else GroupSettings()
        except BadRecord as error:
            logger.warning("%s: %s", self._name, error)
        else:
            self._draining = settings.draining
            self._workers = None
        return []

    async def _with_handoff(self, event: TopologyEvent) -> TopologyEvent:
        """The event with the last saved handoff: where a new owner begins, or what an old one left."""
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
    """Pass one record to a book; returns its events. A record that cannot be read is logged and left out."""
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


def _with_standby(
    book: TopologyBook, definitions: Mapping[str, Partition], workers: Mapping[str, Candidate]
) -> dict[str, Assignment]:
    """The assignments in a book, with the standby of each, in the order of their names."""
    return {name: _backed(one, definitions, workers) for name, one in sorted(book.assignments.items())}


def _backed(
    one: Assignment, definitions: Mapping[str, Partition], workers: Mapping[str, Candidate]
) -> Assignment:
    """The assignment with its standby."""
    # Partitions of a Kafka group need no definition: all its workers could have them.
    definition = definitions.get(one.partition) or Partition(name=one.partition)
    return replace(one, standby=standby_of(definition, one.owner, workers.values()))


def _candidates(records: Iterable[KeyValue], group: str, draining: frozenset[str]) -> dict[str, Candidate]:
    """The members with these records that work for a group, by node, as the planner sees them."""
    found = {}
    for item in records:
        record = decoded_record(item)
        if record is None:
            continue
        member = Member(info=record.info, status=record.info.status, incarnation=record.incarnation)
        if (candidate := candidate_of(member, group, draining=draining)) is not None:
            found[candidate.node] = candidate
    return dict(sorted(found.items()))


def _having(definitions: Mapping[str, Partition], resource: str) -> list[str]:
    """The partitions that have a resource: one, unless somebody wrote definitions that say otherwise."""
    return sorted(name for name, each in definitions.items() if resource in each.resources)


def _without(definitions: Mapping[str, Partition], resource: str) -> dict[str, Partition]:
    """The partitions that have a resource, as they are without it."""
    return {
        name: replace(
            definitions[name], resources=tuple(one for one in definitions[name].resources if one != resource)
        )
        for name in _having(definitions, resource)
    }


def _roomiest(definitions: Iterable[Partition], resource_group: str) -> str:
    """The partition with the fewest resources for its weight; empty if there is none."""
    fitting = [each for each in definitions if each.resource_group == resource_group]
    fitting.sort(key=lambda each: (len(each.resources) / each.weight, each.name))
    return fitting[0].name if fitting else ""
