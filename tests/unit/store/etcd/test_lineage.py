"""A lineage tells a store that went on from one that went back, and doubts no more often than it must."""

import pytest

from hansa.store.etcd.lineage import Lineage, Mark
from hansa.store.values import KeyValue

pytestmark = pytest.mark.spec("CRD-17")

CLUSTER, OTHER = 0xA, 0xB


def seen(revision: int) -> Lineage:
    lineage = Lineage()
    assert lineage.told(CLUSTER, 2, revision, since=lineage.mark) is None
    return lineage


def put(revision: int, value: bytes = b"", *, key: bytes = b"k", version: int = 1) -> KeyValue:
    return KeyValue(key=key, value=value, create_revision=1, mod_revision=revision, version=version)


def tell(lineage: Lineage, revision: int, *, cluster: int = CLUSTER, term: int = 2) -> str:
    """Why the history is lost; nothing while it is not."""
    lost = lineage.told(cluster, term, revision, since=lineage.mark)
    return "" if lost is None else lost.why


def test_a_store_that_goes_on_is_the_same() -> None:
    lineage = seen(10)
    for revision in (10, 11, 400):
        assert tell(lineage, revision) == ""
        assert lineage.revision == revision
    assert not lineage.is_doubtful
    assert lineage.refusal("it") is None


def test_an_answer_that_was_overtaken_by_a_later_one_is_no_way_back() -> None:
    lineage = seen(10)
    early = lineage.mark
    assert tell(lineage, 20) == ""
    assert lineage.told(CLUSTER, 2, 15, since=early) is None
    assert lineage.revision == 20


def test_a_lower_revision_is_lost_history_and_refuses_changes_until_it_is_beyond() -> None:
    lineage = seen(500)
    assert tell(lineage, 200) == "it is at revision 200 and was at 500"
    assert lineage.mark == (1, 200)
    refusal = lineage.refusal("store docks")
    assert refusal is not None
    for words in ("store docks", "revision 200", "was at 500", "--bump-revision", "--mark-compacted"):
        assert words in str(refusal)
    assert tell(lineage, 201) == tell(lineage, 499) == ""
    assert lineage.is_behind
    assert tell(lineage, 500) == ""
    assert lineage.refusal("store docks") is None
    assert lineage.losses_count == 1


def test_a_store_that_goes_back_twice_is_refused_by_the_highest_that_was_seen() -> None:
    lineage = seen(500)
    assert tell(lineage, 200)
    assert tell(lineage, 100)
    assert tell(lineage, 300) == ""
    assert "was at 500" in str(lineage.refusal("it"))


def test_another_cluster_is_another_history_and_refused_only_below() -> None:
    lineage = seen(500)
    assert tell(lineage, 600, cluster=OTHER) == "cluster b answers, and no longer a"
    assert lineage.refusal("it") is None
    assert tell(lineage, 601, cluster=OTHER) == ""
    assert tell(lineage, 550, cluster=CLUSTER)
    assert lineage.refusal("it") is not None


def test_what_was_asked_before_a_loss_tells_nothing_after_it() -> None:
    lineage = seen(500)
    old: Mark = lineage.mark
    assert tell(lineage, 200)
    assert lineage.told(CLUSTER, 2, 501, since=old) is None
    assert lineage.told(OTHER, 2, 501, since=old) is None
    assert lineage.mark == (1, 200)


def test_a_head_that_says_nothing_is_not_compared() -> None:
    lineage = seen(500)
    assert tell(lineage, 0) == tell(lineage, 500, cluster=0, term=2) == ""
    assert lineage.mark == (0, 500)
    assert not Lineage().is_strange(CLUSTER, 2, 10)
    assert not lineage.is_strange(CLUSTER, 2, 0)


def test_a_new_term_is_doubted_once_and_what_was_seen_before_it_settles_it() -> None:
    lineage = seen(10)
    lineage.seen(10, put(9))
    assert tell(lineage, 11, term=3) == ""
    assert lineage.is_doubtful
    # More is heard, and it may all be of another history.
    lineage.seen(14, put(14, version=2))
    assert tell(lineage, 15, term=4) == ""
    asked = lineage.question
    assert (asked.mark, asked.witness) == ((0, 10), put(9))
    assert lineage.confirmed(put(9), asked=asked) is None
    assert not lineage.is_doubtful
    assert lineage.question.mark == (0, 15)
    lineage.doubt()
    tell(lineage, 16, term=4)
    asked = lineage.question
    assert asked.mark == (0, 15)
    assert lineage.confirmed(put(14, version=2), asked=asked) is None
    assert tell(lineage, 17, term=4) == ""
    assert not lineage.is_doubtful


def test_a_connection_that_breaks_while_a_doubt_is_being_settled_is_a_doubt_of_its_own() -> None:
    lineage = seen(10)
    lineage.doubt()
    asked = lineage.question
    lineage.doubt()
    assert lineage.question is asked
    lineage.doubt(anew=True)
    assert lineage.confirmed(None, asked=asked) is None
    assert lineage.is_doubtful
    assert lineage.question.mark == (0, 10)
    assert lineage.confirmed(None, asked=lineage.question) is None
    assert not lineage.is_doubtful


@pytest.mark.parametrize(
    ("cluster", "term", "revision", "is_strange"),
    [
        (CLUSTER, 2, 500, False),
        (CLUSTER, 2, 501, False),
        (CLUSTER, 2, 499, True),
        (CLUSTER, 3, 500, True),
        (OTHER, 2, 500, True),
    ],
)
def test_an_answer_that_may_be_old_makes_doubt_and_decides_nothing(
    cluster: int, term: int, revision: int, is_strange: bool
) -> None:
    lineage = seen(500)
    assert lineage.is_strange(cluster, term, revision) == is_strange
    assert (lineage.mark, lineage.is_doubtful) == ((0, 500), False)


def test_a_store_that_never_had_what_was_seen_is_another_and_may_be_changed_when_it_is_beyond() -> None:
    lineage = seen(500)
    lost = lineage.denied(9_000, asked=lineage.question)
    assert lost is not None
    assert (lost.why, lost.revision) == ("it is at revision 9000 and never was at 500", 9_000)
    assert lineage.refusal("it") is None
    lineage = seen(500)
    asked = lineage.question
    assert tell(lineage, 200)
    # The same loss is told once.
    assert lineage.denied(200, asked=asked) is None
    assert lineage.losses_count == 1


@pytest.mark.parametrize(
    ("found", "is_lost"),
    [
        (put(40, b"ours"), False),
        (None, True),
        (put(40, b"theirs"), True),
        (put(40, b"ours", version=2), True),
        (put(30, b"ours"), True),
    ],
)
def test_revisions_that_were_given_out_once_more_are_told_by_what_is_there(
    found: KeyValue | None, is_lost: bool
) -> None:
    lineage = seen(30)
    lineage.seen(50, put(40, b"ours"))
    assert lineage.question.witness == put(40, b"ours")
    assert (lineage.confirmed(found, asked=lineage.question) is not None) == is_lost
    assert lineage.losses_count == is_lost


def test_the_latest_put_that_was_seen_is_the_witness_of_the_question_that_was_asked() -> None:
    lineage = seen(30)
    lineage.seen(50, put(40))
    lineage.seen(50, put(39, key=b"older"))
    asked = lineage.question
    assert (asked.mark, asked.witness) == ((0, 50), put(40))
    # While the answer is under way more is heard of the same key.
    lineage.seen(60, put(60, version=2))
    assert lineage.confirmed(put(40), asked=asked) is None
    assert lineage.question.witness == put(60, version=2)


def test_what_is_forgotten_settles_the_doubt_without_a_loss() -> None:
    lineage = seen(30)
    tell(lineage, 31, term=9)
    lineage.unsettled(asked=lineage.question)
    assert (lineage.is_doubtful, lineage.losses_count) == (False, 0)
