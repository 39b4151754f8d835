"""Callers that stand still while replies come: each of their requests, with or without a deadline, ends once.

The callers live in threads of their own, each with its own event loop, which it blocks as a program does that
computes or is stopped. Their replies are far more than the buffers between them and the provider take.
"""

import asyncio
import time
from collections import Counter

import pytest

from hansa import Discovery, Gateway, Provider, Registry, Request
from hansa.services.gateway import Completion
from hansa.services.provider import handlers
from hansa.transport import Environment, SocketOptions

REQUESTS_COUNT = 250
REPLY = bytes(100_000)
# Longer than the provider waits for a caller that does not read.
REPLY_S_MAX, STALL_S = 0.3, 1.0
WITHIN_S = 30.0


def stand_still(seconds: float) -> None:
    time.sleep(seconds)


class Caller:
    """One program that calls, stands still, and looks what became of its calls."""

    def __init__(self, pub: str) -> None:
        self._pub = pub
        self.opened: list[int] = []
        self.outcomes: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()

    def run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        discovery = Discovery([self._pub])
        discovery.subscribe("big")
        async with discovery, Gateway(discovery) as gateway, asyncio.timeout(WITHIN_S):
            await discovery.wait_available("big")
            await gateway.wait_connected("big")
            for number in range(REQUESTS_COUNT):
                timeout = None if number % 5 else 20.0
                self.opened.append(gateway.submit("big", b"?", self._ended, timeout=timeout))
            # All are on their way, and some replies are here.
            while not self.kinds:
                await asyncio.sleep(0.001)
            stand_still(STALL_S)
            while gateway.stats.in_flight_count:
                await asyncio.sleep(0.01)
            stats = gateway.stats
            assert stats.requests_count == stats.replied_count + sum(stats.failed.values()) == REQUESTS_COUNT

    def _ended(self, completion: Completion) -> None:
        self.outcomes[completion.request_id] += 1
        self.kinds["reply" if completion.error is None else completion.error.code] += 1


@pytest.mark.spec("DIS-24")
@pytest.mark.spec("DIS-30")
async def test_a_caller_that_stood_still_has_one_outcome_for_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "REPLY_S_MAX", REPLY_S_MAX)
    async with (
        Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as registry,
        Provider(
            "tcp://127.0.0.1:0",
            [str(registry.router)],
            environment=Environment(options=SocketOptions(outgoing_bytes_max=1_000_000)),
        ) as provider,
    ):

        @provider.handler()
        async def answer(request: Request) -> bytes:
            return REPLY

        await provider.register("big")
        callers = [Caller(str(registry.pub)) for _ in range(2)]
        await asyncio.gather(*(asyncio.to_thread(caller.run) for caller in callers))
    for caller in callers:
        assert caller.outcomes == Counter(caller.opened)
        # Some came before it stood still; what could not be delivered is told as lost.
        assert set(caller.kinds) == {"reply", "provider-lost"}
