"""The `hansa` command: reads the arguments and runs the part that was asked for."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError

import hansa
from hansa.cli.exit_status import USAGE

app = App(
    name="hansa",
    version=hansa.__version__,
    help="Many Python processes as one system. `hansa COMMAND --help` tells more about a command.",
    help_format="markdown",
)
# By name, so that a command loads only what it needs itself.
app.command("hansa.cli.registry_command:registry")
app.command("hansa.cli.services_command:services")
app.command("hansa.cli.call_command:call")
app.command("hansa.cli.provide_command:provide")
app.command("hansa.cli.topics_command:topics")
app.command("hansa.cli.publish_command:publish")
app.command("hansa.cli.subscribe_command:subscribe")
app.command("hansa.cli.store_command:store")
app.command("hansa.cli.members_command:members")
app.command("hansa.cli.lock_command:lock")
app.command("hansa.cli.lead_command:lead")
app.command("hansa.cli.raft_command:raft")
app.command("hansa.cli.demo_command:demo")


def main() -> None:
    """The entry point of the `hansa` script."""
    try:
        app(exit_on_error=False)
    except CycloptsError:  # Shown already.
        sys.exit(USAGE)
