"""The books of what was published: who published what, whether it was ever seen, what was reported as lost.

A post is opened before it is published, and settled when the call ends. Every receiver must see it whole, on
its topic, and under one number: an owner numbers a message once. A post that was published for good and that
no owner ever gave out is lost. Its publisher's node must have reported it, as refused or among those in
doubt. Only a node that crashed, or that stopped soon after, could not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from hansa.testing.world import World

if TYPE_CHECKING:
    from hansa.testing.scenarios.spot_tenures import Tenure

__all__ = ["Fate", "Post", "Posts"]

# A node that stops has no time to hear what became of its last posts: a heartbeat timeout and a margin.
LAST_POSTS_S = 10.0


class Fate(Enum):
    """How a publish ended: not yet, well, with an error, or cancelled."""

    OPEN = "open"
    DONE = "done"
    REFUSED = "refused"
    GIVEN_UP = "given up"


# Whoever cancels a publish, or is told an error, has published nothing.
NOT_PUBLISHED = (Fate.REFUSED, Fate.GIVEN_UP)


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """One message, from the call that publishes it."""

    number: int
    publisher: str
    """The spot."""
    node: str
    """Its node."""
    topic: str
    size_bytes: int
    fate: Fate = Fate.OPEN
    settled_s: float = 0.0
    sequence: int = 0
    """The owner's number, as whoever saw it first saw it."""
    seen_by: str = ""
    tenure: Tenure | None = None
    """Who gave it out, once that is resolved."""

    def __str__(self) -> str:
        return f"post {self.number} of {self.publisher} on {self.topic}"

    @property
    def payload(self) -> bytes:
        """What goes over the wire; the filling proves that nothing was mixed up or cut."""
        return f"{self.number} {self.topic} ".encode() + bytes([self.number % 256]) * self.size_bytes


class Posts:
    """All posts of a run, and what nodes reported about theirs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._posts: list[Post] = []
        self._refused: Counter[tuple[str, str]] = Counter()
        self._in_doubt: Counter[str] = Counter()
        self._ended_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._posts)

    def open(self, publisher: str, node: str, topic: str, *, size_bytes: int) -> Post:
        """Somebody is about to publish."""
        post = Post(
            number=len(self._posts), publisher=publisher, node=node, topic=topic, size_bytes=size_bytes
        )
        self._posts.append(post)
        return post

    def settle(self, post: Post, fate: Fate) -> None:
        """The call has ended; the message may have arrived before that."""
        post.fate = fate
        post.settled_s = self._world.elapsed_s()
        if fate in NOT_PUBLISHED and post.seen_by:
            self._world.fail(
                "what was not published is not delivered", f"{post}, {fate.value}, was seen by {post.seen_by}"
            )

    def receive(self, receiver: str, topic: str, payload: bytes, sequence: int) -> Post:
        """Somebody was given this message."""
        number = payload.split(b" ", 1)[0]
        index = int(number) if number.isdigit() else -1
        if not 0 <= index < len(self._posts):
            self._world.fail("only what was published is delivered", f"{receiver} got {payload[:40]!r}")
        post = self._posts[index]
        if topic != post.topic:
            self._world.fail("a message keeps its topic", f"{post} came to {receiver} on {topic}")
        if payload != post.payload:
            self._world.fail("messages arrive whole and alone", f"{post} came to {receiver} changed")
        if post.fate in NOT_PUBLISHED:
            self._world.fail(
                "what was not published is not delivered", f"{post}, {post.fate.value}, came to {receiver}"
            )
        if sequence <= 0 or (post.seen_by and post.sequence != sequence):
            self._world.fail(
                "one message has one number",
                f"{post} came to {receiver} as {sequence}, and to {post.seen_by} as {post.sequence}",
            )
        post.sequence = sequence
        post.seen_by = post.seen_by or receiver
        return post

    # What nodes report of their own posts.

    def report_refused(self, node: str, topic: str, count: int) -> None:
        """Exactly so many posts of the node on this topic reached nobody."""
        self._refused[node, topic] += count

    def report_in_doubt(self, node: str, count: int) -> None:
        """At most so many posts of the node may not have reached the owner."""
        self._in_doubt[node] += count

    def end_node(self, node: str) -> None:
        """The node has stopped: nothing more is heard from it."""
        self._ended_s.setdefault(node, self._world.elapsed_s())

    # Judgement, when everything has come to rest.

    def lost(self, watched: Container[str]) -> list[Post]:
        """Posts on watched topics that were published for good and that nobody gave out."""
        return [
            post
            for post in self._posts
            if post.topic in watched and not post.seen_by and post.fate is Fate.DONE
        ]

    def judge(self, watched: Container[str], *, crashed: Container[str]) -> None:
        """Fail if a post on a watched topic is lost and its node did not say so, or said so of too many."""
        lost: dict[str, list[Post]] = {}
        unseen: Counter[tuple[str, str]] = Counter()
        for post in self.lost(watched):
            unseen[post.node, post.topic] += 1
            if not self._is_excused(post, crashed):
                lost.setdefault(post.node, []).append(post)
        for node, posts in lost.items():
            refused = sum(count for (who, _), count in self._refused.items() if who == node)
            if len(posts) > refused + self._in_doubt[node]:
                self._world.fail(
                    "a publish that reached nobody is reported",
                    f"{node}: {refused} refused, at most {self._in_doubt[node]} in doubt, and lost are "
                    + ", ".join(str(post) for post in posts[:20]),
                )
        for (node, topic), count in self._refused.items():
            if topic in watched and count > unseen[node, topic]:
                self._world.fail(
                    "what is reported as refused was given to nobody",
                    f"{node} was told of {count} on {topic}, and only {unseen[node, topic]} were unseen",
                )

    def _is_excused(self, post: Post, crashed: Container[str]) -> bool:
        if post.node in crashed:
            return True
        ended_s = self._ended_s.get(post.node)
        return ended_s is not None and post.settled_s > ended_s - LAST_POSTS_S
