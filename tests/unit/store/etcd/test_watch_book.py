"""Tapes: whole revisions, in order, once, resumed where they stopped, and bounded."""

import pytest

from hansa.errors import Compacted, HandshakeRefused, StoreUnavailable, WatchOverrun
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.watch_book import WatchBook, WatchTape

REASON = "etcdserver: permission denied"


def event(revision: int, key: bytes = b"k", value: bytes = b"") -> api.Event:
    return api.Event(
        type=api.Event.PUT,
        kv=api.KeyValue(key=key, value=value, mod_revision=revision, create_revision=revision, version=1),
    )


def told(*events: api.Event, fragment: bool = False, watch_id: int = 1, at: int = 0) -> api.WatchResponse:
    header = api.ResponseHeader(revision=at)
    return api.WatchResponse(header=header, watch_id=watch_id, events=events, fragment=fragment)


def created(watch_id: int, at: int) -> api.WatchResponse:
    return api.WatchResponse(header=api.ResponseHeader(revision=at), watch_id=watch_id, created=True)


def cancelled(watch_id: int, **fields: object) -> api.WatchResponse:
    return api.WatchResponse(watch_id=watch_id, canceled=True, **fields)  # type: ignore[arg-type]


def taken(tape: WatchTape) -> list[tuple[int, list[bytes]]]:
    batches = []
    while (batch := tape.take()) is not None:
        batches.append((batch.revision, [event.item.key for event in batch.events]))
    return batches


def starts(book: WatchBook) -> list[tuple[int, int]]:
    """What is asked for now: under which number, and from where."""
    requests = [request.create_request for request in book.requests() if request.HasField("create_request")]
    return [(request.watch_id, request.start_revision) for request in requests]


def test_one_answer_with_several_revisions_is_several_batches() -> None:
    tape = WatchTape(b"k", b"l", start_revision=5)
    tape.hear(told(event(5, b"k1"), event(5, b"k2"), event(7, b"k3")))
    assert taken(tape) == [(5, [b"k1", b"k2"]), (7, [b"k3"])]
    assert tape.next_revision == 8


def test_a_revision_in_fragments_is_one_batch_and_earlier_ones_do_not_wait_for_it() -> None:
    tape = WatchTape(b"k", b"l", start_revision=5)
    tape.hear(told(event(5, b"k1"), event(6, b"k1"), fragment=True))
    assert taken(tape) == [(5, [b"k1"])]
    tape.hear(told(event(6, b"k2"), fragment=True))
    assert taken(tape) == []
    tape.hear(told(event(6, b"k3"), event(7, b"k1")))
    assert taken(tape) == [(6, [b"k1", b"k2", b"k3"]), (7, [b"k1"])]


def test_what_was_not_complete_is_asked_for_again_and_comes_once() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l", start_revision=5)
    book.add(tape)
    assert starts(book) == [(1, 5)]
    book.hear(created(1, 9))
    book.hear(told(event(5), event(6, b"k1"), fragment=True))
    book.break_off()
    assert starts(book) == [(2, 6)]
    book.hear(created(2, 9))
    book.hear(told(event(6, b"k1"), event(6, b"k2"), watch_id=2))
    assert taken(tape) == [(5, [b"k"]), (6, [b"k1", b"k2"])]


def test_what_a_member_tells_twice_is_told_once() -> None:
    tape = WatchTape(b"k", b"l", start_revision=5)
    tape.hear(told(event(4), event(5), event(6)))
    tape.hear(told(event(5), event(6), event(7)))
    assert [revision for revision, _ in taken(tape)] == [5, 6, 7]
    assert tape.repeats_count == 3


def test_a_watch_from_now_is_asked_for_once_it_is_known_when_that_is() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l")
    book.add(tape)
    assert (starts(book), book.unbegun()) == ([], [tape])
    tape.begin(41)
    assert (starts(book), book.unbegun(), tape.start_revision) == ([(1, 42)], [], 42)
    book.hear(created(1, 41))
    # A member that lags says less, one that is ahead more: after a new start it is the same revision.
    book.break_off()
    assert starts(book) == [(2, 42)]


def test_progress_moves_a_quiet_tape_and_a_late_word_does_not_move_it_back() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l", start_revision=5)
    book.add(tape)
    assert starts(book) == [(1, 5)]
    book.hear(created(1, 100))
    assert tape.next_revision == 5
    book.hear(told(at=60))
    assert tape.next_revision == 61
    book.hear(told(at=20))
    assert tape.next_revision == 61
    # Asked-for progress is under no watch's number, and is not believed.
    book.hear(told(at=99, watch_id=-1))
    book.break_off()
    assert starts(book) == [(2, 61)]


def test_a_watch_of_the_past_is_not_surely_kept_before_it_tells() -> None:
    tape = WatchTape(b"k", b"l", start_revision=5)
    tape.hear(created(1, 9))
    assert not tape.is_surely_kept
    tape.hear(told(event(6)))
    assert tape.is_surely_kept
    future = WatchTape(b"k", b"l", start_revision=10)
    future.hear(created(1, 9))
    assert future.is_surely_kept


def test_a_forgotten_past_is_told_after_what_was_heard_and_ever_after() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l", start_revision=5)
    book.add(tape)
    starts(book)
    book.hear(told(event(5)))
    tapes, must_reopen = book.hear(cancelled(1, compact_revision=30))
    assert (list(tapes), must_reopen, len(book)) == ([tape], False, 0)
    assert tape.take() is not None
    for _ in range(2):
        with pytest.raises(Compacted) as caught:
            tape.take()
        assert caught.value.compacted_revision == 30
    assert book.requests() == []


def test_a_tape_that_is_not_read_is_ended_with_where_to_go_on() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l", start_revision=5, count_max=3)
    book.add(tape)
    starts(book)
    # The first revision may have any size: it cannot be told in parts.
    book.hear(told(*(event(5, b"k%d" % number) for number in range(9))))
    book.hear(told(event(6), event(7)))
    assert [revision for revision, _ in taken_until_overrun(tape)] == [5]
    with pytest.raises(WatchOverrun) as caught:
        tape.take()
    assert caught.value.resume_revision == 6
    (request,) = book.requests()
    assert request.cancel_request.watch_id == 1
    assert book.hear(told(event(8))) == ((), False)


def test_bytes_bound_a_tape_too() -> None:
    tape = WatchTape(b"k", b"l", start_revision=5, bytes_max=10)
    tape.hear(told(event(5, value=b"12345"), event(6, value=b"123456")))
    assert [revision for revision, _ in taken_until_overrun(tape)] == [5]
    with pytest.raises(WatchOverrun):
        tape.take()


def test_a_tape_that_was_read_has_room_again() -> None:
    tape = WatchTape(b"k", b"l", start_revision=1, count_max=2, bytes_max=20)
    for revision in range(1, 20, 2):
        tape.hear(told(event(revision, value=b"12345"), event(revision + 1, value=b"12345")))
        assert len(taken(tape)) == 2


def test_a_removed_tape_is_cancelled_once_and_hears_nothing() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l", start_revision=5)
    book.add(tape)
    starts(book)
    book.remove(tape)
    book.remove(tape)
    assert [request.cancel_request.watch_id for request in book.requests()] == [1]
    book.hear(told(event(5)))
    assert taken(tape) == []
    assert tape.error is None


def test_a_denial_is_believed_when_it_is_said_to_a_new_stream() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l", start_revision=5)
    book.add(tape)
    starts(book)
    assert book.hear(cancelled(1, created=True, cancel_reason=REASON)) == ((), True)
    book.break_off()
    starts(book)
    tapes, must_reopen = book.hear(cancelled(2, created=True, cancel_reason=REASON))
    assert (list(tapes), must_reopen) == ([tape], False)
    with pytest.raises(HandshakeRefused, match="permission denied"):
        tape.take()


def test_a_refusal_without_a_number_is_for_the_first_that_has_no_answer() -> None:
    book = WatchBook()
    tapes = [WatchTape(b"k", b"l", start_revision=5) for _ in range(3)]
    for tape in tapes:
        book.add(tape)
    starts(book)
    book.remove(tapes[0])
    book.hear(created(1, 9))
    book.hear(cancelled(-1, created=True, cancel_reason="no such thing"))
    assert [tape.error is None for tape in tapes] == [True, False, True]
    book.hear(created(3, 9))
    assert book.hear(cancelled(-1, created=True, cancel_reason="no such thing")) == ((), False)


def test_a_watch_that_is_dropped_for_another_reason_is_asked_for_again_elsewhere() -> None:
    book, tape = WatchBook(), WatchTape(b"k", b"l", start_revision=5)
    book.add(tape)
    starts(book)
    book.hear(created(1, 9))
    assert book.hear(cancelled(1, cancel_reason="shutting down")) == ((), True)
    book.break_off()
    assert starts(book) == [(2, 5)]
    book.hear(cancelled(2, created=True, cancel_reason="no such thing"))
    with pytest.raises(StoreUnavailable, match="no such thing"):
        tape.take()


def test_too_many_watches_are_refused_by_the_watch() -> None:
    book = WatchBook(tapes_max=1)
    first, second = WatchTape(b"k", b"l"), WatchTape(b"k", b"l")
    book.add(first)
    book.add(second)
    assert len(book) == 1
    with pytest.raises(StoreUnavailable):
        second.take()


def taken_until_overrun(tape: WatchTape) -> list[tuple[int, list[bytes]]]:
    batches = []
    while tape._backlog:
        batch = tape.take()
        assert batch is not None
        batches.append((batch.revision, [event.item.key for event in batch.events]))
    return batches
