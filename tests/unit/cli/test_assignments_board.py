"""Who has what of a group: as tables, as JSON, as a sentence for each change."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from rich.table import Table

from hansa.assignment.handoff import Handoff
from hansa.assignment.planner import Candidate, Move, Sharing
from hansa.assignment.topology import (
    Assignment,
    HandoffFailed,
    PartitionAssigned,
    PartitionLost,
    PartitionRevoked,
    PartitionUpdated,
    TopologyEvent,
)
from hansa.cli.assignments_board import (
    age,
    as_object,
    as_table,
    event_facts,
    groups_table,
    in_order,
    moves_table,
    plan_object,
    plan_summary,
    sentence,
    summary,
    unplaced_table,
    workers_table,
)

NOW = 1_700_000_000.0


def one(name: str = "p0", owner: str = "anna", **more: object) -> Assignment:
    fields: dict[str, object] = {"epoch": 812, "since": NOW - 60.0, "reason": "nobody has it", **more}
    return Assignment(group="orders", partition=name, owner=owner, **fields)  # type: ignore[arg-type]


def drawn(table: Table, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


FULL = one(
    last_offset=120,
    processed_at=NOW - 2.5,
    handoff_size=2_048,
    resources=("press-1", "press-2"),
    standby=("bert", "carl", "dora", "emil"),
)


def test_the_table_tells_everything_of_a_partition_and_no_markup_of_theirs() -> None:
    text = drawn(as_table([FULL, one("[red]p\x1b[2J")], 200, now=NOW))
    for word in (
        "anna",
        "812",
        "120",
        "2.5 s ago",
        "2.0 KiB",
        "2",
        "bert, carl,",
        "and 1 more",
        "nobody has",
    ):
        assert word in text
    assert "[red]p\\x1b[2J" in text


def test_what_nobody_has_takes_no_column_and_an_owner_that_is_none_stands_out() -> None:
    text = drawn(as_table([one(owner="", epoch=7)], 200, now=NOW))
    assert "nobody" in text
    for title in ("last offset", "processed", "size", "resources", "standby"):
        assert title not in text


def test_a_narrow_terminal_does_without_the_less_important() -> None:
    text = drawn(as_table([FULL], 60, now=NOW), 60)
    assert all(len(line) <= 60 for line in text.splitlines())
    assert "anna" in text
    assert "120" in text
    assert "standby" not in text
    assert "partition" in drawn(as_table([FULL], 10, now=NOW), 40)


def test_numbers_in_names_are_in_their_order() -> None:
    names = ["p10", "p2", "a", "p1", "12", "p2b"]
    assert [each.partition for each in in_order({name: one(name) for name in names})] == [
        *("12", "a", "p1", "p2", "p2b", "p10")
    ]


def test_workers_are_counted_also_those_without_any_and_owners_that_are_gone() -> None:
    workers = {
        "anna": Candidate(node="anna", weight=3, zone="east"),
        "bert": Candidate(node="bert", is_draining=True),
        "carl": Candidate(node="carl", takes_more=False),
    }
    found = [one(), one("p1"), one("p2", "gone"), one("p3", "")]
    text = drawn(workers_table(found, workers, 200))
    for words in (("anna", "2", "3", "east"), ("bert", "0", "draining"), ("gone", "1", "not there")):
        assert any(all(word in line for word in words) for line in text.splitlines()), words
    assert "given nothing more now" in text
    assert summary(found, workers, group="orders") == (
        "group orders: 4 partitions at 3 workers, 1 without an owner"
    )


def test_everything_is_one_json_object() -> None:
    found = json.loads(
        json.dumps(as_object([FULL], {"anna": Candidate(node="anna")}, cluster="docks", group="orders"))
    )
    (partition,), (worker,) = found["partitions"], found["workers"]
    assert partition["owner"] == "anna"
    assert partition["lastOffset"] == 120
    assert partition["resources"] == ["press-1", "press-2"]
    assert partition["standby"] == ["bert", "carl", "dora", "emil"]
    assert (worker["node"], worker["partitions"], worker["takesMore"]) == ("anna", 1, True)
    assert (found["cluster"], found["group"]) == ("docks", "orders")


def test_a_plan_is_told_with_its_reasons() -> None:
    plan = Sharing(
        moves=(
            Move(partition="p0", source="", target="anna", reason="nobody has it"),
            Move(partition="p1", source="anna", target="bert", reason="to level"),
        ),
        unplaced={"p2": "pinned to carl, which is away"},
    )
    assert "to level" in drawn(moves_table(plan.moves, 200))
    assert "pinned to carl" in drawn(unplaced_table(plan.unplaced, 200))
    assert plan_summary(plan, group="g") == (
        "group g: 2 moves, and 1 partition that nobody may have; nothing was done"
    )
    assert plan_summary(Sharing(), group="g") == "group g: nothing would move"
    found = plan_object(plan, cluster="docks", group="g")
    assert found["moves"][1] == {"partition": "p1", "from": "anna", "to": "bert", "reason": "to level"}
    assert found["unplaced"] == {"p2": "pinned to carl, which is away"}


def test_groups_are_listed_with_their_partitions() -> None:
    assert "1,200" in drawn(groups_table({"orders": 1_200}, 80))


LEFT = Handoff(last_offset=99, state=b"secret", checkpoint="page 7", processed_at=NOW)


def happened(kind: type[TopologyEvent], **more: object) -> TopologyEvent:
    fields: dict[str, object] = {"group": "g", "partition": "p0", "node": "anna", "epoch": 7, **more}
    return kind(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (happened(PartitionAssigned), "p0: anna has it, epoch 7"),
        (
            happened(PartitionAssigned, handoff=LEFT, reason="bert is gone"),
            "p0: anna has it, at offset 99, epoch 7: bert is gone",
        ),
        (happened(PartitionRevoked, handoff=LEFT), "p0: anna has given it up, at offset 99"),
        (happened(PartitionLost, reason="over"), "p0: anna has lost it: over"),
        (
            happened(PartitionLost, handoff=LEFT, reason="over"),
            "p0: anna has lost it, saved last at offset 99: over",
        ),
        (
            happened(PartitionUpdated, handoff=LEFT, reason="handoff"),
            "p0: anna has saved how far it is, at offset 99",
        ),
        (
            happened(PartitionUpdated, resources=("x",), reason="resources"),
            "p0: it has 1 resource now",
        ),
        (
            happened(HandoffFailed, reason="no answer"),
            "p0: what anna wanted to hand on could not be saved: no answer",
        ),
    ],
)
def test_each_change_is_a_sentence(event: TopologyEvent, said: str) -> None:
    assert sentence(event) == said


def test_for_programs_a_change_has_all_but_the_state() -> None:
    name, found = event_facts(happened(PartitionAssigned, handoff=LEFT, resources=("x",)))
    assert name == "assigned"
    assert found["resources"] == ["x"]
    assert found["handoff"] == {
        "checkpoint": "page 7",
        "lastOffset": 99,
        "lastProcessedAt": NOW,
        "stateBytes": 6,
    }
    assert "secret" not in json.dumps(found)
    assert event_facts(happened(PartitionLost))[1]["handoff"] is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s ago"), (-3.0, "0.0 s ago"), (59.9, "59.9 s ago"), (600, "10 min ago"), (9_000, "2 h ago")],
)
def test_an_age_is_told_in_its_unit(seconds: float, said: str) -> None:
    assert age(NOW - seconds, now=NOW) == said
    assert age(0.0, now=NOW) == ""
