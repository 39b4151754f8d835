"""Checks the names of topics, patterns and the service of a mesh. Pure.

Every name that a program gives is checked here, once, and is used as the bytes of its frame from then on.
"""

from __future__ import annotations

import re
from typing import Final

from hansa.errors import BadArgument
from hansa.limits import SPOT_SERVICE_CHARS_MAX, TOPIC_BYTES_MAX
from hansa.presence.provider_info import NODES

SERVICE: Final = NODES
"""The reserved service that nodes of a mesh register, alone or followed by a dot and a cluster's name."""

_STAR: Final = "*"
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_CLUSTERED: Final = re.compile(rf"{re.escape(SERVICE)}(\.[a-z0-9.-]+)?")


def check_topic(topic: str) -> bytes:
    """The frame of a topic's name. Raises BadArgument unless it names one topic that can be sent."""
    _check_text(topic, "a topic")
    if _STAR in topic:
        raise BadArgument(
            f"topic {topic!r} has a '*': only patterns have one, in subscribe; give the topic's whole name"
        )
    if not topic:
        raise BadArgument("a topic has no name; give it one of its own, such as 'zone:12:state'")
    return _frame(topic, topic, "topic")


def is_pattern(text: str) -> bool:
    """Whether this is meant to be a pattern: it has a `*` somewhere."""
    return _STAR in text


def check_pattern(pattern: str) -> bytes:
    """What a pattern's topics begin with: the frame of all before its `*`; empty for the `*` alone.

    Raises BadArgument unless there is one `*`, at the end.
    """
    _check_text(pattern, "a pattern")
    prefix, star, rest = pattern.partition(_STAR)
    if not star:
        raise BadArgument(
            f"pattern {pattern!r} has no '*': write {pattern + _STAR!r}, or subscribe the topic"
        )
    if rest:
        raise BadArgument(
            f"pattern {pattern!r} has more than one '*', or one before its end: a pattern is a beginning "
            f"with one '*' after it; write {prefix + _STAR!r}"
        )
    return _frame(prefix, pattern, "pattern")


def check_service(service: str) -> str:
    """Return the service unchanged. Raises BadArgument unless it is `spot-node` or `spot-node.<cluster>`."""
    if not isinstance(service, str):
        raise BadArgument(f"a service is a str, and {service!r} is not")
    if len(service) > SPOT_SERVICE_CHARS_MAX:
        raise BadArgument(
            f"service {service[:SPOT_SERVICE_CHARS_MAX]!r}... has {len(service)} letters; "
            f"shorten the cluster's name until it has {SPOT_SERVICE_CHARS_MAX} at most"
        )
    if _CLUSTERED.fullmatch(service) is None:
        raise BadArgument(
            f"service {service!r} is not one of a mesh: write {SERVICE!r}, or {SERVICE + '.blue'!r} "
            "for a cluster called blue, whose name may have a-z, 0-9, '.' and '-'"
        )
    return service


def _check_text(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise BadArgument(f"{what} is a str, and {text!r} is not")
    control = _CONTROL.search(text)
    if control is not None:
        raise BadArgument(
            f"{what} has the control character {control.group()!r} in its name {text!r}; leave it out"
        )


def _frame(text: str, whole: str, what: str) -> bytes:
    try:
        frame = text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadArgument(f"{what} {whole!r} has half a surrogate pair; write the whole character") from None
    if len(frame) > TOPIC_BYTES_MAX:
        raise BadArgument(
            f"{what} {whole[:TOPIC_BYTES_MAX]!r}... has {len(frame)} bytes in UTF-8; "
            f"shorten it to {TOPIC_BYTES_MAX} at most"
        )
    return frame
