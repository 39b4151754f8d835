"""A message of a topic as one line of output."""

from __future__ import annotations

from typing import Any

from hansa.cli.log_lines import visible
from hansa.cli.payload_argument import parts_object
from hansa.messaging.spot import TopicMessage


def message_line(message: TopicMessage, *, for_terminal: bool) -> bytes:
    """The topic, a tab, the payload.

    The payload is as it is, but for what would make it several lines: a line end at its end is left out,
    others are written `\\n`. A terminal gets nothing that it would obey, and escapes for what is no text.
    """
    payload = message.payload.removesuffix(b"\n")
    if for_terminal:
        payload = visible(payload.decode(errors="backslashreplace")).encode()
    else:
        payload = payload.replace(b"\n", b"\\n")
    topic = visible(message.topic) if for_terminal else message.topic
    return topic.encode() + b"\t" + payload + b"\n"


def message_object(message: TopicMessage) -> dict[str, Any]:
    """As JSON: the payload as text if it is text, else as base64."""
    shown = parts_object([message.payload])
    return {
        "topic": message.topic,
        "encoding": shown["encoding"],
        "payload": shown["parts"][0],
        "sequence": message.sequence or None,
    }
