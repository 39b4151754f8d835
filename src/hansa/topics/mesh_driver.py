"""What a node and its spots expect of a mesh, of either kind."""

from __future__ import annotations

from typing import Protocol

from hansa.endpoint import Endpoint
from hansa.presence.provider_info import ProviderInfo
from hansa.topics.fanout import Exchange
from hansa.topics.stats import MeshTally, TopicReport
from hansa.topics.wants import Subscriber
from hansa.transport.admission import Strikes


class MeshDriver(Protocol):
    """Everything but `send`, `survey`, `in_step`, `start` and `close` returns at once."""

    exchange: Exchange
    strikes: Strikes
    has_owners: bool
    """Otherwise subscriptions are active at once, and there is nothing to create."""

    @property
    def tally(self) -> MeshTally: ...

    async def start(self) -> Endpoint | None:
        """Bind; where, if there is something to bind."""

    async def close(self) -> None: ...

    # -- nodes that the discovery lists

    def list_node(self, node: ProviderInfo) -> None: ...

    def unlist_node(self, node: ProviderInfo) -> None: ...

    def part(self) -> None:
        """This node has unregistered: have no peers, soon, until `rejoin`."""

    def rejoin(self) -> None:
        """This node is registered: dial who is listed. Changes nothing unless it was apart."""

    async def in_step(self) -> None:
        """Wait until every listed node has told its topics, or was given up."""

    # -- what spots ask for; topics are frames

    def create(self, topic: bytes, spot: object, *, retain: bool, is_claimed: bool) -> None:
        """Raises TopicExists, BadArgument; UsageError where there are no owners."""

    def lose(self, topic: bytes, reason: str) -> None:
        """The claim of a topic is lost; does nothing where it is not owned."""

    def destroy(self, topic: bytes, spot: object) -> None:
        """Raises NotOwner; UsageError where there are no owners."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Raises BadArgument."""

    def unsubscribe(self, subscriber: Subscriber) -> None: ...

    def post(self, topic: str, payload: bytes) -> None:
        """Publish what has no outlet here. Raises NoOwner, Backlogged, BadArgument."""

    async def send(self, topic: str, payload: bytes) -> None:
        """As `post`, but waits for room. Cancelling it publishes nothing."""

    def flush(self) -> None:
        """Wake and write what the exchange says is due."""

    # -- looking

    @property
    def peers(self) -> tuple[bytes, ...]: ...

    @property
    def topics(self) -> dict[str, bytes]:
        """Every known topic and its owner."""

    @property
    def topics_count(self) -> int: ...

    def owner(self, topic: bytes) -> bytes | None:
        """Who owns a topic, as far as is known here."""

    @property
    def taken_over_count(self) -> int:
        """Connections that were replaced by another one of the same id."""

    @property
    def wanted(self) -> dict[str, int]:
        """Wanted topics, and how many local subscriptions match each."""

    def subscribers(self, topic: bytes) -> tuple[bytes, ...]: ...

    def subscribers_count(self, topic: bytes) -> int: ...

    async def survey(self, timeout: float) -> tuple[TopicReport, ...]: ...
