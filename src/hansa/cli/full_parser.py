"""The whole command line, by cyclopts: all help, all errors, and whatever `arguments.read` leaves to it.

cyclopts takes 0.15 s to load, and rich, which it needs for help, another 0.1 s. So only who asks for help,
makes a mistake or types something unusual waits for them.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import cyclopts
from cyclopts.validators import Number

from hansa.cli import arguments
from hansa.cli.commands import COMMANDS, FAMILIES, load
from hansa.installed import build_info


def parser(typed: Sequence[str] | None = None) -> cyclopts.App:
    """A parser of what was typed: other commands than the one meant are not loaded. Without it, of anything.

    What the list of commands says of each stands in its module, so that help on all of them loads all.
    """
    app = cyclopts.App(
        name="hansa",
        version=lambda: str(build_info()),
        help="Many Python processes as one system. `hansa COMMAND --help` tells more about a command.",
        help_format="markdown",
    )
    families = {
        name: cyclopts.App(name=name, help=text, help_format="markdown", group=heading)
        for name, (text, heading) in FAMILIES.items()
    }
    meant = None if not typed or typed[0].startswith("-") else typed[0]
    for path, (place, heading) in COMMANDS.items():
        family, _, name = path.rpartition(" ")
        is_meant = meant in (None, family or name)
        above = families[family] if family else app
        above.command(for_cyclopts(load(path)) if is_meant else place, name=name, group=heading)
    for within in families.values():
        app.command(within)
    return app


def for_cyclopts(command: Callable[..., int]) -> Callable[..., int]:
    """The command with its declarations in cyclopts' words."""
    hints = {name: _translated(hint) for name, hint in get_type_hints(command, include_extras=True).items()}

    @functools.wraps(command)
    def translated(*words: Any, **options: Any) -> int:
        return command(*words, **options)

    signature = inspect.signature(command)
    parameters = [one.replace(annotation=hints[one.name]) for one in signature.parameters.values()]
    translated.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    translated.__annotations__ = hints
    return translated


def _translated(hint: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[(_translated(inner[0]), *map(_parameter, inner[1:]))]
    if origin in (Union, UnionType):
        return functools.reduce(operator.or_, map(_translated, inner))
    if origin is tuple:
        return tuple[_translated(inner[0]), ...]  # type: ignore[misc]
    return _options(hint) if is_dataclass(hint) else hint


def _parameter(declared: arguments.Parameter) -> cyclopts.Parameter:
    said = declared.settings()
    if (allowed := declared.validator) is not None:
        said["validator"] = Number(gt=allowed.gt, gte=allowed.gte, lt=allowed.lt, lte=allowed.lte)
    if (convert := declared.converter) is not None:
        said["converter"] = lambda kind, tokens: convert(tokens[0].value)
    if (split := declared.env_var_split) is not None:
        said["env_var_split"] = lambda kind, text, **_: split(text)
    return cyclopts.Parameter(**said)


def _options(group: Any) -> type:
    """Options that several commands share, as options of the command itself."""
    hints = {name: _translated(hint) for name, hint in get_type_hints(group, include_extras=True).items()}
    twin = type(group.__name__, (group,), {"__annotations__": hints, "__doc__": group.__doc__})
    return cyclopts.Parameter(name="*")(twin)
