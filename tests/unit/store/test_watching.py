"""Watchers are told of what they want, in order, once, and of falling behind."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.errors import Compacted, StoreUnavailable, WatchOverrun
from hansa.limits import STORE_WATCH_TURN_COUNT
from hansa.store.mvcc import Mvcc
from hansa.store.values import Delete, Event, Operation, Put, WatchBatch
from hansa.store.watching import Watcher, Watchers, WatcherStage, WatchInterest


class Desk:
    """A history and its watchers."""

    def __init__(self, *, watchers_max: int = 1_000, count_max: int = 1_000, bytes_max: int = 10**6) -> None:
        self.mvcc = Mvcc()
        self.watchers = Watchers(
            self.mvcc, watchers_max=watchers_max, count_max=count_max, bytes_max=bytes_max
        )

    def write(self, *operations: Operation) -> list[Watcher]:
        _, batch = self.mvcc.commit((), operations, ())
        return [] if batch is None else self.watchers.publish(batch)

    def put(self, *keys: str) -> list[Watcher]:
        return self.write(*(Put(key, b"v") for key in keys))

    def watch(
        self, key: str, start_revision: int = 0, *, exact: bool = False, before: bool = False
    ) -> Watcher:
        return self.watchers.add(WatchInterest(key.encode(), exact, before), start_revision)

    def read(self, watcher: Watcher) -> list[WatchBatch]:
        """All there is for it now."""
        batches = []
        for _ in range(10_000):
            batch = self.watchers.take(watcher)
            if batch is not None:
                batches.append(batch)
            elif watcher.stage is not WatcherStage.CATCHING_UP:
                return batches
        raise AssertionError("it catches up for ever")

    def told(self, watcher: Watcher) -> list[tuple[int, str]]:
        return [
            (batch.revision, event.item.key.decode())
            for batch in self.read(watcher)
            for event in batch.events
        ]


def test_a_watcher_is_told_of_what_comes_after_it_began() -> None:
    desk = Desk()
    desk.put("a")
    watcher = desk.watch("a")
    assert watcher.next_revision == 3
    assert desk.told(watcher) == []
    assert desk.put("a") == [watcher]
    assert desk.put("a/b") == []
    assert desk.put("b") == []
    assert desk.told(watcher) == [(3, "a"), (4, "a/b")]
    assert desk.put("a") == [watcher]


def test_a_watcher_of_one_key_hears_of_no_other() -> None:
    desk = Desk()
    exact, prefix, every = desk.watch("a/", exact=True), desk.watch("a/"), desk.watch("")
    desk.put("a/")
    desk.put("a/1")
    desk.put("a")
    assert desk.told(exact) == [(2, "a/")]
    assert desk.told(prefix) == [(2, "a/"), (3, "a/1")]
    assert desk.told(every) == [(2, "a/"), (3, "a/1"), (4, "a")]


def test_the_changes_of_one_revision_come_together() -> None:
    desk = Desk()
    now, past = desk.watch("a"), desk.watch("a", 2)
    desk.put("a2", "b", "a1")
    late = desk.watch("a", 2)
    for watcher in (now, past, late):
        (batch,) = desk.read(watcher)
        assert [event.item.key for event in batch.events] == [b"a2", b"a1"]


def test_what_was_before_is_told_to_those_who_ask() -> None:
    desk = Desk()
    desk.put("k")
    first = desk.mvcc.get(b"k")
    plain, curious = desk.watch("k"), desk.watch("k", before=True)
    desk.write(Delete("k"))
    late, late_curious = desk.watch("k", 3), desk.watch("k", 3, before=True)
    for watcher, before in ((plain, None), (curious, first), (late, None), (late_curious, first)):
        (batch,) = desk.read(watcher)
        assert batch.events[0].before == before


def test_the_past_is_told_first_then_what_comes() -> None:
    desk = Desk()
    for key in ("a", "b", "a"):
        desk.put(key)
    watcher = desk.watch("a", 1)
    first = desk.watchers.take(watcher)
    assert first is not None
    assert first.revision == 2
    # A change while it catches up is neither lost nor told twice.
    assert desk.put("a") == []
    assert desk.told(watcher) == [(4, "a"), (5, "a")]
    assert watcher.stage is WatcherStage.IN_STEP
    desk.put("a")
    assert desk.told(watcher) == [(6, "a")]


@pytest.mark.spec("CRD-17")
def test_a_watcher_from_a_revision_that_never_was_is_refused_as_one_of_a_lost_history() -> None:
    desk = Desk()
    desk.put("a")
    for start in (4, 5, 1_000):
        with pytest.raises(Compacted) as caught:
            desk.watch("a", start)
        assert caught.value.compacted_revision == 2
    assert len(desk.watchers) == 0
    watcher = desk.watch("a", 3)
    desk.put("a")
    assert desk.told(watcher) == [(3, "a")]


def test_a_watcher_from_the_very_first_revision_of_an_empty_store_is_in_step() -> None:
    desk = Desk()
    watcher = desk.watch("a", 1)
    assert desk.watchers.take(watcher) is None
    assert watcher.stage is WatcherStage.IN_STEP
    desk.put("a")
    assert desk.told(watcher) == [(2, "a")]


def test_a_long_past_is_looked_through_in_turns() -> None:
    desk = Desk()
    for _ in range(STORE_WATCH_TURN_COUNT + 1):
        desk.put("b")
    desk.put("a")
    watcher = desk.watch("a", 1)
    assert desk.watchers.take(watcher) is None
    assert watcher.stage is WatcherStage.CATCHING_UP
    assert [key for _, key in desk.told(watcher)] == ["a"]


def test_a_watcher_from_a_forgotten_revision_is_refused() -> None:
    desk = Desk()
    for _ in range(4):
        desk.put("a")
    desk.mvcc.compact(4)
    with pytest.raises(Compacted, match="from revision 3") as caught:
        desk.watch("a", 3)
    assert caught.value.compacted_revision == 4
    assert len(desk.watchers) == 0
    assert desk.told(desk.watch("a", 4)) == [(4, "a"), (5, "a")]


def test_a_watcher_that_catches_up_too_slowly_is_told_of_compaction() -> None:
    desk = Desk()
    for _ in range(5):
        desk.put("a")
    slow, fast = desk.watch("a", 2), desk.watch("a", 2)
    assert desk.watchers.take(slow) is not None
    assert len(desk.read(fast)) == 5
    desk.put("a")
    desk.mvcc.compact(6)
    for _ in range(2):
        with pytest.raises(Compacted) as caught:
            desk.watchers.take(slow)
        assert caught.value.compacted_revision == 6
    assert desk.told(fast) == [(7, "a")]
    assert len(desk.watchers) == 1


@pytest.mark.parametrize(("count_max", "bytes_max"), [(3, 10**6), (1_000, 6)])
def test_a_watcher_that_does_not_read_is_ended_after_what_it_was_given(
    count_max: int, bytes_max: int
) -> None:
    desk = Desk(count_max=count_max, bytes_max=bytes_max)
    slow, fast = desk.watch("a"), desk.watch("a")
    for number in range(5):
        desk.put("a")
        assert len(desk.read(fast)) == 1, number
    assert [desk.watchers.take(slow) is not None for _ in range(3)] == [True] * 3
    for _ in range(2):
        with pytest.raises(WatchOverrun, match="from revision 5") as caught:
            desk.watchers.take(slow)
        assert caught.value.resume_revision == 5
    assert desk.told(desk.watch("a", 5)) == [(5, "a"), (6, "a")]
    assert len(desk.watchers) == 2


def test_reading_makes_room() -> None:
    desk = Desk(count_max=2, bytes_max=4)
    watcher = desk.watch("a")
    for _ in range(20):
        desk.put("a")
        desk.put("a")
        assert len(desk.read(watcher)) == 2


def test_a_revision_larger_than_all_bounds_is_told_to_one_that_has_read_all() -> None:
    desk = Desk(count_max=2, bytes_max=2)
    watcher = desk.watch("a")
    desk.put("a1", "a2", "a3")
    assert len(desk.told(watcher)) == 3


def test_watchers_are_bounded() -> None:
    desk = Desk(watchers_max=2)
    first = desk.watch("a")
    desk.watch("b")
    with pytest.raises(StoreUnavailable, match="2 watchers"):
        desk.watch("c")
    desk.watchers.remove(first)
    desk.watchers.remove(first)
    desk.watch("c")


def test_a_watcher_that_was_removed_leaves_nothing_behind() -> None:
    desk = Desk()
    watchers = [desk.watch("a"), desk.watch("a"), desk.watch("bb", exact=True), desk.watch("", before=True)]
    desk.put("a", "bb")
    for watcher in watchers:
        desk.watchers.remove(watcher)
        assert desk.watchers.take(watcher) is None
    assert desk.put("a", "bb") == []
    assert (len(desk.watchers), desk.watchers._in_step, desk.watchers._prefix_lengths) == (0, {}, {})


def test_a_change_is_looked_up_and_not_asked_of_every_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    for number in range(500):
        desk.watch(f"k/{number:03}/")
        desk.watch(f"k/{number:03}/x", exact=True)
    asked: list[bytes] = []
    shown = WatchInterest.shown

    def counted(interest: WatchInterest, event: Event) -> Event:
        asked.append(interest.key)
        return shown(interest, event)

    monkeypatch.setattr(WatchInterest, "shown", counted)
    monkeypatch.setattr(WatchInterest, "wants", lambda *_: pytest.fail("asked one by one"))
    assert len(desk.put("k/007/x")) == 2
    assert sorted(asked) == [b"k/007/", b"k/007/x"]


texts = st.sampled_from(["", "a", "a/", "a/1", "b"])
plays = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(texts.filter(bool), min_size=1, max_size=3, unique=True)),
        st.tuples(st.just("delete"), texts.filter(bool)),
        st.tuples(st.just("watch"), texts, st.integers(0, 12), st.booleans(), st.booleans()),
        st.tuples(st.just("take"), st.integers(0, 5)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(play=plays)
def test_every_watcher_is_told_what_a_look_at_the_whole_log_would_tell(
    play: list[tuple[object, ...]],
) -> None:
    desk = Desk()
    begun: list[tuple[Watcher, int, WatchInterest, list[WatchBatch]]] = []
    for step in play:
        match step:
            case ("put", list(keys)):
                desk.put(*keys)
            case ("delete", str(key)):
                desk.write(Delete(key))
            case ("watch", str(key), int(start), bool(exact), bool(before)):
                if exact and not key:
                    continue
                first = start or desk.mvcc.revision + 1
                if first > desk.mvcc.revision + 1:
                    with pytest.raises(Compacted):
                        desk.watch(key, start, exact=exact, before=before)
                    continue
                watcher = desk.watch(key, start, exact=exact, before=before)
                begun.append((watcher, first, WatchInterest(key.encode(), exact, before), []))
            case ("take", int(which)) if which < len(begun):
                batch = desk.watchers.take(begun[which][0])
                begun[which][3].extend([batch] if batch else [])
            case ("remove", int(which)) if which < len(begun):
                desk.watchers.remove(begun.pop(which)[0])
    log = desk.mvcc.log(0, 1_000)
    for watcher, first, interest, told in begun:
        told += desk.read(watcher)
        cuts = [interest.cut(batch) for batch in log if batch.revision >= first]
        assert told == [cut for cut in cuts if cut is not None]
