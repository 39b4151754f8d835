"""The table, the JSON and the lines of `hansa members`."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from hansa.cli.log_lines import LogLines, moment_of
from hansa.cli.members_command import Joining, as_object, as_table, summary, tell_event
from hansa.coordination import (
    Expelled,
    LoopLagged,
    Member,
    MemberDown,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MembersEvent,
    MemberStatus,
    MemberSuspected,
    MemberUpdated,
    NodeInfo,
    Rejoined,
    Roster,
)
from hansa.errors import BadArgument

UP = Member(
    info=NodeInfo(id="[red]a", host="h", port=7, roles=frozenset({"x", "w"}), zone="z\x1b[2J"),
    status=MemberStatus.UP,
    incarnation=3,
    reason="joined",
    since=1_700_000_000.0,
)
DOWN = Member(info=NodeInfo(id="b"), status=MemberStatus.DOWN, incarnation=4, reason="its lease ended")
ROSTER = Roster({"[red]a": UP, "b": DOWN})


def shown(roster: Roster, *, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(as_table(roster, {"[red]a": 1.25}))
    return out.getvalue()


def test_the_table_has_a_row_per_member_and_no_markup_of_theirs() -> None:
    text = shown(ROSTER)
    for word in (
        "[red]a",
        "UP",
        "h:7",
        "w, x",
        "z\\x1b[2J",
        "1.2 s",
        "joined",
        "b",
        "DOWN",
        "its lease ended",
    ):
        assert word in text
    assert "\x1b[2J" not in text


def test_on_a_narrow_terminal_what_nobody_has_takes_no_room_and_times_stay_whole() -> None:
    reason = "joined again: the event loop, or the whole process, was stuck for 8.1 s"
    plain = Member(
        info=NodeInfo(id="b"), status=MemberStatus.UP, incarnation=1, reason=reason, since=UP.since
    )
    text = shown(Roster({"b": plain}), width=80)
    assert moment_of(plain.since) in text
    for title in ("address", "roles", "zone", "version", "heartbeat"):
        assert title not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_summary_counts_by_status() -> None:
    assert summary(ROSTER, cluster="blue", stale_s=0.0) == "cluster blue: 1 UP, 1 DOWN"
    assert summary(Roster(), cluster="blue", stale_s=7.2) == (
        "cluster blue: no members; the store has not answered for 7 s"
    )


def test_the_json_has_what_the_table_has() -> None:
    found = as_object(ROSTER, {"[red]a": 1.25}, cluster="blue", is_stale=True)
    assert (found["cluster"], found["is_stale"]) == ("blue", True)
    assert [(one["id"], one["status"], one["heartbeat_age_s"]) for one in found["members"]] == [
        ("[red]a", "UP", 1.25),
        ("b", "DOWN", None),
    ]
    assert found["members"][0]["address"] == "h:7"


@pytest.mark.parametrize(("moment", "text"), [(0.0, ""), (1e300, "?")])
def test_a_time_that_is_none_is_no_failure(moment: float, text: str) -> None:
    assert moment_of(moment) == text


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (MemberJoined(member=DOWN, reason="r", revision=1), "b joined: r"),
        (MemberJoined(member=UP, reason="joined", revision=1), "[red]a joined"),
        (MemberUpdated(member=UP, reason="up", revision=1), "[red]a is UP"),
        (MemberUpdated(member=DOWN, reason="r", revision=1), "b is DOWN: r"),
        (MemberSuspected(member=DOWN, reason="r", revision=1), "b is suspected: r"),
        (MemberRefuted(member=DOWN, reason="r", revision=1), "b is back: r"),
        (MemberDown(member=DOWN, reason="r", revision=1), "b is down: r"),
        (MemberLeft(member=DOWN, reason="r", revision=1), "b left: r"),
        (Rejoined(member=DOWN, reason="r"), "b (this process) had to join again: r"),
        (Expelled(member=DOWN, reason="r"), "b (this process) is no longer a member: r"),
        (LoopLagged(lag_s=1.5, reason="r"), "this process was late: r"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_every_event_is_a_line(event: MembersEvent, line: str, as_json: bool) -> None:
    readable, writable = os.pipe()
    with os.fdopen(readable, "rb") as reader:
        with LogLines(as_json=as_json, descriptor=writable) as log:
            tell_event(log, event)
        os.close(writable)
        text = reader.read().decode()
    assert text.count("\n") == 1
    assert text.startswith('{"event": "') if as_json else text == f"{line}\n"


def test_a_member_made_by_hand_says_what_was_typed() -> None:
    node = Joining(join="a", host="h", port=7, role=("w",), zone="z", metadata=("k=v=w",)).node()
    assert node == NodeInfo(id="a", host="h", port=7, roles=frozenset({"w"}), zone="z", metadata={"k": "v=w"})
    assert Joining().node() is None
    for wrong in (Joining(zone="z"), Joining(join="a", metadata=("k",)), Joining(join="a", metadata=("=v",))):
        with pytest.raises(BadArgument):
            wrong.node()
