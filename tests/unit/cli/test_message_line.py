"""A message is one line, whatever is in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.cli.subscribe_command import message_line, message_object
from hansa.topics import TopicMessage


@pytest.mark.parametrize(
    ("payload", "to_terminal", "to_pipe"),
    [
        (b"hello", b"hello", b"hello"),
        (b"hello\n", b"hello", b"hello"),
        ("grüße \\n".encode(), "grüße \\n".encode(), "grüße \\n".encode()),
        (b"two\nlines\n\n", b"two\\nlines\\n", b"two\\nlines\\n"),
        (b"\x1b[2J\xff", b"\\x1b[2J\\xff", b"\x1b[2J\xff"),
        (b"", b"", b""),
    ],
)
def test_text_passes_and_line_ends_do_not(payload: bytes, to_terminal: bytes, to_pipe: bytes) -> None:
    message = TopicMessage("chat:room1", payload, 7)
    assert message_line(message, for_terminal=True) == b"chat:room1\t" + to_terminal + b"\n"
    assert message_line(message, for_terminal=False) == b"chat:room1\t" + to_pipe + b"\n"


@given(st.binary(max_size=200), st.booleans())
def test_a_message_is_always_one_line_with_its_topic_before_the_first_tab(
    payload: bytes, for_terminal: bool
) -> None:
    line = message_line(TopicMessage("a:b", payload, 1), for_terminal=for_terminal)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.split(b"\t", 1)[0] == b"a:b"


def test_a_terminal_does_not_obey_a_topic_either() -> None:
    message = TopicMessage("a\u202eb", b"", 1)
    assert message_line(message, for_terminal=True) == b"a\\u202eb\t\n"
    assert message_line(message, for_terminal=False) == "a\u202eb\t\n".encode()


def test_json_has_the_payload_exactly() -> None:
    assert message_object(TopicMessage("a", "ü\n".encode(), 3)) == {
        "topic": "a",
        "encoding": "utf-8",
        "payload": "ü\n",
        "sequence": 3,
    }
    raw = message_object(TopicMessage("a", b"\xff", 0))
    assert (raw["encoding"], raw["payload"], raw["sequence"]) == ("base64", "/w==", None)
