"""Topics claimed in a store: only one of the nodes that ask there first may own a topic at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from hansa.coordination.claim import Line, TakenClaim, give_back_all
from hansa.coordination.session import SessionKeeper
from hansa.coordination.succession import Movable
from hansa.errors import AlreadyClosed, Fenced, TopicExists
from hansa.ids import format_id
from hansa.keys import Keys, topic_name
from hansa.limits import STORE_TIMEOUT_S
from hansa.runtime.tasks import TaskScope
from hansa.store.store import Store
from hansa.transport.environment import Environment


class TopicClaims:
    """The claims of one node, all on the sessions of one keeper: a given keeper, or the node's own.

    The node's own keeper opens its first session for the first claim.

    `on_lost` is called with a topic and the reason before any other node can claim the topic.
    """

    def __init__(
        self,
        store: Store,
        *,
        cluster: str,
        service: str,
        node: bytes,
        ttl_s: float,
        keeper: SessionKeeper | None,
        environment: Environment,
        on_lost: Callable[[str, str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Raises BadArgument."""
        self.service = service
        self._node = node
        self._name = f"topics of node {format_id(node)}"
        self._own_keeper = keeper is None
        self._has_keeper_begun = not self._own_keeper
        self._keeper = keeper or SessionKeeper(
            store,
            cluster=cluster,
            node=format_id(node),
            ttl=ttl_s,
            name=self._name,
            environment=environment,
        )
        self._on_lost = on_lost
        # By topic, while the node owns it.
        self._claims: dict[str, TakenClaim[Fenced]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskScope(self._name, on_failure)
        self._is_closed = False

    @property
    def taker(self) -> str:
        """The node's name in the store; without a name no topic can be handed over to it."""
        return self._keeper.node

    @property
    def store(self) -> Store:
        return self._keeper.store

    @property
    def keys(self) -> Keys:
        return self._keeper.keys

    async def claim(self, topic: str) -> TakenClaim[Fenced]:
        """Claim a topic for a spot that is about to create it; then call `keep` or `give_up_later`.

        Cancelling it claims nothing. Raises TopicExists; AlreadyClosed; StoreUnavailable and TimedOut when
        the store cannot be asked; Fenced, mostly as SessionLost, when the claim is lost at once.
        """
        while (leaving := self._leaving.get(topic)) is not None:
            await asyncio.wait([leaving])
        await self._begin()
        line = self._line(topic)
        claim = await line.try_acquire(timeout=STORE_TIMEOUT_S)
        if claim is None:
            standing = await line.standing()
            whose = f"node {format_id(standing[0].signed.body)}" if standing else "another node"
            raise TopicExists(f"topic {topic!r} is owned by {whose} already, as the store has it")
        return claim

    async def take_over(self, topic: str, timeout: float) -> TakenClaim[Fenced]:
        """Wait in line for a topic that is handed over to this node; then call `keep`.

        Cancelling it leaves the line. Raises TimedOut, AlreadyClosed, Fenced as `claim` does.
        """
        await self._begin()
        return await self._line(topic).acquire(timeout)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that this node owns."""
        return tuple(self._claims)

    def of(self, topic: str) -> TakenClaim[Fenced] | None:
        """The claim of a topic that this node owns."""
        return self._claims.get(topic)

    def forget(self, topic: str, claim: TakenClaim[Fenced]) -> None:
        """Drop the claim of a topic that was handed over: there is nothing left to give up."""
        if self._claims.get(topic) is claim:
            del self._claims[topic]

    async def _begin(self) -> None:
        if self._is_closed:
            raise AlreadyClosed(f"{self._name}: the node is closed")
        if not self._has_keeper_begun:
            self._has_keeper_begun = True
            await self._keeper.__aenter__()

    def _line(self, topic: str) -> Line[Fenced]:
        return Line(
            self._keeper,
            self._keeper.keys.topic(self.service, topic),
            what=f"topic {topic!r}",
            error=Fenced,
            body=self._node,
            # A loss must be known at once: the peers are asked before the topic is created.
            is_brief=False,
            movable=Movable(kind="topic", name=topic_name(self.service, topic), is_plain=False),
        )

    def keep(self, topic: str, claim: TakenClaim[Fenced]) -> None:
        """The topic was just created under this claim: from now on `on_lost` is called if it is lost."""
        self._claims[topic] = claim
        claim.loss.call_back(partial(self._lost, topic, claim))

    def give_up_later(self, topic: str, claim: TakenClaim[Fenced]) -> asyncio.Task[None]:
        """Let others claim the topic. If the store does not answer soon, that goes on in the background."""
        self._leaving[topic] = task = self._tasks.spawn(_leave(claim), f"gives up topic {topic}")
        task.add_done_callback(partial(self._left, topic))
        return task

    async def release(self, topic: str) -> None:
        """The topic is destroyed: let others claim it. If this is cancelled, it goes on in the background."""
        leaving = self.release_later(topic)
        if leaving is not None:
            await asyncio.wait([leaving])

    def release_later(self, topic: str) -> asyncio.Task[None] | None:
        """As `release`, but returns the task instead of waiting for it."""
        # A node that closes releases all claims at once, in `close`.
        claim = None if self._is_closed else self._claims.pop(topic, None)
        return None if claim is None else self.give_up_later(topic, claim)

    def shut(self) -> None:
        """Stop claiming. Claims that are released from now on are kept until `close`."""
        self._is_closed = True

    async def close(self) -> None:
        """Release all claims at once: with the lease, if the keeper is the node's own.

        If it is cancelled, such a lease ends by itself, when it was not renewed for its time.
        """
        self.shut()
        claims = list(self._claims.values())
        self._claims.clear()
        try:
            await self._tasks.close()
        finally:
            if self._own_keeper:
                await self._keeper.__aexit__(None, None, None)
            else:
                await give_back_all(claims)

    def _lost(self, topic: str, claim: TakenClaim[Fenced]) -> None:
        if self._claims.get(topic) is claim:
            del self._claims[topic]
            self._on_lost(topic, str(claim.loss.error))

    def _left(self, topic: str, leaving: asyncio.Task[None]) -> None:
        if self._leaving.get(topic) is leaving:
            del self._leaving[topic]


async def _leave(claim: TakenClaim[Fenced]) -> None:
    # If the store was closed, nobody renews the lease: the claim ends with it.
    with suppress(AlreadyClosed):
        await claim.release()
