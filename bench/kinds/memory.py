"""What hansa weighs: `width` idle connections, requests that nobody answers, idle spots, or topics.

Each number is the growth of a process's resident memory, divided by the width. So it holds everything: the
objects of Python, of the event loop, and the buffers they keep; not the kernel's.
"""

import asyncio

from bench.measurement import Measurement
from bench.stage import Stage, TrialFailed, Worker
from bench.window import Window

STEP_S_MAX = 60.0
POLL_S = 0.05


async def measure_idle(stage: Stage, _window: Window) -> Measurement:
    """One gateway with many providers, then one provider with many gateways."""
    providers = await stage.start("many_providers", s_max=STEP_S_MAX)
    gateway = await stage.start("one_gateway")
    figures = {
        "gateway_connection_bytes": await _weight(gateway),
        "provider_bytes": await _weight(providers),
    }
    # They are killed, so the registry still lists them; the next provider has a stage to itself.
    await stage.restart()
    provider = await stage.start("one_provider")
    gateways = await stage.start("many_gateways", s_max=STEP_S_MAX)
    figures["provider_connection_bytes"] = await _weight(provider)
    figures["gateway_bytes"] = await _weight(gateways)
    return Measurement(figures=figures)


async def measure_pending(stage: Stage, _window: Window) -> Measurement:
    """The requests are made by awaiting tasks, then once more with callbacks."""
    figures: dict[str, float] = {}
    for form in ("request", "submit"):
        provider = await stage.start("stall")
        client = await stage.start("pile_up")
        figures[f"pending_{form}_bytes"] = (await client.do(form, s_max=STEP_S_MAX))["bytes"]
        held = await _all_there(provider, stage.case.width)
        figures["pending_provider_bytes"] = held["bytes"]
        if form == "request":
            await stage.restart()
    return Measurement(figures=figures)


async def measure_spots(stage: Stage, _window: Window) -> Measurement:
    """Spots of one node with a subscription each, then with a task each that waits for a message."""
    spots = await stage.start("many_spots", s_max=STEP_S_MAX)
    return Measurement(
        figures={"spot_bytes": await _weight(spots), "waiting_spot_bytes": await _weight(spots)}
    )


async def measure_topics(stage: Stage, _window: Window) -> Measurement:
    """Topics at their owner and at another node, which knows them and then subscribes to them."""
    neighbour = await stage.start("topics_neighbour")
    owner = await stage.start("topics_owner", s_max=STEP_S_MAX)
    return Measurement(
        figures={
            "owned_topic_bytes": await _weight(owner),
            "known_topic_bytes": await _weight(neighbour),
            "subscribed_topic_bytes": await _weight(neighbour),
        }
    )


async def _weight(worker: Worker) -> float:
    weight: float = (await worker.do("weigh", s_max=STEP_S_MAX))["bytes"]
    return weight


async def _all_there(provider: Worker, count: int) -> dict[str, float]:
    try:
        async with asyncio.timeout(STEP_S_MAX):
            held = await provider.do("weigh", s_max=STEP_S_MAX)
            while held["held"] < count:
                await asyncio.sleep(POLL_S)
                held = await provider.do("weigh", s_max=STEP_S_MAX)
    except TimeoutError:
        raise TrialFailed(f"the provider holds {held['held']} of {count} requests") from None
    return held
