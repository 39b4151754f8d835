"""`hansa handovers --watch`: the live table, and a line for each step."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest
from rich.console import Console

from hansa.cli import handovers_command
from hansa.cli.handovers_command import draw, looking_after, tell_steps, tell_stuck
from hansa.cli.log_lines import LogLines
from hansa.coordination import Handover, HandoverAdvanced, Handovers, HandoverStep
from hansa.coordination import handovers as handovers_module
from hansa.errors import StoreUnavailable
from hansa.keys import Keys
from hansa.store import open_store

WAIT_S_MAX = 10.0
OFFERED = Handover(
    kind="leader",
    name="harbour",
    number=1,
    step=HandoverStep.OFFERED,
    source="host-1",
    target="host-2",
    epoch=7,
    owner_key="k",
    timeout=30.0,
    times={HandoverStep.OFFERED: 1_700_000_000.0},
    revision=10,
)


def later(step: HandoverStep, *, revision: int) -> Handover:
    """The same hand-over at a later step."""
    return replace(OFFERED, step=step, revision=revision, times={**OFFERED.times, step: 1_700_000_000.0})


PREPARED = later(HandoverStep.PREPARED, revision=11)
SEALED = later(HandoverStep.SEALED, revision=12)


class View:
    """What a store says, call by call; the last of it for ever."""

    def __init__(self, *found: Sequence[Handover] | Exception, news: Sequence[HandoverAdvanced] = ()) -> None:
        self._found = list(found)
        self._news = news

    async def all(self) -> list[Handover]:
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(found, Exception):
            raise found
        return list(found)

    async def follow(self) -> AsyncGenerator[HandoverAdvanced, None]:
        for event in self._news:
            yield event


def as_view(view: View) -> Handovers:
    return cast(Handovers, view)


async def test_the_live_table_goes_on_when_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handovers_command, "DRAW_INTERVAL_S", 0.001)
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, width=120)
    view = View([OFFERED], StoreUnavailable("no member answers"), [SEALED])
    drawing = asyncio.create_task(draw(as_view(view), "docks", screen))
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            for words in ("offered", "1 open; this is old: no member answers", "sealed"):
                while words not in out.getvalue():
                    await asyncio.sleep(0.001)
    finally:
        drawing.cancel()
        await asyncio.wait([drawing])
    # It says so no longer than it is true.
    assert "this is old" not in out.getvalue().rpartition("sealed")[2]


async def told(view: View, *, as_json: bool) -> list[str]:
    reading, writing = os.pipe()
    with LogLines(as_json=as_json, descriptor=writing) as log:
        await tell_steps(as_view(view), "docks", log)
    os.close(writing)
    try:
        return os.read(reading, 65_536).decode().splitlines()
    finally:
        os.close(reading)


async def test_what_there_was_at_the_beginning_is_told_once() -> None:
    news = [
        HandoverAdvanced(handover=OFFERED, is_after_gap=True),
        HandoverAdvanced(handover=PREPARED),
        HandoverAdvanced(handover=SEALED, is_after_gap=True),
    ]
    assert await told(View([OFFERED], news=news), as_json=False) == [
        "watching cluster docks: 1 hand-over, 1 open",
        "leader harbour: host-2 is ready after 0.000 s",
        "leader harbour: host-1 has stopped after 0.000 s (steps before it may not have been told)",
    ]


async def test_for_programs_each_step_is_an_object_without_the_state() -> None:
    sealed = replace(SEALED, state=b"secret", size=6)
    lines = await told(View([], news=[HandoverAdvanced(handover=sealed)]), as_json=True)
    ready, step = (cast(dict[str, Any], json.loads(line)) for line in lines)
    assert ready == {"event": "ready", "cluster": "docks", "handovers": []}
    assert (step["event"], step["step"], step["size"], step["is_after_gap"]) == ("step", "sealed", 6, False)
    assert "state" not in step


async def test_a_step_that_came_between_the_two_first_readings_is_told() -> None:
    news = [HandoverAdvanced(handover=PREPARED, is_after_gap=True)]
    assert len(await told(View([OFFERED], news=news), as_json=False)) == 2


async def test_who_watches_ends_what_is_over_its_time_and_tells_what_nobody_outside_may_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handovers_module, "HANDOVER_GRACE_S", 0.01)
    now, (reading, writing) = asyncio.get_running_loop().time, os.pipe()
    async with open_store("memory://stuck-hand-overs") as store:
        for name, step in (("late", HandoverStep.OFFERED), ("stuck", HandoverStep.SEALED)):
            record = replace(later(step, revision=0), name=name, timeout=0.001)
            await store.put(Keys().handover("leader", name), record.encode())
        view, began_s = Handovers(store), now()
        with LogLines(as_json=True, descriptor=writing) as log:
            async with looking_after(view, partial(tell_stuck, log)):
                while view.stats.stuck_count + view.stats.overdue_count < 2:
                    assert now() - began_s < WAIT_S_MAX
                    await asyncio.sleep(0.01)
        late = await view.get("leader", "late")
        assert late is not None
        assert late.step is HandoverStep.WITHDRAWN
    os.close(writing)
    (line,) = map(json.loads, os.read(reading, 65_536).splitlines())
    os.close(reading)
    assert (line["event"], line["name"]) == ("stuck", "stuck")
    assert "old owner has stopped to act" in line["why"]
