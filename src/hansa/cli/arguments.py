"""What commands take: how options are declared, and plain command lines read without a parser.

A command is a function; its signature says what it takes, and `Annotated[..., Parameter(...)]` says more. Two
readers know these declarations. `full_parser` reads everything, and writes all help and all errors; loading
it costs more than loading the rest of a command. `read`, here, reads what most people and all scripts type:
`--name value`, `--name=value`, `--flag` and plain words. Where it is not sure to be right it gives up, and
the full parser reads instead. So it refuses nothing and reads nothing differently; a test compares the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

# What a command is called with: words in their places, and the others by name.
Call: TypeAlias = tuple[list[Any], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """The numbers that are allowed."""

    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None

    def allows(self, number: float) -> bool:
        return (
            (self.gt is None or number > self.gt)
            and (self.gte is None or number >= self.gte)
            and (self.lt is None or number < self.lt)
            and (self.lte is None or number <= self.lte)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What an option or a word is, beside its type. All fields mean what they mean in the full parser."""

    name: str | None = None
    metavar: str | None = None
    negative: str | None = None
    show_default: bool | Callable[[object], str] | None = None
    allow_leading_hyphen: bool | None = None
    env_var: str | None = None
    env_var_split: Callable[[str], list[str]] | None = None
    """From the text of the environment variable to the words that it stands for."""
    converter: Callable[[str], object] | None = None
    """From a word to a value. Raises ValueError, with what is wrong."""
    validator: Number | None = None

    def settings(self) -> dict[str, Any]:
        """What was said."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in said.items() if value is not None}


def read(command: Callable[..., int], typed: Sequence[str], environment: Mapping[str, str]) -> Call | None:
    """What these words call the command with, or None where only the full parser knows."""
    try:
        return _Reader(command).read(typed, environment)
    except _NotPlain:
        return None


class _NotPlain(Exception):
    """Only the full parser knows what is meant, or how to say what is wrong."""


class _Slot:
    """Something that can be given: its place in the call, and what words become there."""

    def __init__(self, group: str, name: str, hint: Any, default: object) -> None:
        self.group = group
        self.name = name
        self.default = default
        self.is_many = False
        self.is_optional = False
        self.choices: tuple[str, ...] = ()
        self.kind: Any = hint
        self.said: dict[str, Any] = {}
        self._unwrap(hint)
        self.is_flag = self.kind is bool
        self.option: str = self.said.get("name") or "--" + name.replace("_", "-")

    def _unwrap(self, hint: Any) -> None:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            self._unwrap(arguments[0])
            for more in arguments[1:]:
                self.said.update(more.settings())
        elif origin in (Union, UnionType):
            self.is_optional = True
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
        if self.choices and word not in self.choices:
            raise _NotPlain
        if self.is_optional and word.lower() in ("none", "null"):
            raise _NotPlain
        try:
            found = self.said.get("converter", self.kind)(word)
        except ValueError:
            raise _NotPlain from None
        allowed: Number | None = self.said.get("validator")
        if allowed is not None and not allowed.allows(found):
            raise _NotPlain
        return found

    def word(self, word: str) -> object:
        """A word in its place."""
        if word.startswith("-") and not self.said.get("allow_leading_hyphen"):
            raise _NotPlain
        return self.value(word)

    def values(self, words: Sequence[str]) -> object:
        if self.is_flag:
            return True
        return tuple(map(self.value, words)) if self.is_many else self.value(words[0])

    def from_environment(self, environment: Mapping[str, str]) -> list[str]:
        text = environment.get(self.said.get("env_var", ""))
        if text is None:
            return []
        split = self.said.get("env_var_split")
        words = split(text) if split is not None else [text]
        if not all(words) or not words:
            raise _NotPlain
        return words


class _Reader:
    """Reads words as a command's signature asks for them."""

    def __init__(self, command: Callable[..., int]) -> None:
        hints = get_type_hints(command, include_extras=True)
        self._places: list[_Slot] = []
        self._rest: _Slot | None = None
        self._options: dict[str, _Slot] = {}
        self._groups: dict[str, tuple[Any, object]] = {}
        for parameter in inspect.signature(command).parameters.values():
            hint: Any = hints[parameter.name]
            slot = _Slot("", parameter.name, hint, parameter.default)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._places.append(slot)
            elif parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = slot
            elif is_dataclass(hint):
                self._groups[parameter.name] = (hint, parameter.default)
                inner = get_type_hints(hint, include_extras=True)
                for field in fields(hint):
                    default = parameter.empty if field.default is MISSING else field.default
                    self._add(_Slot(parameter.name, field.name, inner[field.name], default))
            else:
                self._add(slot)

    def _add(self, slot: _Slot) -> None:
        self._options[slot.option] = slot

    def read(self, typed: Sequence[str], environment: Mapping[str, str]) -> Call:
        words, given = self._sort(typed)
        named: dict[str, Any] = {}
        grouped: dict[str, dict[str, Any]] = {}
        for option, slot in self._options.items():
            found = given.get(option) or slot.from_environment(environment)
            if found:
                target = grouped.setdefault(slot.group, {}) if slot.group else named
                target[slot.name] = slot.values(found)
            elif slot.default is inspect.Parameter.empty:
                raise _NotPlain
        for name, (group, default) in self._groups.items():
            if name in grouped or default is inspect.Parameter.empty:
                named[name] = group(**grouped.get(name, {}))
        return self._placed(words), named

    def _sort(self, typed: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
        """Words for their places, and those that were given by an option's name."""
        words: list[str] = []
        given: dict[str, list[str]] = {}
        coming = iter(typed)
        for word in coming:
            if word == "--":
                words += coming
            elif not word.startswith("-") or word == "-":
                words.append(word)
            else:
                option, equals, value = word.partition("=")
                slot = self._options.get(option)
                if slot is None or (slot.is_flag and equals) or (option in given and not slot.is_many):
                    raise _NotPlain
                if not slot.is_flag and not equals:
                    value = next(coming, "")
                if not slot.is_flag and (not value or value.startswith("-")):
                    raise _NotPlain
                given.setdefault(option, []).append(value)
        return words, given

    def _placed(self, words: Sequence[str]) -> list[Any]:
        here, more = words[: len(self._places)], words[len(self._places) :]
        if more and self._rest is None:
            raise _NotPlain
        if any(slot.default is inspect.Parameter.empty for slot in self._places[len(here) :]):
            raise _NotPlain
        placed = [slot.word(word) for slot, word in zip(self._places, here, strict=False)]
        return placed + [self._rest.word(word) for word in more if self._rest is not None]
