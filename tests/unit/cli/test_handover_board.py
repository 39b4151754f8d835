"""Hand-overs as a table, as JSON, as a sentence for each step."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from hansa.cli.handover_board import as_object, as_table, epochs, sentence, summary, took_s
from hansa.coordination.handover import Handover, HandoverStep

T = 1_700_000_000.0
STEPS = list(HandoverStep)


def record(step: HandoverStep = HandoverStep.DONE, *, name: str = "scheduler", **changes: object) -> Handover:
    """A hand-over that came to this step, a step each hundredth of a second."""
    reached = [HandoverStep.OFFERED] if step is HandoverStep.WITHDRAWN else STEPS[: STEPS.index(step)]
    times = {each: T + index / 100 for index, each in enumerate([*reached, step])}
    fields: dict[str, object] = {
        "kind": "leader",
        "number": 3,
        "source": "host-1",
        "target": "host-2",
        "epoch": 812,
        "next_epoch": 815 if step in (HandoverStep.TAKEN, HandoverStep.DONE) else 0,
        "owner_key": "k",
        "timeout": 30.0,
        "times": times,
        **changes,
    }
    return Handover(step=step, name=name, **fields)  # type: ignore[arg-type]


def shown(*records: Handover, width: int = 240) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(as_table(records, width))
    return out.getvalue()


def test_the_table_tells_everything_of_a_hand_over_and_no_markup_of_theirs() -> None:
    text = shown(
        record(
            name="[red]s\x1b[2J",
            size=2_048,
            asked_by="ops:7",
            reason="a new kernel",
        )
    )
    for word in (
        "leader [red]s\\x1b[2J",
        "host-1",
        "host-2",
        "done",
        "812 -> 815",
        "prepared +0.010 s, sealed +0.020 s, taken +0.030 s, done +0.040 s",
        "2.0 KiB",
        "ops:7",
        "a new kernel",
    ):
        assert word in text
    assert "trouble" not in text


def test_what_nobody_has_takes_no_column_and_what_one_lacks_is_a_dash() -> None:
    text = shown(record(HandoverStep.OFFERED, source=""))
    for title in ("size", "asked by", "why", "trouble", "then"):
        assert title not in text
    assert " - " in text
    both = shown(record(HandoverStep.WITHDRAWN, trouble="the old owner is gone"), record(name="other"))
    assert "the old owner is gone" in both
    assert "withdrawn +0.010 s" in both


def test_on_a_narrow_terminal_names_and_epochs_stay_in_one_piece() -> None:
    epoch = 1_882_263_673_867_676
    one = record(name="spot-node/state", epoch=epoch, next_epoch=epoch + 6, reason="a new kernel on host-1")
    lines = shown(one, record(name="other"), width=80).splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert ["what", "leader spot-node/state"] in cells
    assert ["epochs", f"{epoch} -> {epoch + 6}"] in cells
    assert ["why", "a new kernel on host-1"] in cells
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if line.startswith("├")]) == 1
    wide = shown(record(), width=120)
    assert "what" in wide.splitlines()[1]
    assert "from" in wide.splitlines()[1]


def test_what_is_open_stands_first_then_the_latest() -> None:
    old, new = record(name="old"), record(name="new", times={HandoverStep.DONE: T + 9})
    found = as_object([old, new, record(HandoverStep.SEALED, name="open")], cluster="docks")
    assert found["cluster"] == "docks"
    assert [one["name"] for one in found["handovers"]] == ["open", "new", "old"]
    text = shown(old, new, record(HandoverStep.SEALED, name="open"))
    assert text.index("leader open") < text.index("leader new") < text.index("leader old")


def test_json_has_all_but_the_state() -> None:
    found = as_object([record(HandoverStep.SEALED, state=b"secret", size=6)], cluster="docks")
    (one,) = json.loads(json.dumps(found))["handovers"]
    assert "state" not in one
    assert (one["size"], one["step"], one["epoch"], one["times"]["sealed"]) == (6, "sealed", 812, T + 0.02)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            record(HandoverStep.OFFERED, asked_by="ops:7", reason="a new kernel"),
            "leader scheduler is offered by host-1 to host-2, asked by ops:7: a new kernel",
        ),
        (record(HandoverStep.OFFERED, source=""), "leader scheduler is offered by its owner to host-2"),
        (record(HandoverStep.PREPARED), "leader scheduler: host-2 is ready after 0.010 s"),
        (record(HandoverStep.SEALED), "leader scheduler: host-1 has stopped after 0.020 s"),
        (record(HandoverStep.SEALED, size=9), "leader scheduler: host-1 has stopped after 0.020 s, with 9 B"),
        (record(HandoverStep.TAKEN), "leader scheduler: host-2 owns it after 0.030 s, epoch 812 -> 815"),
        (
            record(HandoverStep.TAKEN, taken_by="host-3"),
            "leader scheduler: host-3 owns it after 0.030 s, epoch 812 -> 815",
        ),
        (
            record(HandoverStep.DONE),
            "leader scheduler: handed over from host-1 to host-2 in 0.040 s, epoch 812 -> 815",
        ),
        (
            record(HandoverStep.DONE, trouble="what was handed on is lost"),
            "leader scheduler: handed over from host-1 to host-2 in 0.040 s, epoch 812 -> 815, but what was"
            " handed on is lost",
        ),
        (
            record(HandoverStep.WITHDRAWN, trouble="the old owner is gone"),
            "leader scheduler: withdrawn after 0.010 s, when it was offered: the old owner is gone",
        ),
    ],
)
def test_each_step_is_a_sentence(one: Handover, said: str) -> None:
    assert sentence(one) == said


def test_an_epoch_that_is_not_known_yet_is_not_shown() -> None:
    assert epochs(record(HandoverStep.SEALED)) == "812"
    assert epochs(record()) == "812 -> 815"


def test_a_hand_over_without_times_took_none() -> None:
    assert took_s(record(times={})) == 0.0


def test_the_summary_counts_what_is_open_and_how_the_others_ended() -> None:
    assert summary([], cluster="docks") == "cluster docks: no hand-overs"
    one = record()
    assert summary([one], cluster="docks") == "cluster docks: 1 hand-over, 1 done"
    many = [one, record(HandoverStep.WITHDRAWN), record(HandoverStep.PREPARED), one]
    assert summary(many, cluster="docks") == "cluster docks: 4 hand-overs, 1 open, 2 done, 1 withdrawn"
