"""Surveys become a table, an object, and lines for what changed."""

import io
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from hansa.cli.log_lines import LogLines
from hansa.cli.topics_command import (
    Rates,
    Topics,
    as_object,
    as_table,
    number,
    summary,
    takers_table,
    tell_changes,
)
from hansa.topics import TopicReport

OWNER = b"\x01abcd"
OTHER = b"\x01zzzz"


def report(topic: str = "chat:room1", published_count: int | None = 0, **more: Any) -> TopicReport:
    values = {"owner": OWNER, "subscribers_count": 2, "dropped_count": 0, **more}
    return TopicReport(topic=topic, published_count=published_count, **values)


def looked(*surveys: Iterable[TopicReport]) -> Topics:
    """What the last of several surveys shows, one second after the other."""
    rates = Rates()
    return [rates.look(reports, {}, now=10.0 + second) for second, reports in enumerate(surveys)][-1]


def only_rate(topics: Topics) -> float | None:
    (line,) = topics.values()
    return line.rate


# -- rates


def test_the_rate_is_what_was_published_between_two_looks() -> None:
    rates = Rates()
    rates.look([report(published_count=100)], {}, now=10.0)
    assert only_rate(rates.look([report(published_count=160)], {}, now=12.0)) == 30.0
    assert only_rate(rates.look([report(published_count=160)], {}, now=13.0)) == 0.0


def test_without_a_look_before_there_is_no_rate() -> None:
    assert only_rate(looked([report(published_count=100)])) is None
    assert only_rate(looked([], [report(published_count=100)])) is None


def test_another_owner_and_a_count_that_began_anew_give_no_rate() -> None:
    assert only_rate(looked([report(published_count=5)], [report(published_count=9, owner=OTHER)])) is None
    assert only_rate(looked([report(published_count=5)], [report(published_count=4)])) is None


def test_an_owner_that_tells_no_counts_has_a_line_without_numbers() -> None:
    raw = report(published_count=None, subscribers_count=None, dropped_count=None)
    topics = looked([raw], [raw])
    assert only_rate(topics) is None
    assert as_object(topics, [OWNER], {})["topics"][0]["published_count"] is None
    assert "-" in shown(topics)


def test_a_topic_whose_owner_did_not_answer_in_time_is_there_all_the_same() -> None:
    topics = Rates().look([report("a")], {"a": OWNER, "b": OTHER}, now=1.0)
    assert [(line.topic, line.published_count) for line in topics.values()] == [("a", 0), ("b", None)]


def test_two_owners_of_one_topic_are_both_shown_and_one_topic() -> None:
    topics = looked([report(), report(owner=OTHER)])
    assert len(topics) == 2
    assert summary(topics, [OWNER, OTHER]) == "1 topic at 2 nodes"


# -- pictures


def shown(topics: Topics) -> str:
    return printed(as_table(topics))


def printed(table: Table) -> str:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(table)
    return console.export_text()


def test_the_table_shows_every_number_and_what_peers_wrote_never_as_markup() -> None:
    name = "[red]x\u202e"
    topics = looked([report(name, 1_000)], [report(name, 2_500, dropped_count=7)])
    screen = shown(topics)
    assert r"[red]x\u202e" in screen
    for text in ("01:61626364", "2", "1,500", "7", "2,500"):
        assert text in screen
    assert summary(topics, [OWNER]) == "1 topic at 1 node, 1,500 messages/s"


def test_nodes_that_take_topics_stand_with_what_one_types_to_name_them() -> None:
    topics = looked([report("a"), report("b"), report("c", owner=OTHER)])
    rows = printed(takers_table({OTHER: "[red]x\x1b", OWNER: "01:61626364"}, topics)).splitlines()
    words = [[cell.strip() for cell in row.split("│")[1:-1]] for row in rows if "01:" in row]
    assert words == [["01:7a7a7a7a", r"[red]x\x1b", "1"], ["01:61626364", "01:61626364", "2"]]
    # A name that is the id itself is shown once.
    assert printed(takers_table({OWNER: "01:61626364"}, topics)).count("01:61626364") == 1


def test_topics_as_json() -> None:
    topics = looked([report()], [report(published_count=3)])
    plain = json.loads(json.dumps(as_object(topics, [OTHER], {OTHER: "host-2"})))
    assert plain["nodes"] == ["01:7a7a7a7a"]
    assert plain["takers"] == [{"node": "01:7a7a7a7a", "name": "host-2"}]
    assert plain["topics"] == [
        {
            "topic": "chat:room1",
            "owner": "01:61626364",
            "subscribers_count": 2,
            "published_count": 3,
            "dropped_count": 0,
            "messages_per_s": 3.0,
        }
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0, "0"), (0.0, "0"), (2.25, "2.2"), (3.0, "3"), (12345.6, "12,346")]
)
def test_small_rates_keep_a_digit(value: float | None, text: str) -> None:
    assert number(value) == text


# -- changes


def told(say: Callable[[LogLines], None]) -> list[dict[str, Any]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        with LogLines(as_json=True, descriptor=writing) as log:
            say(log)
        os.close(writing)
        return [json.loads(line) for line in file]


def test_only_topics_with_other_numbers_are_told_and_those_that_are_gone() -> None:
    rates = Rates()
    first = rates.look([report("a", 1), report("b", 1), report("c", 1)], {}, now=1.0)
    second = rates.look([report("a", 1), report("b", 5)], {}, now=2.0)
    events = told(lambda log: tell_changes(log, {}, first))
    assert [(one["event"], one["topic"]) for one in events] == [("topic", name) for name in "abc"]
    events = told(lambda log: tell_changes(log, first, second))
    assert [(one["event"], one["topic"]) for one in events] == [("topic", "b"), ("topic-removed", "c")]
    assert events[0]["messages_per_s"] == 4.0


def test_a_topic_that_falls_silent_is_told_once() -> None:
    rates = Rates()
    looks = [
        rates.look([report(published_count=count)], {}, now=float(at))
        for at, count in enumerate((1, 9, 9, 9))
    ]
    assert len(told(lambda log: tell_changes(log, looks[1], looks[2]))) == 1
    assert told(lambda log: tell_changes(log, looks[2], looks[3])) == []
