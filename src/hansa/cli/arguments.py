"""The arguments of commands: how they are declared, how typed words are read, and what help says.

A command is a function; its signature declares its arguments, `Annotated[..., Parameter(...)]` says more, and
its docstring describes each under "Parameters"; an argument of several commands may be described in its
`Parameter` (`about`). Arguments before the `/` are given by position, all others as `--name value`,
`--name=value` or `--flag`; a `tuple` may be given more than once. The fields of a dataclass are options, too:
several commands share them. After `--` every word is taken as it is.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from hansa.errors import BadArgument

# The arguments of a command: those by position, and the others by name.
Call: TypeAlias = tuple[list[Any], dict[str, Any]]

_NOTHING: Final = inspect.Parameter.empty
_HEADING: Final = "\nParameters\n----------\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """The numbers that are allowed."""

    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None

    def refusal(self, number: float) -> str:
        """The bound that the number breaks, or the empty string. NaN breaks all."""
        for sign, bound, holds in (
            (">", self.gt, operator.gt),
            (">=", self.gte, operator.ge),
            ("<", self.lt, operator.lt),
            ("<=", self.lte, operator.le),
        ):
            if bound is not None and not holds(number, bound):
                return f"{sign} {bound}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """The properties of an option or a positional word, beside its type."""

    name: str | None = None
    metavar: str | None = None
    allow_leading_hyphen: bool | None = None
    env_var: str | None = None
    """The environment variable. Several values have commas between them; spaces around them are ignored."""
    converter: Callable[[str], object] | None = None
    """Turns a word into a value. Raises ValueError, which says what is wrong."""
    validator: Number | None = None
    about: str | None = None
    """The help text if the command's docstring has none: for arguments that several commands share."""

    def settings(self) -> dict[str, Any]:
        """The properties that were given."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in said.items() if value is not None}


def summary(doc: str) -> str:
    """The first sentence of a command's docstring, which is its first paragraph."""
    return " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())


def item_lines(items: Mapping[str, str], width: int) -> Iterator[str]:
    """The lines of a list of names with their texts beside them."""
    from textwrap import wrap

    indent = " " * (4 + max(map(len, items), default=0))
    for name, text in items.items():
        lines = wrap(text, max(width, 2 * len(indent)) - len(indent)) or [""]
        yield f"  {name}".ljust(len(indent)) + lines[0]
        yield from (indent + line for line in lines[1:])


def guess(word: str, known: Iterable[str]) -> str:
    """A question whether a near known word was meant; empty if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


class Slot:
    """One argument of a call: its place, and the values that words become there."""

    def __init__(self, group: str, name: str, hint: Any, default: object) -> None:
        self.group = group
        self.name = name
        self.default = default
        self.is_many = False
        self.choices: tuple[str, ...] = ()
        self.kind: Any = hint
        self.said: dict[str, Any] = {}
        self._unwrap(hint)
        self.is_flag = self.kind is bool
        self.label: str = self.said.get("name") or "--" + name.replace("_", "-")
        self.metavar: str = self.said.get("metavar") or "|".join(self.choices) or self.kind.__name__.upper()

    def _unwrap(self, hint: Any) -> None:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            self._unwrap(arguments[0])
            for more in arguments[1:]:
                self.said.update(more.settings())
        elif origin in (Union, UnionType):
            (one,) = (argument for argument in arguments if argument is not NoneType)
            self._unwrap(one)
        elif origin is tuple:
            self.is_many = True
            self._unwrap(arguments[0])
        elif origin is Literal:
            self.kind, self.choices = str, arguments
        else:
            self.kind = hint

    def value(self, word: str) -> object:
        """Raises BadArgument."""
        if self.choices and word not in self.choices:
            choices = ", ".join(f'"{choice}"' for choice in self.choices)
            raise BadArgument(f'Invalid value "{word}" for {self.label}. Choose from: {choices}.')
        convert = self.said.get("converter")
        try:
            found = (convert or self.kind)(word)
        except ValueError as wrong:
            reason = wrong if convert else f'unable to convert "{word}" into {self.kind.__name__}.'
            raise BadArgument(f"Invalid value for {self.label}: {reason}") from None
        allowed: Number | None = self.said.get("validator")
        if allowed is not None and (refusal := allowed.refusal(found)):
            raise BadArgument(f'Invalid value "{found}" for {self.label}. Must be {refusal}.')
        return found

    @property
    def title(self) -> str:
        """The argument's name in help."""
        is_bare = self.is_flag or not self.label.startswith("--")
        return self.label if is_bare else f"{self.label} {self.metavar}"

    def values(self, words: Sequence[str]) -> object:
        if self.is_flag:
            return True
        return tuple(map(self.value, words)) if self.is_many else self.value(words[0])

    def from_environment(self, environment: Mapping[str, str]) -> list[str]:
        """The words in the environment variable; an empty variable counts as absent."""
        text = environment.get(self.said.get("env_var", ""), "")
        return [word for word in map(str.strip, text.split(",") if self.is_many else [text]) if word]

    def described(self, about: Mapping[str, str]) -> str:
        """The argument's description, from the command's docstring, else from its own `about`."""
        return about.get(self.name) or self.said.get("about", "")

    def notes(self) -> Iterator[str]:
        """What help adds to the description."""
        if variable := self.said.get("env_var"):
            yield f"[env var: {variable}]"
        default = self.default
        if default is _NOTHING:
            yield "[required]"
        elif not self.is_flag and default not in (None, (), ""):
            yield f"[default: {', '.join(map(str, default)) if isinstance(default, tuple) else default}]"


class Declaration:
    """The arguments of a command, as its signature and its docstring declare them."""

    def __init__(self, command: Callable[..., object]) -> None:
        self._doc = inspect.getdoc(command) or ""
        self.places: list[Slot] = []
        self.rest: Slot | None = None
        self.options: dict[str, Slot] = {}
        self._groups: dict[str, tuple[Any, object]] = {}
        hints = get_type_hints(command, include_extras=True)
        for parameter in inspect.signature(command).parameters.values():
            hint: Any = hints[parameter.name]
            slot = Slot("", parameter.name, hint, parameter.default)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                slot.label = slot.said.get("metavar") or slot.name.upper()
                self.places.append(slot)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                slot.label, slot.default = slot.metavar, ()
                self.rest = slot
            elif is_dataclass(hint):
                self._groups[parameter.name] = (hint, parameter.default)
                inner = get_type_hints(hint, include_extras=True)
                for field in fields(hint):
                    default = _NOTHING if field.default is MISSING else field.default
                    self._add(Slot(parameter.name, field.name, inner[field.name], default))
            else:
                self._add(slot)

    def _add(self, slot: Slot) -> None:
        self.options[slot.label] = slot

    # ---- reading --------------------------------------------------------------------------------

    def read(self, typed: Sequence[str], environment: Mapping[str, str]) -> Call:
        """The call for these typed words. Raises BadArgument, which says what is wrong with them."""
        words, given = self._sort(typed)
        placed = self._placed(words)
        named: dict[str, Any] = {}
        grouped: dict[str, dict[str, Any]] = {}
        for option, slot in self.options.items():
            found = given.get(option) or slot.from_environment(environment)
            if found:
                target = grouped.setdefault(slot.group, {}) if slot.group else named
                target[slot.name] = slot.values(found)
            elif slot.default is _NOTHING:
                raise BadArgument(f"{option} requires an argument.")
        for name, (group, default) in self._groups.items():
            if name in grouped or default is _NOTHING:
                named[name] = group(**grouped.get(name, {}))
        return placed, named

    def _sort(self, typed: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
        """The positional words, and the words that were given by an option's name."""
        words: list[str] = []
        given: dict[str, list[str]] = {}
        coming = iter(typed)
        for word in coming:
            option, equals, value = word.partition("=")
            slot = self.options.get(option)
            if word == "--":
                words += coming
            elif slot is None:
                if _is_option(word) and not self._takes_hyphen(len(words)):
                    raise BadArgument(f"Unknown option: {option}.{guess(option, self.options)}")
                words.append(word)
            elif option in given and not slot.is_many:
                raise BadArgument(f"Parameter {option} specified multiple times.")
            elif slot.is_flag and equals:
                raise BadArgument(f"{option} takes no value.")
            else:
                if not slot.is_flag and not equals:
                    value = next(coming, "--")
                    if _is_option(value):
                        raise BadArgument(f"{option} requires an argument.")
                given.setdefault(option, []).append(value)
        return words, given

    def _takes_hyphen(self, place: int) -> bool:
        slot = self.places[place] if place < len(self.places) else self.rest
        return slot is not None and "allow_leading_hyphen" in slot.said

    def _placed(self, words: Sequence[str]) -> list[Any]:
        here, more = words[: len(self.places)], words[len(self.places) :]
        if more and self.rest is None:
            raise BadArgument(f"Unused words: {' '.join(more)}.")
        for slot in self.places[len(here) :]:
            if slot.default is _NOTHING:
                raise BadArgument(f"{slot.label} requires an argument.")
        placed = [slot.value(word) for slot, word in zip(self.places, here, strict=False)]
        return placed + [self.rest.value(word) for word in more if self.rest is not None]

    # ---- help -----------------------------------------------------------------------------------

    def described(self, name: str, width: int) -> str:
        """The whole help text of the command, in lines of this width."""
        from textwrap import fill

        places = [*self.places, *([self.rest] if self.rest else [])]
        words = [slot.label if slot.default is _NOTHING else f"[{slot.label}]" for slot in self.places]
        words += [f"[{self.rest.label}...]"] if self.rest else []
        text, _, of_parameters = self._doc.partition(_HEADING)
        about = _by_name(of_parameters)
        for group, _ in self._groups.values():
            about |= _by_name((inspect.getdoc(group) or "").partition(_HEADING)[2])
        lines = [f"Usage: hansa {name} [OPTIONS] {' '.join(words)}".rstrip(), ""]
        for paragraph in text.strip().split("\n\n"):
            # Examples are indented, and stay as they are.
            lines += [paragraph if paragraph.startswith(" ") else fill(paragraph, width), ""]
        for heading, slots in (("Arguments", places), ("Options", self.options.values())):
            if slots:
                items = {slot.title: " ".join((slot.described(about), *slot.notes())) for slot in slots}
                lines += [f"{heading}:", *item_lines(items, width), ""]
        return "\n".join(lines[:-1])


def _is_option(word: str) -> bool:
    """Whether it looks like an option: it begins with a hyphen, and is no number."""
    try:
        float(word)
    except ValueError:
        return word.startswith("-")
    return False


def _by_name(described_parameters: str) -> dict[str, str]:
    """The texts under "Parameters": each is indented under its name."""
    texts: dict[str, str] = {}
    name = ""
    for line in described_parameters.splitlines():
        if line.startswith(" "):
            texts[name] = f"{texts.get(name, '')} {line.strip()}".strip()
        else:
            name = line.strip()
    return texts
