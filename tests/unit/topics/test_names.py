"""Names of topics, patterns and services: what is taken, and what the refusal tells to write instead."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument
from hansa.limits import SPOT_SERVICE_CHARS_MAX, TOPIC_BYTES_MAX
from hansa.topics.names import check_pattern, check_service, check_topic, is_pattern


@pytest.mark.parametrize("topic", ["a", "zone:12:state", "채팅:1", "x" * TOPIC_BYTES_MAX, "한" * 85, " "])
def test_a_topic_goes_on_as_its_utf8_bytes(topic: str) -> None:
    assert check_topic(topic) == topic.encode()


@pytest.mark.parametrize(
    ("topic", "advice"),
    [
        ("", "give it one of its own"),
        ("zone:*", "give the topic's whole name"),
        ("*", "give the topic's whole name"),
        ("a*b", "give the topic's whole name"),
        ("x" * (TOPIC_BYTES_MAX + 1), "256 bytes in UTF-8; shorten it to 255"),
        ("한" * 86, "258 bytes in UTF-8; shorten it to 255"),
        ("a\nb", r"control character '\n'"),
        ("a\x00", r"control character '\x00'"),
        ("\x7f", r"control character '\x7f'"),
        ("\x85", r"control character '\x85'"),
        ("\ud800", "write the whole character"),
        (b"zone", "is a str"),
        (7, "is a str"),
        (None, "is a str"),
    ],
)
def test_a_bad_topic_is_refused_with_what_to_do(topic: Any, advice: str) -> None:
    with pytest.raises(BadArgument) as refused:
        check_topic(topic)
    assert advice in str(refused.value)


@given(st.text(max_size=80))
def test_an_accepted_topic_reads_back_and_a_refused_one_is_outside_the_rules(topic: str) -> None:
    try:
        frame = check_topic(topic)
    except BadArgument:
        surrogate = any("\ud800" <= letter <= "\udfff" for letter in topic)
        control = any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in topic)
        assert not topic or "*" in topic or surrogate or control or len(topic.encode()) > TOPIC_BYTES_MAX
    else:
        assert frame.decode() == topic
        assert "*" not in topic
        assert 1 <= len(frame) <= TOPIC_BYTES_MAX


@pytest.mark.spec("SPT-06")
@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("zone:12:*", b"zone:12:"), ("*", b""), ("채*", "채".encode()), ("x" * 255 + "*", b"x" * 255)],
)
def test_a_pattern_is_a_beginning_and_one_star(pattern: str, prefix: bytes) -> None:
    assert check_pattern(pattern) == prefix


@pytest.mark.spec("SPT-06")
@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("zone:12", "write 'zone:12*'"),
        ("", "write '*'"),
        ("zone:*:state", "write 'zone:*'"),
        ("zone:**", "write 'zone:*'"),
        ("*zone", "write '*'"),
        ("**", "write '*'"),
        ("x" * 256 + "*", "256 bytes in UTF-8; shorten it to 255"),
        ("a\t*", r"control character '\t'"),
        ("\udfff*", "write the whole character"),
        (b"zone:*", "is a str"),
    ],
)
def test_a_bad_pattern_is_refused_with_what_to_write(pattern: Any, advice: str) -> None:
    with pytest.raises(BadArgument) as refused:
        check_pattern(pattern)
    assert advice in str(refused.value)


def test_whatever_has_a_star_is_meant_as_a_pattern() -> None:
    assert [is_pattern(text) for text in ("zone:*", "*", "a*b", "zone:12", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.spec("SPT-15")
@pytest.mark.parametrize(
    "service",
    [
        "spot-node",
        "spot-node.blue",
        "spot-node.eu-1.blue",
        "spot-node.-",
        "spot-node." + "x" * (SPOT_SERVICE_CHARS_MAX - 10),
    ],
)
def test_a_service_of_a_mesh_is_taken(service: str) -> None:
    assert check_service(service) == service


@pytest.mark.spec("SPT-15")
@pytest.mark.parametrize(
    ("service", "advice"),
    [
        ("", "write 'spot-node'"),
        ("spot-node.", "write 'spot-node'"),
        ("spot-nodes", "write 'spot-node'"),
        ("spot-node-blue", "'spot-node.blue'"),
        ("spot-node.Blue", "a-z, 0-9, '.' and '-'"),
        ("spot-node.a_b", "a-z, 0-9, '.' and '-'"),
        ("spot-node.b\n", "a-z, 0-9, '.' and '-'"),
        ("xspot-node", "write 'spot-node'"),
        ("orders", "write 'spot-node'"),
        ("spot-node." + "x" * (SPOT_SERVICE_CHARS_MAX - 9), "until it has 64 at most"),
        (b"spot-node", "is a str"),
        (None, "is a str"),
    ],
)
def test_a_bad_service_is_refused_with_what_to_write(service: Any, advice: str) -> None:
    with pytest.raises(BadArgument) as refused:
        check_service(service)
    assert advice in str(refused.value)
