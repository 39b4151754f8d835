"""Who gets a request: balancers through the gateway, and callers who choose for themselves."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument, NoProvider, TimedOut, UsageError
from hansa.services.gateway import Gateway, Rendezvous, RetryPolicy, Weighted
from hansa.services.gateway.balancers import M
from hansa.transport import Environment
from hansa.wire.business import ERROR_MSG_ID
from tests.support.gateway_stage import Stage, until
from tests.support.lanes import Lane
from tests.support.scripted_provider import refusing, saying, silence

pytestmark = pytest.mark.parametrize("lane", ["tcp", "inproc"], indirect=True)


async def named(stage: Stage, *names: str, **settings: Any) -> Gateway:
    """A gateway to providers of "who" that answer with their names."""
    for name in names:
        await stage.provider(name, "who", answer=saying(name.encode()))
    gateway = await stage.gateway(**settings)
    await gateway.wait_connected("who", len(names))
    return gateway


async def shares(gateway: Gateway, count: int, **arguments: Any) -> Counter[bytes]:
    return Counter([(await gateway.request("who", b"?", **arguments))[0] for _ in range(count)])


class Last:
    """A strategy of the user's own."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        self.keys.append(key)
        return members[-1]


class Scripted:
    """Returns or raises whatever is set."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        if self.result is None:
            return members[0]
        if isinstance(self.result, Exception):
            raise self.result
        chosen: M = self.result
        return chosen


@pytest.mark.spec("DIS-22")
async def test_round_robin_is_the_default(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await named(stage, "ann", "bob", "cyd")
        assert await shares(gateway, 30) == {b"ann": 10, b"bob": 10, b"cyd": 10}


@pytest.mark.spec("DIS-22")
async def test_a_changed_weight_takes_effect_at_once(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await named(stage, "ann", "bob")
        gateway.set_balancer("who", Weighted())
        assert await shares(gateway, 20) == {b"ann": 10, b"bob": 10}
        (ann,) = (one for one in stage.discovery.providers("who") if one.routing_id == b"ann")
        entry = stage.lists["who"][ann.endpoint]
        stage.offer("who", type(entry)(endpoint=ann.endpoint, routing_id=b"ann", weight=4))
        await until(lambda: any(one.weight == 4 for one in stage.discovery.providers("who")))
        assert await shares(gateway, 20) == {b"ann": 16, b"bob": 4}


@pytest.mark.spec("DIS-22")
@pytest.mark.parametrize("early", [True, False])
async def test_a_strategy_of_the_users_own_chooses(lane: Lane, early: bool) -> None:
    async with Stage(lane) as stage:
        mine = Last()
        if early:
            gateway = Gateway(stage.discovery, environment=Environment(network=lane.memory))
            gateway.set_balancer("who", mine)
            async with gateway:
                for name in ("ann", "bob"):
                    await stage.provider(name, "who", answer=saying(name.encode()))
                    await gateway.wait_connected("who", gateway.connection_count("who") + 1)
                assert await shares(gateway, 3) == {b"bob": 3}
        else:
            gateway = await named(stage, "ann", "bob")
            gateway.set_balancer("who", mine)
            (only,) = await shares(gateway, 3, key="user")
            assert only in (b"ann", b"bob")
            assert mine.keys == [b"user"] * 3


@pytest.mark.spec("DIS-22")
@pytest.mark.parametrize("result", [ZeroDivisionError("mine"), "nonsense", object(), 17])
async def test_a_strategy_that_fails_hurts_only_the_request_that_it_was_asked_for(
    lane: Lane, result: Any
) -> None:
    async with Stage(lane) as stage:
        gateway = await named(stage, "ann", "bob")
        mine = Scripted(result)
        gateway.set_balancer("who", mine)
        with pytest.raises(UsageError, match="the balancer of who"):
            await gateway.request("who", b"?")
        with pytest.raises(UsageError, match="the balancer of who"):
            gateway.submit("who", b"?", lambda completion: None)
        assert gateway.stats.in_flight_count == 0
        mine.result = None
        assert sum((await shares(gateway, 4)).values()) == 4


async def test_a_strategy_that_remembers_a_member_that_left_is_told_so(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await named(stage, "ann", "bob", "cyd")
        board = gateway._board
        assert board is not None
        gone = board.links["who"].pool.ready[0]
        stage.retract("who", gone.endpoint)
        await until(lambda: gateway.connection_count("who") == 2)
        gateway.set_balancer("who", Scripted(gone))
        with pytest.raises(UsageError, match="not one that it was given"):
            await gateway.request("who", b"?")


async def test_a_strategy_that_fails_at_a_second_try_ends_the_request(lane: Lane) -> None:
    async with Stage(lane) as stage:
        for name in ("ann", "bob", "cyd"):
            await stage.provider(name, "who", answer=refusing("busy"))
        gateway = await stage.gateway(retry=RetryPolicy(tries_max=5))
        await gateway.wait_connected("who", 3)
        mine = Scripted(None)
        gateway.set_balancer("who", mine)
        task = asyncio.ensure_future(gateway.request("who", b"?", timeout=None))
        await until(lambda: gateway.stats.in_flight_count == 1)
        mine.result = ZeroDivisionError("at the second try")
        with pytest.raises(UsageError, match="at the second try"):
            await task
        assert gateway.stats.in_flight_count == 0


@pytest.mark.spec("DIS-22")
async def test_a_key_stays_with_its_provider_in_every_gateway(lane: Lane) -> None:
    async with Stage(lane) as stage:
        one = await named(stage, "ann", "bob", "cyd")
        two = await stage.gateway()
        await two.wait_connected("who", 3)
        for gateway in (one, two):
            gateway.set_balancer("who", Rendezvous())
        owners = {key: set(await shares(one, 2, key=key)) for key in map(str, range(30))}
        assert all(len(names) == 1 for names in owners.values())
        assert {key: set(await shares(two, 1, key=key.encode())) for key in owners} == owners
        assert len(set.union(*owners.values())) == 3


async def test_a_try_after_a_refusal_goes_to_those_that_did_not_refuse_yet(lane: Lane) -> None:
    async with Stage(lane) as stage:
        providers = [await stage.provider(name, "who", answer=refusing("busy")) for name in ("ann", "bob")]
        gateway = await stage.gateway(retry=RetryPolicy(tries_max=2))
        await gateway.wait_connected("who", 2)
        gateway.set_balancer("who", Last())
        results = await asyncio.gather(
            *(gateway.request("who", b"?") for _ in range(5)), return_exceptions=True
        )
        assert [getattr(result, "code", "") for result in results] == ["busy"] * 5
        assert [len(one.asked) for one in providers] == [5, 5]


@pytest.mark.spec("DIS-23")
async def test_a_direct_request_reaches_the_chosen_provider_and_completes_under_its_own_id(
    lane: Lane,
) -> None:
    async with Stage(lane) as stage:
        gateway = await named(stage, "ann", "bob")
        router = gateway.router("who")
        assert sorted(router.peers) == [b"ann", b"bob"]
        wanted = {1: b"bob", 2: b"ann", 0: b"bob", 2**64 - 1: b"ann"}
        for request_id, peer in wanted.items():
            await router.send(peer, request_id, [b"a", b"b"], msg_id=9)
        got = [await gateway.recv() for _ in wanted]
        assert {one.request_id: one.parts[0] for one in got} == wanted
        assert all(one.service == "who" and one.error is None for one in got)


@pytest.mark.spec("DIS-23")
async def test_a_direct_request_id_that_is_in_flight_is_refused_until_it_is_free(lane: Lane) -> None:
    async with Stage(lane) as stage:
        provider = await stage.provider("ann", "who", answer=silence)
        await stage.provider("bob", "other")
        gateway = await stage.gateway()
        await gateway.wait_connected("who")
        await gateway.wait_connected("other")
        router = gateway.router("who")
        await router.send(b"ann", 5, b"first")
        with pytest.raises(BadArgument, match="in flight already"):
            await router.send(b"ann", 5, b"second")
        with pytest.raises(BadArgument, match="in flight already"):
            await gateway.router("other").send(b"bob", 5, b"second")
        for request_id in (-1, 2**64):
            with pytest.raises(BadArgument, match="u64"):
                await router.send(b"ann", request_id, b"?")
        with pytest.raises(BadArgument, match="choose another"):
            await router.send(b"ann", 6, b"?", msg_id=ERROR_MSG_ID)
        with pytest.raises(BadArgument, match="str"):
            await router.send(b"ann", 6, ["?"])  # type: ignore[list-item]
        provider.reply((await provider.wait_asked(1))[0], b"1")
        assert (await gateway.recv()).parts == [b"1"]
        await router.send(b"ann", 5, b"third")
        assert [one.parts for one in await provider.wait_asked(2)] == [[b"first"], [b"third"]]


@pytest.mark.spec("DIS-23")
async def test_a_direct_request_to_somebody_unknown_is_no_provider(lane: Lane) -> None:
    async with Stage(lane) as stage:
        gateway = await named(stage, "ann")
        router = gateway.router("who")
        with pytest.raises(NoProvider):
            await router.send(b"nobody", 1, b"?")
        (ann,) = stage.discovery.providers("who")
        stage.retract("who", ann.endpoint)
        await until(lambda: gateway.connection_count("who") == 0)
        with pytest.raises(NoProvider):
            await router.send(b"ann", 1, b"?")
        assert gateway.stats.requests_count == 0


@pytest.mark.spec("DIS-23")
async def test_a_direct_request_times_out_at_recv_and_waits_for_room(lane: Lane) -> None:
    async with Stage(lane) as stage:
        await stage.provider("ann", "who", answer=silence)
        gateway = await stage.gateway(in_flight_max=1)
        await gateway.wait_connected("who")
        router = gateway.router("who")
        await router.send(b"ann", 1, b"?", timeout=0.02)
        async with asyncio.TaskGroup() as group:
            second = group.create_task(router.send(b"ann", 2, b"?", timeout=None))
            completion = await gateway.recv()
            assert completion.request_id == 1
            assert isinstance(completion.error, TimedOut)
            await second
        assert gateway.stats.in_flight_count == 1
