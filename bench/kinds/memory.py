"""What hansa's services weigh: `width` idle connections, or `width` requests that nobody answers.

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
