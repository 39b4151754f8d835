"""The `hansa` command: reads the arguments and runs the part that was asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from hansa.cli.arguments import read
from hansa.cli.commands import load, named
from hansa.cli.exit_status import INTERRUPTED


def main() -> None:
    """The entry point of the `hansa` script."""
    typed = sys.argv[1:]
    try:
        sys.exit(_run(typed))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run(typed: Sequence[str]) -> int:
    if typed == ["--version"]:
        from hansa.installed import build_info

        print(build_info())
        return 0
    if (meant := named(typed)) is not None:
        name, rest = meant
        command = load(name)
        if (call := read(command, rest, os.environ)) is not None:
            words, options = call
            return command(*words, **options)
    return _run_fully(typed)


def _run_fully(typed: Sequence[str]) -> int:
    """With help and errors for what cannot be read plainly."""
    from cyclopts import CycloptsError

    from hansa.cli.exit_status import complain
    from hansa.cli.full_parser import parser
    from hansa.errors import BadArgument

    # What stands behind `--` is another program's.
    as_json = "--json" in typed[: typed.index("--") if "--" in typed else None]
    try:
        status: int | None = parser(typed)(
            typed, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        command = " ".join(error.command_chain or ())
        advice = (
            f"`hansa {command} --help` lists what can be given" if command else "`hansa --help` lists them"
        )
        return complain(command, BadArgument(f"{error} ({advice})"), as_json=as_json)
    return status or 0  # Help and the version are no command, and go well.
