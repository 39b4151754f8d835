"""Frozen dataclasses as JSON and back: the records of a group in its store, and what peers say to each other.

A field is text, a whole number, a float, a bool, an enum of texts, a tuple of texts or of such dataclasses, a
mapping of texts, or such a dataclass. Fields that are not known are passed over, so that a newer peer may say
more; a missing one takes its default.
"""

import json
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from hansa.errors import BadRecord

V = TypeVar("V")


def encode(value: Any) -> bytes:
    """A dataclass as JSON, with its keys in order: equal values are equal bytes."""
    return json.dumps(asdict(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def decode(kind: type[V], data: bytes) -> V:
    """The dataclass that was encoded. Raises `BadRecord`."""
    try:
        return cast(V, _read(kind, json.loads(data), kind.__name__))
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not a {kind.__name__}: {error}") from error


def _read(kind: Any, found: Any, where: str) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_fields(kind, found, where)
    origin = get_origin(kind)
    if origin is tuple:
        if not isinstance(found, list):
            raise ValueError(f"{where} is not a list")
        return tuple(_read(get_args(kind)[0], item, where) for item in found)
    if origin is not None and origin is not UnionType:
        if not isinstance(found, dict):
            raise ValueError(f"{where} is not an object")
        return {str(key): _read(get_args(kind)[1], item, where) for key, item in found.items()}
    if origin is UnionType:
        (inner,) = (one for one in get_args(kind) if one is not type(None))
        return None if found is None else _read(inner, found, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(found)
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        return float(found)
    # A bool is an int to Python, and not to whoever wrote the record.
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise ValueError(f"{where} is not {kind.__name__}")
    return found


def _read_fields(kind: type, found: Any, where: str) -> Any:
    if not isinstance(found, dict):
        raise ValueError(f"{where} is not an object")
    hints = get_type_hints(kind)
    given = {}
    for field in fields(kind):
        if field.name in found:
            given[field.name] = _read(hints[field.name], found[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**given)
