"""Twelve partitions on workers that come, go, die and stand still: each message counts once, and in order.

See `tests.support.sums` for what is added up, and why a sum alone would not do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.store.engines import EtcdEngine, RaftEngine, RemoteEngine, ServedEngine
from tests.support.sums import PARTITIONS, Books, Row, Sums
from tests.support.sums_stage import SumsStage

pytestmark = [pytest.mark.spec("ASG-02", "ASG-04", "ASG-05"), pytest.mark.timeout(180)]


@pytest.mark.parametrize("engine", [ServedEngine, EtcdEngine, RaftEngine])
async def test_each_message_is_in_the_sums_once_whoever_joins_leaves_dies_or_stops(
    engine: type[RemoteEngine], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with engine() as servers:
        async with SumsStage(servers.address, tmp_path) as stage:
            await stage.join("a")
            await stage.join("b", "c")
            await stage.join("d")
            await stage.leave("b")
            await stage.kill("c")
            await stage.join("e")
            # It was the first one, and has led the group so far.
            await stage.stop_in_the_middle("a")
            await stage.join("f")
            await stage.leave("d")
            await stage.end()
            await stage.check_owners()
            await stage.leave_all()
            books = await stage.books()
    assert books.are_right, books
    assert stage.handed_on() == []
    late = [one["outcome"] for worker in stage.everybody for one in worker.all("late")]
    assert late == ["refused"]
    pauses_s, takeovers_s = stage.pauses_s(), stage.takeovers_s()
    assert len(pauses_s) >= len(PARTITIONS)
    figures = {
        "messages": stage.messages_count,
        "moves": len(pauses_s),
        "pause_p50_s": pauses_s[len(pauses_s) // 2],
        "pause_p99_s": pauses_s[len(pauses_s) * 99 // 100],
        "takeover_s_max": max(takeovers_s),
        "handoff_s_max": stage.worst("handoff_s_max"),
        "handoff_bytes_max": stage.worst("handoff_bytes_max"),
        "ready_s_max": stage.worst("ready_s_max"),
    }
    for name, figure in figures.items():
        record_property(name, figure)
    print(f"{engine.__name__}: " + ", ".join(f"{name} {figure:.3f}" for name, figure in figures.items()))


def test_the_books_show_what_is_lost_doubled_and_out_of_order() -> None:
    def rows(*ranges: tuple[int, int]) -> list[Row]:
        return [
            Row(partition="p00", first=first, last=last, node="a", epoch=1, revision=revision)
            for revision, (first, last) in enumerate(ranges)
        ]

    right = Books()
    right.check(rows((0, 4), (5, 5), (6, 9)), [Sums.of_all("p00", 10)])
    assert right.are_right
    wrong = Books()
    wrong.check(rows((0, 4), (6, 7), (3, 6)), [Sums.of_all("p00", 9)])
    assert (wrong.lost_count, wrong.doubled_count, len(wrong.unordered)) == (1, 3, 2)
    swapped, found = Sums("p00"), Books()
    for number in (1, 0, 2):
        swapped.add(number)
    found.check(rows((0, 2)), [swapped])
    assert len(found.wrong_sums) == 1


async def test_the_same_without_guards_counts_messages_twice(tmp_path: Path) -> None:
    with ServedEngine() as servers:
        async with SumsStage(servers.address, tmp_path, is_guarded=False) as stage:
            await stage.join("a", "b")
            await stage.stop_in_the_middle("a")
            await stage.end()
            await stage.leave_all()
            books = await stage.books()
    assert [one["outcome"] for worker in stage.everybody for one in worker.all("late")] == ["saved"]
    assert books.doubled_count > 0, books
