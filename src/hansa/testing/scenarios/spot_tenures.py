"""The books of ownership: which node gave out which messages of a topic, under which numbers.

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
from dataclasses import dataclass, field

from hansa.ids import format_id, precedence
from hansa.testing.scenarios.spot_posts import Post
from hansa.testing.world import World

__all__ = ["Tenure", "Tenures"]


@dataclass(slots=True, kw_only=True, eq=False)
class Tenure:
    """One ownership."""

    topic: str
    owner: bytes
    epoch: int
    retain: bool
    node: str
    began_s: float
    is_demoted: bool = False
    """Somebody with a lower id owned it too, and this one gave way."""
    sightings: list[tuple[int, Post, float]] = field(default_factory=list)
    """What the witness saw: number, message, when."""
    posts: list[Post] = field(default_factory=list)
    """What it gave out: number 1 first. Known once it is resolved."""
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
            topic=topic,
            owner=owner,
            epoch=epoch,
            retain=retain,
            node=node,
            began_s=self._world.elapsed_s(),
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
                    # From here on it is the winner's.
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
