"""What `hansa publish` is asked to do, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hansa.cli.log_lines import visible
from hansa.errors import BadArgument, HansaError, NoOwner, TopicExists
from hansa.messaging.spot.names import check_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for."""

    topic: str
    payload: str = "-"
    create: bool = False
    retain: bool = False
    wait: int | None = None
    lines: bool = False
    count: int | None = None
    hold: bool = False
    store: str | None = None
    cluster: str = "default"
    has_owners: bool = True

    @property
    def stays(self) -> bool:
        """The owner lives on until somebody ends it."""
        return self.create and (self.lines or self.hold)

    @property
    def awaits_subscribers(self) -> bool:
        """Whoever sends to the subscribers itself can wait for them: an owner, or all where none owns."""
        return self.create or not self.has_owners

    def check(self) -> None:
        """Raises BadArgument for a topic that cannot be and for options that do not go together."""
        check_topic(self.topic)
        of_an_owner = {"retain": self.retain, "hold": self.hold, "store": self.store is not None}
        if not self.has_owners:
            for name, is_given in {"create": self.create, **of_an_owner}.items():
                if is_given:
                    raise BadArgument(f"--{name} is up to an owner, and topics of --mesh pubsub have none")
        elif not self.create:
            for name, is_given in {**of_an_owner, "wait": self.wait is not None}.items():
                if is_given:
                    raise BadArgument(f"--{name} is up to the owner of the topic: give --create as well")
        if self.lines and self.payload != "-":
            raise BadArgument("--lines publishes standard input: leave out the payload, or pipe it in")
        if self.lines and self.count is not None:
            raise BadArgument("--count repeats one message, and --lines publishes each line once")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What became of it, as far as it is known."""

    topic: str
    published_count: int = 0
    is_complete: bool = False
    """All of it was published, and the owner has taken it."""
    nodes_count: int | None = None
    """How many nodes had subscribed at the end; only the owner knows."""
    dropped_count: int = 0
    """How many of the messages, counted for each node, did not fit on their way to a slow one."""
    refused_count: int = 0
    in_doubt_count: int = 0

    @property
    def is_well(self) -> bool:
        return self.is_complete and not self.refused_count and not self.in_doubt_count

    def explained(self, error: HansaError, order: Order) -> HansaError:
        """The error with what to do about it, and how far it came before."""
        before = f" any more, after {self.published_count:,} published" if self.published_count else ""
        if isinstance(error, NoOwner) and order.create:
            return NoOwner(f"{self.topic!r} was lost, and nobody owns it{before}")
        if isinstance(error, NoOwner):
            return NoOwner(
                f"nobody owns {self.topic!r}{before}. Start its owner, or give --create: then this command "
                "owns it, for as long as it runs"
            )
        if isinstance(error, TopicExists):
            return TopicExists(f"{error}. Leave out --create to publish through its owner")
        return error

    def sentence(self) -> str:
        """For people."""
        words = [f"{self.published_count:,} published to {visible(self.topic)}"]
        if self.nodes_count is not None:
            words.append(f"{self.nodes_count:,} node{'' if self.nodes_count == 1 else 's'} subscribed")
        if self.dropped_count:
            words.append(f"{self.dropped_count:,} dropped for nodes that were too slow")
        if self.refused_count:
            words.append(f"{self.refused_count:,} refused, because the owner had left the topic")
        if self.in_doubt_count:
            words.append(
                f"at most {self.in_doubt_count:,} lost, because the connection to the owner broke under them"
            )
        return ", ".join(words)

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return {
            "topic": self.topic,
            "published_count": self.published_count,
            "nodes_count": self.nodes_count,
            "dropped_count": self.dropped_count,
            "refused_count": self.refused_count,
            "in_doubt_count": self.in_doubt_count,
        }
