"""hansa and programs that know only the specification: libzmq and frames, each in a process of its own."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from hansa import HandlerFailed, NoProvider
from hansa.services.provider import AckStatus, ProviderState
from tests.support.discovery_cast import PAY, WITHIN_S, Cast, Heard, endpoints, entry, shares, until
from tests.support.peer_process import PeerProcess

HERE = "tcp://10.0.0.1:5000"
FOLDER = Path(__file__).parent

pytestmark = pytest.mark.timeout(60)


def raw(script: str, **options: str) -> PeerProcess:
    return PeerProcess(f"discovery/{script}", *(f"--{name}={value}" for name, value in options.items()))


@pytest.mark.parametrize("script", sorted(path.name for path in FOLDER.glob("raw_*.py")))
def test_the_raw_programs_use_nothing_of_hansas(script: str) -> None:
    text = (FOLDER / script).read_text()
    assert re.search(r"^\s*(from|import) (hansa|tests)", text, re.MULTILINE) is None


@pytest.mark.spec("DIS-03")
@pytest.mark.spec("DIS-05")
@pytest.mark.spec("DIS-06")
@pytest.mark.spec("DIS-19")
async def test_a_raw_program_is_a_provider() -> None:
    async with Cast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry(heartbeat_timeout=2.0)
        async with raw("raw_provider.py", registry=str(registry.router)) as provider:
            registered = await provider.hear()
            here = registered["endpoint"]
            assert registered["ok"], registered
            (info,) = registry.services["raw"]
            assert (info.endpoint, info.routing_id, info.weight) == (here, b"raw-provider", 3)
            gateway = await cast.calling(registry, "raw")
            # Without a deadline the msgId frame has its two bytes and no more; with one, hansa's header
            # follows, and a program that reads two bytes does not see it.
            assert await gateway.request("raw", [b"", b"one"], timeout=None) == [b"raw", b"", b"one"]
            assert (await provider.hear())["call"] == "0000"
            assert await gateway.request("raw", b"two", msg_id=0x1234) == [b"raw", b"two"]
            call = (await provider.hear())["call"]
            assert call.startswith("3412")
            assert len(call) > 4
            request_id = await gateway.send("raw", b"three")
            assert (await provider.hear())["request_id"] == request_id.to_bytes(8, "little").hex()
            got = await gateway.recv()
            assert (got.request_id, got.result()) == (request_id, [b"raw", b"three"])
            with pytest.raises(HandlerFailed, match="not enough money") as refused:
                await gateway.request("raw", b"", msg_id=0x2A)
            assert refused.value.reason == "insufficient-funds"
            await provider.hear()
            # Its heartbeats keep it in the list: more than fit into the timeout, and it never expired.
            await until(lambda: registry.stats.heartbeats_count >= 25, "it beats for longer than the timeout")
            assert [one.endpoint for one in registry.services["raw"]] == [here]
            await provider.say("leave")
            assert await provider.hear() == {"left": True}
            await until(lambda: gateway.connection_count("raw") == 0, "it is gone")
            with pytest.raises(NoProvider):
                await gateway.request("raw", b"late")
            stats = registry.stats
            assert (stats.registered_count, stats.unregistered_count, stats.expired_count) == (1, 1, 0)
            assert stats.bad_frames == {}


@pytest.mark.spec("DIS-04")
@pytest.mark.spec("DIS-07")
@pytest.mark.spec("DIS-08")
async def test_a_raw_program_speaks_to_a_registry() -> None:
    async with Cast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry(broadcast_interval=600.0, heartbeat_timeout=600.0)
        discovery = await cast.discovery(registry)
        weights: list[int] = []
        steps: list[str] = []
        async with raw("raw_registry_client.py", registry=str(registry.router)) as client:
            count = 0
            while steps[-1:] != ["heartbeat after unregistering"]:
                told = await client.hear()
                assert told["is_right"], told
                steps.append(told["step"])
                weights += [one.weight for one in registry.services.get(PAY, ())]
                if steps[-1] == "update weight of an unknown service":
                    await until(lambda: [p.weight for p in discovery.providers(PAY)] == [9], "9 is told")
                    count = registry.stats.broadcasts_count
                elif steps[-1] == "a message that does not exist":
                    # None of the six messages that failed since then was told to anybody.
                    assert registry.stats.broadcasts_count == count
                await client.say()
        assert len(steps) == 14
        # Registered with weight 2, changed to 9, and without a weight it is 1; nothing else has changed it.
        assert list(dict.fromkeys(weights)) == [2, 9, 1]
        assert registry.services == {}
        stats = registry.stats
        assert (stats.registered_count, stats.weight_updates_count, stats.unregistered_count) == (2, 1, 1)
        assert stats.heartbeats_count == 4
        assert stats.unknown_heartbeats_count == 3
        assert stats.refused_count == 3
        assert sum(stats.bad_frames.values()) == 1
        await until(lambda: not discovery.is_available(PAY), "the removal is told")


@pytest.mark.spec("DIS-09")
@pytest.mark.spec("DIS-10")
async def test_a_raw_program_hears_the_lists() -> None:
    async with Cast() as cast, asyncio.timeout(2 * WITHIN_S):
        first, second = await cast.cluster(2)
        async with raw("raw_subscriber.py", registry=str(first.pub)) as subscriber:

            async def until_told(services: dict[str, Any]) -> dict[str, Any]:
                while (told := await subscriber.hear())["services"] != services:
                    assert told["registry_id"] == first.registry_id
                    seqs.append(told["list_seq"])
                seqs.append(told["list_seq"])
                return told

            seqs: list[int] = []
            await until_told({})
            ann = await cast.offering(first, weight=2, routing_id=b"ann")
            here = [str(ann.endpoint), b"ann".hex(), 2]
            await until_told({PAY: [here]})
            bob = await cast.offering(second, "user", routing_id=b"bob")
            there = [str(bob.endpoint), b"bob".hex(), 1]
            await until_told({PAY: [here], "user": [there]})
            await ann.update_weight(PAY, 7)
            told = await until_told({PAY: [[*here[:2], 7]], "user": [there]})
            await bob.unregister("user")
            told = await until_told({PAY: [[*here[:2], 7]]})
            # Frames of hansa's own follow the last provider, and REGISTRY_SYNC comes on the same socket:
            # both were passed over.
            assert told["more"] >= 2
            assert told["passed"].keys() == {"0600"}
            assert seqs == sorted(set(seqs))


@pytest.mark.spec("DIS-07")
@pytest.mark.spec("DIS-08")
@pytest.mark.spec("DIS-10")
@pytest.mark.spec("DIS-25")
async def test_hansa_works_with_a_raw_registry() -> None:
    async with raw("raw_registry.py") as registry, Cast() as cast, asyncio.timeout(2 * WITHIN_S):
        where = await registry.hear()

        async def until_heard(what: str, service: str = PAY) -> None:
            while (told := await registry.hear())["heard"] != what or told["service"] != service:
                pass

        ann, bob = [await cast.provider(routing_id=name) for name in (b"ann", b"bob")]
        for provider in (ann, bob):
            provider.connect_registry(where["router"])
            registration = await provider.register(PAY, weight=2)
            assert (registration.status, registration.registry) == (AckStatus.OK, where["router"])
            assert provider.state(PAY) is ProviderState.REGISTERED
        await ann.register("user")
        discovery = await cast.discovery(where["pub"])
        heard = Heard(discovery)
        gateway = await cast.gateway(discovery)
        await gateway.wait_connected(PAY, 2)
        assert await shares(gateway, 10) == {b"ann": 5, b"bob": 5}
        assert {(one.weight, one.registered_at) for one in discovery.providers(PAY)} == {(2, 0.0)}
        assert discovery.registries_heard == (2571,)

        # Such a registry does not say yes to a new weight; its silence is taken for it.
        await ann.update_weight(PAY, 5)
        await until(
            lambda: {one.weight for one in discovery.providers(PAY)} == {2, 5}, "the new weight is told"
        )
        assert entry(ann.registration(PAY)).weight == 5

        # An old list that is told once more changes nothing.
        known = discovery.providers(PAY)
        await registry.say("replay")
        await until(lambda: discovery.stats.lists_older_count > 0, "the old list has come")
        assert discovery.providers(PAY) == known

        # It loses everything, as if restarted: heartbeats are answered so, and all register again.
        events_count = len(heard.events)
        await registry.say("forget")
        await until(lambda: len(heard.events) > events_count, "nobody is listed")
        await until(lambda: discovery.provider_count(PAY) == 2, "both are listed again")
        await until(lambda: ann.stats.reregistrations_count == 2, "and both services of one provider")
        assert {one.routing_id: one.weight for one in discovery.providers(PAY)} == {b"ann": 5, b"bob": 2}
        await gateway.wait_connected(PAY, 2)

        await bob.unregister(PAY)
        await until_heard("UNREGISTER")
        await until(lambda: endpoints(discovery) == [str(ann.endpoint)], "one is left")
        assert bob.state(PAY) is ProviderState.UNREGISTERED
        assert await gateway.request(PAY, b"still") == [b"ann", b"still"]

        # The registry dies: what was known stays, and calls go on.
        await registry.kill()
        await until(lambda: discovery.registries_heard == (), "it is not heard any more")
        assert endpoints(discovery) == [str(ann.endpoint)]
        assert await gateway.request(PAY, b"on") == [b"ann", b"on"]
