"""`hansa demo`."""

from __future__ import annotations

from typing import Annotated

from hansa.cli.arguments import Number, Parameter
from hansa.cli.registry_options import Whole
from hansa.demo import director as demo_program
from hansa.runtime.loops import run


def demo(
    *,
    seconds: Annotated[float, Parameter(validator=Number(gte=3, lte=3600))] = 12.0,
    in_flight: Annotated[Whole, Parameter(validator=Number(gte=1, lte=10_000))] = 16,
    payload_bytes: Annotated[Whole, Parameter(validator=Number(gte=0, lte=1 << 20))] = 64,
) -> int:
    """Watch services call each other and topics reach their readers while their processes are killed.

    Three registries, three providers and a client, and three nodes that own topics, publish and read, each a
    process of its own. A registry, a provider, a node and the client are killed with SIGKILL in turn and
    started again. Calls and messages go on, and in the end every one of them is accounted for: exit status 1
    if not.

    Parameters
    ----------
    seconds
        How long the client calls.
    in_flight
        How many calls are open at a time.
    payload_bytes
        How large a call is.
    """
    settings = demo_program.Settings(run_s=seconds, in_flight_count=in_flight, payload_bytes=payload_bytes)
    try:
        return run(demo_program.play(settings))
    except KeyboardInterrupt:
        return 130
