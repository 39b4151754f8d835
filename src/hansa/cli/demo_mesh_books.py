"""The books of the demo's topics: what every reader was due, and what became of it.

A reader that was there before a stream began is due all of it, one that came later everything from the first
message it got. Each of these messages was delivered, or hansa told the reader that it was dropped (its own
queue was full) or missed (lost between nodes). Only a killed publisher leaves an open end: messages that it
counted, or that another reader got, and that were still on their way when it died. They are cut off. Whatever
is then left is missing, and should not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hansa.cli.demo_lines import NodeLine, ReaderLine


@dataclass(slots=True, kw_only=True)
class MeshBooks:
    """Sums over all readers that are alive."""

    published_count: int = 0
    """As far as anybody knows: a killed node may have had more to tell."""
    due_count: int = 0
    delivered_count: int = 0
    dropped_count: int = 0
    missed_count: int = 0
    cut_off_count: int = 0
    unordered_count: int = 0

    @property
    def missing_count(self) -> int:
        """Due, and neither delivered nor accounted for; less than 0 if more came than was due."""
        accounted_count = self.delivered_count + self.dropped_count + self.missed_count + self.cut_off_count
        return self.due_count - accounted_count

    @property
    def is_balanced(self) -> bool:
        return not self.missing_count and not self.unordered_count


def mesh_books(living: Sequence[NodeLine], past: Sequence[NodeLine]) -> MeshBooks:
    """The books by what everybody reported last."""
    books = MeshBooks()
    open_ends = _open_ends(living, past)
    closed = {stream: count for node in living for stream, count in node.published.items()}
    books.published_count = sum(closed.values()) + sum(open_ends.values())
    for node in living:
        for reader in node.readers.values():
            _enter(books, node, reader, closed, open_ends)
    return books


def _open_ends(living: Iterable[NodeLine], past: Iterable[NodeLine]) -> dict[str, int]:
    """How many messages the streams of killed nodes had, as far as anybody knows."""
    ends = {name: count for node in past for name, count in node.published.items()}
    for node in living:
        for name in ends:
            ends[name] = max(ends[name], _last(node, name))
    return ends


def _last(node: NodeLine, name: str) -> int:
    """The last message of a stream that came to a node: to any of its readers, one may have dropped it."""
    return max(
        (reader.streams[name].last for reader in node.readers.values() if name in reader.streams), default=0
    )


def _enter(
    books: MeshBooks, node: NodeLine, reader: ReaderLine, closed: dict[str, int], open_ends: dict[str, int]
) -> None:
    for name, count in (*closed.items(), *open_ends.items()):
        topic, source = name.rsplit(" ", 1)
        if not any(is_wanted(topic, text) for text in reader.wants):
            continue
        stream = reader.streams.get(name)
        was_there = node.life == 1 or source == node.source
        if stream is None and not was_there:
            continue
        first = 1 if stream is None or was_there else stream.first
        books.due_count += count - first + 1
        books.delivered_count += 0 if stream is None else stream.count
        if name in open_ends:
            books.cut_off_count += count - _last(node, name)
    books.dropped_count += reader.dropped_count
    books.missed_count += reader.missed_count
    books.unordered_count += reader.unordered_count


def is_wanted(topic: str, text: str) -> bool:
    """Whether a topic is what this name or pattern stands for."""
    return topic.startswith(text[:-1]) if text.endswith("*") else topic == text
