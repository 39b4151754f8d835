"""Who joined and who left, for whoever places work on nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

from hansa.chance import Chance
from hansa.clock import Clock
from hansa.coordination.following import Changed, Snapshot
from hansa.coordination.keys import Keys
from hansa.coordination.member_events import MemberDown, MemberEvent, MemberJoined, MemberLeft
from hansa.coordination.node_info import NodeInfo
from hansa.coordination.over_following import Following
from hansa.coordination.roster import RosterBook
from hansa.store.store import Store
from hansa.store.values import KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined:
    """A node registered."""

    node: NodeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft:
    """A node's lease ended, or it was deregistered, or a newer process took its id."""

    node: NodeInfo
    reason: str


NodeEvent: TypeAlias = NodeJoined | NodeLeft


class MembershipWatcher:
    """Tells of nodes that join and leave a cluster."""

    def __init__(self, store: Store, *, cluster: str = "default", chance: Chance | None = None) -> None:
        self._store = store
        self._keys = Keys(cluster)
        self._chance = chance

    def watch(self) -> NodeEvents:
        """From now on; those that are there already are told first, as joined."""
        return NodeEvents(
            Following(self._store, self._keys.nodes, chance=self._chance), self._keys, self._store
        )


class NodeEvents:
    """An async iterator of `NodeJoined` and `NodeLeft`. Made by `MembershipWatcher.watch`, for one reader.

    After a lost watch or a compaction it reads all nodes and tells what was missed, nothing twice. A node
    that came and went meanwhile is not told. A step raises `AlreadyClosed` when the store was closed, and
    ends after `close`. Cancelling a step takes nothing out.
    """

    def __init__(self, following: Following, keys: Keys, store: Store) -> None:
        self._following = following
        self._keys = keys
        self._clock = store.clock
        self._book = RosterBook()
        self._waiting: deque[NodeEvent] = deque()
        self._joined: set[str] = set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> NodeEvent:
        while not self._waiting:
            news = await anext(self._following)
            for event in record_events(self._book, news, self._keys.nodes, self._clock):
                self._take(event)
        return self._waiting.popleft()

    def close(self) -> None:
        """Watch no more."""
        self._following.close()

    def _take(self, event: MemberEvent) -> None:
        node = event.member.info
        if isinstance(event, MemberJoined):
            self._joined.add(node.id)
            self._waiting.append(NodeJoined(node=node))
        # One that was about to go when the watch began was never here.
        elif isinstance(event, MemberDown | MemberLeft) and node.id in self._joined:
            self._joined.remove(node.id)
            self._waiting.append(NodeLeft(node=node, reason=event.reason))


def record_events(
    book: RosterBook, news: Snapshot | Changed, prefix: bytes, clock: Clock
) -> list[MemberEvent]:
    """What news of the nodes' records mean to the roster."""
    puts, deletes = changes(news)
    return book.change_records(
        by_id(puts, prefix),
        [name for name, _ in by_id(deletes, prefix)],
        revision=news.revision,
        is_after_gap=isinstance(news, Changed) and news.is_after_gap,
        now=clock.monotonic(),
        wall=clock.wall(),
    )


def changes(news: Snapshot | Changed) -> tuple[tuple[KeyValue, ...], tuple[KeyValue, ...]]:
    """What was put, and what was deleted before that."""
    if isinstance(news, Snapshot):
        return tuple(news.items.values()), ()
    return news.puts, news.deletes


def by_id(items: Iterable[KeyValue], prefix: bytes) -> list[tuple[str, KeyValue]]:
    """Each with the name behind the prefix. What is no text there is nobody's name."""
    return [(item.key[len(prefix) :].decode("utf-8", "replace"), item) for item in items]
