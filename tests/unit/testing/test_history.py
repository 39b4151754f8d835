"""Facts in order, a digest over all of them, and a tail to read."""

from hansa.testing import History
from hansa.testing.history import FACTS_KEPT_MAX


def history_of(*facts: tuple[str, str]) -> History:
    history = History(lambda: 1.5)
    for node, what in facts:
        history.record(node, what)
    return history


def test_equal_histories_have_equal_digests() -> None:
    facts = [("alpha", "started"), ("", "cut")]
    assert history_of(*facts).digest() == history_of(*facts).digest()
    assert history_of(*facts).digest() != history_of(*reversed(facts)).digest()
    assert history_of(("a", "b c")).digest() != history_of(("a b", "c")).digest()


def test_the_digest_sees_every_bit_of_the_time() -> None:
    early, late = History(lambda: 0.1 + 0.2), History(lambda: 0.3)
    early.record("a", "b")
    late.record("a", "b")
    assert early.tail(1) == late.tail(1)
    assert early.digest() != late.digest()


def test_the_tail_shows_the_newest_and_counts_the_rest() -> None:
    history = history_of(*[("alpha", f"fact {number}") for number in range(10)])
    lines = history.tail(2).splitlines()
    assert lines[0].strip() == "(8 facts before)"
    assert [line.split("alpha")[1].strip() for line in lines[1:]] == ["fact 8", "fact 9"]
    assert history.tail(100).count("fact") == 10


def test_memory_is_bounded_and_the_digest_is_not_shortened_by_it() -> None:
    long, other = history_of(), history_of()
    for number in range(FACTS_KEPT_MAX + 10):
        long.record("alpha", f"{number}")
        other.record("alpha", f"{number if number else 'another'}")
    assert len(long) == FACTS_KEPT_MAX + 10
    assert len(long.facts) == FACTS_KEPT_MAX
    assert long.facts == other.facts
    assert long.digest() != other.digest()
