"""The books of the demo: latencies add up, and what was due is delivered, dropped, missed or cut off."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.demo.board import NodeRow, ReaderRow, is_wanted, mesh_books
from hansa.demo.books import Latencies, ReaderLedger, Stream, streams_from_json, write_message

# -- the ledger of one reader


def test_a_ledger_counts_each_stream_by_itself() -> None:
    ledger = ReaderLedger()
    for topic, source, number in (
        ("a", "1.1", 1),
        ("a", "2.1", 7),
        ("a", "1.1", 2),
        ("b", "1.1", 1),
        ("a", "2.1", 9),
    ):
        assert ledger.note(topic, write_message(source, number, 12.5)) == 12.5
    assert streams_from_json(ledger.as_json()) == {
        "a 1.1": Stream(1, 2, 2),
        "a 2.1": Stream(7, 9, 2),
        "b 1.1": Stream(1, 1, 1),
    }
    assert (ledger.received_count, ledger.unordered_count) == (5, 0)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_what_comes_twice_or_late_is_counted_apart(numbers: list[int]) -> None:
    ledger = ReaderLedger()
    for number in numbers:
        ledger.note("a", write_message("1.1", number, 0.0))
    rising = [number for at, number in enumerate(numbers) if number > max(numbers[:at], default=0)]
    assert ledger.streams["a 1.1"] == Stream(rising[0], rising[-1], len(rising))
    assert ledger.unordered_count == len(numbers) - len(rising)


@pytest.mark.parametrize(
    ("topic", "text", "expected"),
    [
        ("zone:1:a", "zone:*", True),
        ("chat", "zone:*", False),
        ("chat", "chat", True),
        ("chat:a", "chat", False),
    ],
)
def test_who_wants_what(topic: str, text: str, expected: bool) -> None:
    assert is_wanted(topic, text) is expected


# -- the books of all


def reader(
    streams: dict[str, tuple[int, int, int]], *, missed_count: int = 0, dropped_count: int = 0
) -> ReaderRow:
    return ReaderRow(
        wants=["zone:*", "chat"],
        streams={name: Stream(*numbers) for name, numbers in streams.items()},
        received_count=sum(numbers[2] for numbers in streams.values()),
        unordered_count=0,
        missed_count=missed_count,
        dropped_count=dropped_count,
    )


def node(
    number: int, *, life: int = 1, published: dict[str, int] | None = None, **readers: ReaderRow
) -> NodeRow:
    return NodeRow(number=number, life=life, published=published or {}, readers=readers)


def test_everything_that_was_published_is_due_to_every_reader_that_wants_it() -> None:
    slow = replace(reader({"zone:1 1.1": (40, 100, 30)}, dropped_count=70), wants=["zone:*"])
    books = mesh_books(
        [
            node(
                1,
                published={"zone:1 1.1": 100, "chat 1.1": 10},
                a=reader({"zone:1 1.1": (1, 100, 100), "chat 1.1": (1, 10, 10)}),
            ),
            node(
                2, a=reader({"zone:1 1.1": (1, 100, 95), "chat 1.1": (1, 10, 10)}, missed_count=5), slow=slow
            ),
        ],
        [],
    )
    assert books.due_count == 110 + 110 + 100
    assert (books.delivered_count, books.missed_count, books.dropped_count) == (245, 5, 70)
    assert books.missing_count == 0
    assert books.is_balanced


Spoil = Callable[[ReaderRow], ReaderRow]


@pytest.mark.parametrize(
    ("spoil", "missing_count"),
    [
        (lambda line: replace(line, streams={"zone:1 1.1": Stream(1, 100, 99)}), 1),
        (lambda line: replace(line, streams={"zone:1 1.1": Stream(1, 98, 98)}), 2),
        (lambda line: replace(line, streams={"zone:1 1.1": Stream(4, 100, 97)}), 3),
        (lambda line: replace(line, streams={}), 100),
        (lambda line: replace(line, dropped_count=1), -1),
        (lambda line: replace(line, missed_count=2), -2),
        (lambda line: replace(line, unordered_count=1), 0),
    ],
)
def test_one_message_more_or_less_and_the_books_do_not_balance(spoil: Spoil, missing_count: int) -> None:
    good = reader({"zone:1 1.1": (1, 100, 100)})
    assert mesh_books([node(1, published={"zone:1 1.1": 100}, a=good)], []).is_balanced
    books = mesh_books([node(1, published={"zone:1 1.1": 100}, a=spoil(good))], [])
    assert books.missing_count == missing_count
    assert not books.is_balanced


def test_what_only_some_had_when_the_publisher_was_killed_is_cut_off_for_the_others() -> None:
    killed = node(1, published={"zone:1 1.1": 50})
    living = [node(2, a=reader({"zone:1 1.1": (1, 53, 53)})), node(3, a=reader({"zone:1 1.1": (1, 51, 51)}))]
    books = mesh_books(living, [killed])
    assert (books.due_count, books.delivered_count, books.cut_off_count) == (106, 104, 2)
    assert books.published_count == 53
    assert books.is_balanced
    # By its last word it had published more than anybody saw.
    killed.published["zone:1 1.1"] = 60
    books = mesh_books(living, [killed])
    assert (books.cut_off_count, books.missing_count) == (7 + 9, 0)


def test_the_end_of_a_killed_stream_that_a_slow_reader_dropped_is_not_cut_off() -> None:
    killed = node(1, published={"zone:1 1.1": 50})
    slow = reader({"zone:1 1.1": (1, 20, 20)}, dropped_count=30)
    books = mesh_books([node(2, a=reader({"zone:1 1.1": (1, 50, 50)}), slow=slow)], [killed])
    assert (books.cut_off_count, books.dropped_count, books.missing_count) == (0, 30, 0)


def test_a_node_that_came_back_is_due_what_came_since_and_all_of_its_own() -> None:
    killed = node(1, published={"zone:1 1.1": 50})
    came_back = node(
        1,
        life=2,
        published={"zone:1 1.2": 10},
        a=reader({"zone:2 2.1": (81, 100, 20), "zone:1 1.2": (1, 10, 10)}),
    )
    other = node(
        2,
        published={"zone:2 2.1": 100},
        a=reader({"zone:1 1.1": (1, 50, 50), "zone:1 1.2": (1, 10, 10), "zone:2 2.1": (1, 100, 100)}),
    )
    books = mesh_books([came_back, other], [killed])
    assert books.due_count == 20 + 10 + 50 + 10 + 100
    assert books.is_balanced
    late = replace(came_back, readers={"a": reader({"zone:2 2.1": (81, 100, 20), "zone:1 1.2": (2, 10, 9)})})
    assert mesh_books([late, other], [killed]).missing_count == 1


# -- latencies

latencies_s = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=200)


def noted(values_s: list[float]) -> Latencies:
    latencies = Latencies()
    for value_s in values_s:
        latencies.note(value_s)
    return latencies


def test_without_latencies_there_is_no_percentile() -> None:
    assert Latencies().quantile_s(0.5) is None


@given(latencies_s, st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_right_to_within_a_bucket(values_s: list[float], share: float) -> None:
    ordered = sorted(values_s)
    exact_s = next(value for count, value in enumerate(ordered, 1) if count >= share * len(ordered))
    found_s = noted(values_s).quantile_s(share)
    assert found_s is not None
    assert exact_s / 1.1 <= found_s <= exact_s * 1.1


@given(latencies_s, latencies_s)
def test_adding_up_is_the_same_as_noting_all(left_s: list[float], right_s: list[float]) -> None:
    total = noted(left_s)
    total.add(Latencies.from_json(noted(right_s).as_json()))
    assert total.as_json() == noted(left_s + right_s).as_json()


def test_less_than_a_microsecond_counts_as_one() -> None:
    assert noted([0.0, 1e-9]).quantile_s(1.0) == pytest.approx(1e-6, rel=0.1)


def test_a_cleared_one_is_empty() -> None:
    latencies = noted([0.5])
    latencies.clear()
    assert latencies.as_json() == {}
