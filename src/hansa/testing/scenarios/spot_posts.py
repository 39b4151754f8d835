"""The books of published messages: the publisher, the owner that gave each out, and reported losses.

A post is opened before it is published, and settled when the call ends. Every receiver must see it whole, on
its topic, and under one number: an owner numbers a message once. A post whose call succeeded and that no
owner ever gave out is lost. Its publisher's node must have reported it, as refused or among those in doubt.
Only a node that crashed, or that stopped soon after, could not.

A tenure is one node's ownership of one topic, from `create_topic` on, known by the owner's id and its epoch.
A witness, which is a subscription at the owner's own node that never drops anything, sees everything that the
tenure gives out, from number 1 on and without a gap.

Nodes that do not hear each other may have tenures of one topic at the same time. The one with the higher id
loses when they meet, and from then on its witness sees what the winner gives out. So messages are allotted in
the order of ids: the lower id has the better right, and what a loser's witness saw of its own topic ends
where the numbers break off or the message belongs to another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum

from hansa.ids import format_id, precedence
from hansa.testing.world import World

# A node that stops has no time to hear of the fate of its last posts: a heartbeat timeout and a margin.
LAST_POSTS_S = 10.0


class Fate(Enum):
    """How a publish ended: not yet, successfully, with an error, or cancelled."""

    OPEN = "open"
    DONE = "done"
    REFUSED = "refused"
    GIVEN_UP = "given up"


# A publish that was cancelled, or raised an error, has published nothing.
NOT_PUBLISHED = (Fate.REFUSED, Fate.GIVEN_UP)


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """One message, from the call that publishes it."""

    number: int
    publisher: str
    """The publishing spot."""
    node: str
    """Its node."""
    topic: str
    size_bytes: int
    fate: Fate = Fate.OPEN
    settled_s: float = 0.0
    sequence: int = 0
    """The owner's number, as the first receiver saw it."""
    seen_by: str = ""
    tenure: Tenure | None = None
    """The tenure that gave it out, once that is resolved."""

    def __str__(self) -> str:
        return f"post {self.number} of {self.publisher} on {self.topic}"

    @property
    def payload(self) -> bytes:
        """The bytes on the wire; the filling proves that nothing was mixed up or cut."""
        return f"{self.number} {self.topic} ".encode() + bytes([self.number % 256]) * self.size_bytes


class Posts:
    """All posts of a run, and the nodes' reports about theirs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._posts: list[Post] = []
        self._refused: Counter[tuple[str, str]] = Counter()
        self._in_doubt: Counter[str] = Counter()
        self._ended_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._posts)

    def open(self, publisher: str, node: str, topic: str, *, size_bytes: int) -> Post:
        """A spot is about to publish."""
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
        """A receiver was given this message."""
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

    # Reports of nodes about their own posts.

    def report_refused(self, node: str, topic: str, count: int) -> None:
        """Exactly this many posts of the node on this topic reached nobody."""
        self._refused[node, topic] += count

    def report_in_doubt(self, node: str, count: int) -> None:
        """At most this many posts of the node may not have reached the owner."""
        self._in_doubt[node] += count

    def end_node(self, node: str) -> None:
        """The node has stopped: nothing more is heard from it."""
        self._ended_s.setdefault(node, self._world.elapsed_s())

    # Judgement, when everything has come to rest.

    def lost(self, watched: Container[str]) -> list[Post]:
        """Posts on watched topics that were published successfully and that no owner gave out."""
        return [
            post
            for post in self._posts
            if post.topic in watched and not post.seen_by and post.fate is Fate.DONE
        ]

    def judge(self, watched: Container[str], *, crashed: Container[str]) -> None:
        """Fail if a post on a watched topic is lost and its node did not report it, or reported too many."""
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


# ---- who gave it out ------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class Tenure:
    """One ownership of a topic."""

    topic: str
    owner: bytes
    epoch: int
    retain: bool
    node: str
    began_s: float
    is_demoted: bool = False
    """Whether another node with a lower id owned it too, and this one gave way."""
    sightings: list[tuple[int, Post, float]] = field(default_factory=list)
    """The witness's messages: number, message, when."""
    posts: list[Post] = field(default_factory=list)
    """The messages that it gave out: number 1 first. Known once it is resolved."""
    times: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.topic} of {self.node} ({format_id(self.owner)}, epoch {self.epoch})"

    def count_before(self, at_s: float) -> int:
        """How many messages the witness saw before this moment."""
        return bisect_left(self.times, at_s)

    def count_until(self, at_s: float) -> int:
        """The same, with this moment."""
        return bisect_right(self.times, at_s)


class Tenures:
    """All tenures of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tenures: dict[str, list[Tenure]] = {}

    def begin(self, topic: str, owner: bytes, epoch: int, *, retain: bool, node: str) -> Tenure:
        """A node has created the topic."""
        tenure = Tenure(
            topic=topic, owner=owner, epoch=epoch, retain=retain, node=node, began_s=self._world.elapsed_s()
        )
        former = self._tenures.setdefault(topic, [])
        for one in former:
            if (one.owner, one.epoch) == (owner, epoch):
                self._world.fail("an epoch is never used twice", f"{one}, then {tenure}")
        former.append(tenure)
        return tenure

    def find(self, topic: str, owner: bytes, epoch: int) -> Tenure | None:
        """The tenure of this owner and epoch."""
        for one in self._tenures.get(topic, ()):
            if (one.owner, one.epoch) == (owner, epoch):
                return one
        return None

    def saw(self, tenure: Tenure, sequence: int, post: Post) -> None:
        """The tenure's witness was given this message."""
        tenure.sightings.append((sequence, post, self._world.elapsed_s()))

    def resolve(self) -> None:
        """Allot every message to the tenure that gave it out. Once, when everything has come to rest."""
        for tenures in self._tenures.values():
            for tenure in sorted(tenures, key=lambda one: (precedence(one.owner), one.began_s)):
                self._resolve(tenure)

    def _resolve(self, tenure: Tenure) -> None:
        last: dict[str, int] = {}
        for sequence, post, at_s in tenure.sightings:
            if sequence != len(tenure.posts) + 1 or post.tenure is not None:
                if tenure.is_demoted:
                    # From here on it belongs to the winner.
                    return
                self._world.fail(
                    "an owner numbers its messages one by one",
                    f"{tenure}: {post} has number {sequence} after {len(tenure.posts)}"
                    + (f", and is of {post.tenure}" if post.tenure else ""),
                )
            if post.number < last.get(post.publisher, -1):
                self._world.fail(
                    "messages of one publisher keep their order",
                    f"{tenure} gave out {post} after number {last[post.publisher]}",
                )
            last[post.publisher] = post.number
            post.tenure = tenure
            tenure.posts.append(post)
            tenure.times.append(at_s)
