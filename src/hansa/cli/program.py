"""The `hansa` command: all commands, and how one of them is run.

The table names the commands as text, so that only the one that is run is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from hansa.cli.arguments import Declaration, guess, item_lines, summary
from hansa.cli.exit_status import INTERRUPTED, OK, complain, reader_left
from hansa.errors import BadArgument, HansaError

ABOUT: Final = (
    "Many Python processes as one system. `hansa COMMAND --help` tells more about a command, "
    "`hansa --version` which hansa this is."
)
SERVICES: Final = "Services"
TOPICS: Final = "Topics"
COORDINATION: Final = "Locks, leaders and members"
WORK: Final = "Work that is shared out"
STORES: Final = "Stores"
DEVELOPMENT: Final = "Development"

# A command's words, its function, and the heading under which help lists it, in this order.
COMMANDS: Final = {
    "demo": ("hansa.cli.demo_command:demo", "Commands"),
    "registry": ("hansa.cli.registry_command:registry", SERVICES),
    "provide": ("hansa.cli.provide_command:provide", SERVICES),
    "services": ("hansa.cli.services_command:services", SERVICES),
    "call": ("hansa.cli.call_command:call", SERVICES),
    "topics": ("hansa.cli.topics_command:topics", TOPICS),
    "topics move": ("hansa.cli.topics_command:move", TOPICS),
    "publish": ("hansa.cli.publish_command:publish", TOPICS),
    "subscribe": ("hansa.cli.subscribe_command:subscribe", TOPICS),
    "lock": ("hansa.cli.lock_command:lock", COORDINATION),
    "lead": ("hansa.cli.lead_command:lead", COORDINATION),
    "handovers": ("hansa.cli.handovers_command:handovers", COORDINATION),
    "members": ("hansa.cli.members_command:members", COORDINATION),
    "assignments": ("hansa.cli.assignments_command:assignments", WORK),
    "assignments plan": ("hansa.cli.assignments_command:plan", WORK),
    "assignments move": ("hansa.cli.assignments_changes:move", WORK),
    "assignments pin": ("hansa.cli.assignments_changes:pin", WORK),
    "assignments drain": ("hansa.cli.assignments_changes:drain", WORK),
    "assignments define": ("hansa.cli.assignments_definitions:define", WORK),
    "assignments undefine": ("hansa.cli.assignments_definitions:undefine", WORK),
    "assignments work": ("hansa.cli.assignments_work_command:work", WORK),
    "assignments assign": ("hansa.cli.assignments_definitions:assign", WORK),
    "assignments find": ("hansa.cli.assignments_definitions:find", WORK),
    "assignments unassign": ("hansa.cli.assignments_definitions:unassign", WORK),
    "store": ("hansa.cli.store_command:store", STORES),
    "raft start": ("hansa.cli.raft_command:start", STORES),
    "raft join": ("hansa.cli.raft_command:join", STORES),
    "raft leave": ("hansa.cli.raft_command:leave", STORES),
    "raft approve": ("hansa.cli.raft_command:approve", STORES),
    "raft refuse": ("hansa.cli.raft_command:refuse", STORES),
    "raft approval": ("hansa.cli.raft_command:approval", STORES),
    "raft status": ("hansa.cli.raft_command:status", STORES),
    "dev kafka": ("hansa.cli.dev_command:kafka", DEVELOPMENT),
}
# The common description of commands of two words, by their first word.
FAMILIES: Final = {
    "raft": "Raft groups: a store that several machines keep together, without an etcd of your own to run.",
    "dev": "Servers for development: what programs talk to in production, on this machine.",
}


def main() -> None:
    """The entry point of the `hansa` script."""
    try:
        sys.exit(_run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def load(name: str) -> Callable[..., int | None]:
    """The function of a command: it returns the exit status, or None for success."""
    module, _, function = COMMANDS[name][0].partition(":")
    found: Callable[..., int | None] = getattr(import_module(module), function)
    return found


def named(typed: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The command that the first words name, and the words after its name: `topics`, or `topics move`."""
    for count in (2, 1):
        name = " ".join(typed[:count])
        if name in COMMANDS:
            return name, typed[count:]
    return None


def _run(typed: Sequence[str]) -> int:
    if typed == ["--version"]:
        from hansa.installed import build_info

        print(build_info())
        return OK
    # The words after `--` are for another program.
    ours = typed[: typed.index("--") if "--" in typed else None]
    wants_help = "--help" in ours or "-h" in ours
    name, rest = named(typed) or ("", typed)
    try:
        if not name:
            return _find(typed, wants_help=wants_help)
        command = load(name)
        declared = Declaration(command)
        if wants_help:
            return _tell(declared.described(name, _width()))
        words, options = declared.read(rest, os.environ)
    except BadArgument as error:
        advice = f"`hansa {name} --help` lists what can be given" if name else "`hansa --help` lists them"
        return complain(name, BadArgument(f"{error} ({advice})"), as_json="--json" in ours)
    try:
        return command(*words, **options) or OK
    except HansaError as error:
        return complain(name, error, as_json="--json" in ours)
    except BrokenPipeError:
        reader_left()
        return OK


def _find(typed: Sequence[str], *, wants_help: bool) -> int:
    """No command is named in full: list the possible ones. Raises BadArgument for an unknown word."""
    words = [word for word in typed if not word.startswith("-")]
    family = words[0] if words and words[0] in FAMILIES else ""
    unknown = words[1:2] if family else words[:1]
    if unknown or not (wants_help or not typed or typed == [family]):
        word = unknown[0] if unknown else typed[-1]
        known = _listed(family)
        raise BadArgument(
            f'Unknown command "{word}".{guess(word, known)} Available commands: {", ".join(known)}.'
        )
    return _tell(_overview(family))


def _tell(help_: str) -> int:
    try:
        print(help_, flush=True)
    except BrokenPipeError:
        reader_left()  # The list is long, and `head` has seen enough.
    return OK


def _listed(family: str) -> dict[str, str]:
    """The words that may follow, each with its heading."""
    if family:
        return {name.removeprefix(f"{family} "): "Commands" for name in COMMANDS if name.startswith(family)}
    firsts = {name: name.partition(" ")[0] for name in COMMANDS}
    # `topics move` is listed after `topics`; of a family only its name.
    return {first if first in FAMILIES else name: COMMANDS[name][1] for name, first in firsts.items()}


def _overview(family: str) -> str:
    from textwrap import fill

    width, listed = _width(), _listed(family)
    usage = " ".join(("Usage: hansa", *family.split(), "COMMAND"))
    lines = [usage, "", fill(FAMILIES.get(family, ABOUT), width)]
    for heading in dict.fromkeys(listed.values()):
        names = [name for name in listed if listed[name] == heading]
        about = {name: FAMILIES.get(name) or _about(f"{family} {name}".strip()) for name in names}
        lines += ["", f"{heading}:", *item_lines(about, width)]
    return "\n".join(lines)


def _about(name: str) -> str:
    """The first sentence of a command's docstring, read from its source: loading them all takes a second."""
    import ast

    module, _, function = COMMANDS[name][0].rpartition(".")[2].partition(":")
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return summary(ast.get_docstring(node) or "")
    return ""


def _width() -> int:
    from shutil import get_terminal_size

    return min(get_terminal_size().columns, 110)
