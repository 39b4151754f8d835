"""The `hansa` command: reads the arguments and runs the part that was asked for."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

import hansa
from hansa.cli import demo as demo_program
from hansa.cli.fast_loop import run

app = App(
    name="hansa",
    version=hansa.__version__,
    help="Many Python processes as one system. `hansa COMMAND --help` tells more about a command.",
)


@app.command
def demo(
    *,
    dealers: Annotated[int, Parameter(validator=Number(gte=1, lte=64))] = 4,
    seconds: Annotated[float, Parameter(validator=Number(gte=3, lte=3600))] = 14.0,
    in_flight: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 32,
    payload_bytes: Annotated[int, Parameter(validator=Number(gte=0, lte=1 << 20))] = 64,
) -> int:
    """Watch a ROUTER and several DEALERs talk over TCP, through a crash of the router.

    Every participant is a process of its own. After a third of the time the router is killed with
    SIGKILL; it returns a moment later on the same port. In the end every question is accounted for.

    Parameters
    ----------
    dealers
        How many DEALER processes ask.
    seconds
        How long the demo runs.
    in_flight
        How many questions of each dealer are open at a time.
    payload_bytes
        How large a question is.
    """
    settings = demo_program.Settings(
        dealers_count=dealers, run_s=seconds, in_flight_count=in_flight, payload_bytes=payload_bytes
    )
    try:
        return run(demo_program.play(settings))
    except KeyboardInterrupt:
        return 130


def main() -> None:
    """The entry point of the `hansa` script."""
    app()
