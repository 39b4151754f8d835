"""The `hansa` command: reads the arguments and runs the part that was asked for."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError

import hansa
from hansa.cli.exit_status import complain
from hansa.errors import BadArgument

app = App(
    name="hansa",
    version=lambda: str(hansa.build_info()),
    help="Many Python processes as one system. `hansa COMMAND --help` tells more about a command.",
    help_format="markdown",
)
SERVICES = "Services"
TOPICS = "Topics"
COORDINATION = "Locks, leaders and members"
STORES = "Stores"
# By name, so that a command loads only what it needs itself.
app.command("hansa.cli.demo_command:demo")
app.command("hansa.cli.registry_command:registry", group=SERVICES)
app.command("hansa.cli.provide_command:provide", group=SERVICES)
app.command("hansa.cli.services_command:services", group=SERVICES)
app.command("hansa.cli.call_command:call", group=SERVICES)
app.command("hansa.cli.topics_command:topics", group=TOPICS)
app.command("hansa.cli.publish_command:publish", group=TOPICS)
app.command("hansa.cli.subscribe_command:subscribe", group=TOPICS)
app.command("hansa.cli.lock_command:lock", group=COORDINATION)
app.command("hansa.cli.lead_command:lead", group=COORDINATION)
app.command("hansa.cli.members_command:members", group=COORDINATION)
app.command("hansa.cli.store_command:store", group=STORES)
app.command("hansa.cli.raft_command:raft", group=STORES)


def main() -> None:
    """The entry point of the `hansa` script."""
    typed = sys.argv[1:]
    # What stands behind `--` is another program's.
    as_json = "--json" in typed[: typed.index("--") if "--" in typed else None]
    if typed in ([], ["--help"], ["-h"]):
        app.resolved_commands()  # What the list says of each stands in its module.
    try:
        app(typed, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        command = " ".join(error.command_chain or ())
        advice = (
            f"`hansa {command} --help` lists what can be given" if command else "`hansa --help` lists them"
        )
        sys.exit(complain(command, BadArgument(f"{error} ({advice})"), as_json=as_json))
