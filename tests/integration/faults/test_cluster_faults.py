"""Three registries, five providers and two callers, all processes, under load, while one of them breaks.

Each time the same must be true afterwards (`FaultStage.close`): all lists are equal, nothing removed is back,
and no call failed, because there was a living provider all the while. One of the callers knows a single
registry, the one that is killed, frozen or cut off.
"""

import asyncio
import signal

import pytest

from tests.support.fault_stage import AGREE_S_MAX, BEAT_TIMEOUT_S, SILENCE_S, FaultStage
from tests.support.reserved_ports import reserved_endpoints
from tests.support.wiring import COUNT, NamespaceWiring, ProxyWiring, Wiring, namespaces_allowed

# Longer than a provider or a peer may be silent.
FAULT_S = max(BEAT_TIMEOUT_S, SILENCE_S) + 1.0


@pytest.mark.spec("DIS-07")
@pytest.mark.spec("DIS-11")
@pytest.mark.spec("DIS-12")
@pytest.mark.spec("DIS-13")
@pytest.mark.spec("DIS-14")
async def test_each_registry_is_killed_and_restarted_in_turn_under_load() -> None:
    async with FaultStage(Wiring()) as stage:
        for number in range(COUNT):
            await stage.restart(number)
            await stage.agree()
            await stage.replied_more()
            if number == 1:
                # Who leaves before the next kill must not come back with the next restart.
                await stage.leave("p1")
                await stage.join("p6", home=number)
        books = await stage.close()
        assert books["by"].keys() == {"p1", "p2", "p3", "p4", "p5", "p6"}


@pytest.mark.spec("DIS-11")
@pytest.mark.spec("DIS-14")
async def test_a_registry_that_was_frozen_beyond_every_timeout_brings_nothing_back() -> None:
    async with FaultStage(Wiring()) as stage:
        frozen = stage.registries[0]
        frozen.freeze()
        # It sleeps over one that leaves, one that comes, and the death of one of its own.
        await stage.kill("p4")
        await stage.join("p6", home=2)
        await stage.leave("p2", all_hear=False)
        await asyncio.sleep(FAULT_S)
        frozen.process.send_signal(signal.SIGCONT)
        await stage.replied_more()
        await stage.close()


def wirings() -> list[object]:
    """Through a proxy always, through the kernel where it lets us."""
    refused = pytest.mark.skipif(
        not namespaces_allowed(), reason="only root makes network namespaces; two proxies make the same cuts"
    )
    return [
        pytest.param(NamespaceWiring, id="network-namespaces", marks=refused),
        pytest.param(lambda: ProxyWiring(silent=True), id="silent-proxy"),
        pytest.param(lambda: ProxyWiring(silent=False), id="breaking-proxy"),
    ]


@pytest.mark.spec("DIS-11")
@pytest.mark.parametrize("make_wiring", wirings())
async def test_two_registries_cut_apart_agree_after_healing(make_wiring: type[Wiring]) -> None:
    async with FaultStage(make_wiring()) as stage:
        await stage.cut_apart(0, 1)
        await asyncio.sleep(FAULT_S)
        # They are apart: what is registered with one is not in the other's list, and the third has all.
        await stage.leave("p2")
        newcomer = await stage.join("p6", home=0)
        first, second, third = await stage.lists()
        async with asyncio.timeout(AGREE_S_MAX):
            while third != stage.expected:
                first, second, third = await stage.lists()
        assert newcomer.endpoint in str(first)
        assert newcomer.endpoint not in str(second)
        await stage.replied_more()
        await stage.heal(0, 1)
        await stage.close()


@pytest.mark.spec("DIS-06")
@pytest.mark.spec("DIS-11")
@pytest.mark.spec("DIS-24")
async def test_a_provider_killed_under_load_costs_no_call_and_stays_away() -> None:
    with reserved_endpoints(1) as (place,):
        async with FaultStage(Wiring(), providers_count=4) as stage:
            await stage.join("p5", home=1, bind=place)
            await stage.agree()
            await stage.kill("p1")
            await stage.agree()
            # Another process at the same endpoint is another provider.
            await stage.kill("p5")
            again = await stage.join("p6", home=2, bind=place)
            assert again.endpoint == place
            await stage.agree()
            await stage.replied_more()
            books = await stage.close()
            assert books["by"]["p6"] > 0
