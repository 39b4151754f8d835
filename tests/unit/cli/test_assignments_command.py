"""`hansa assignments`: the live table, a line for each change, and waiting until a worker is drained."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from rich.console import Console

from hansa.assignment import Assignments, AssignmentView, Partition
from hansa.assignment.topology import EntryNote
from hansa.cli import assignments_command
from hansa.cli.assignments_changes import wait_until_drained
from hansa.cli.assignments_command import draw, tell_events
from hansa.cli.log_lines import LogLines
from hansa.coordination import Members, NodeInfo, Placement
from hansa.errors import TimedOut
from hansa.keys import Keys
from hansa.store.memory import MemoryStore
from hansa.store.values import Put

WAIT_S_MAX = 10.0
KEYS = Keys()


@pytest.fixture
async def group() -> AsyncIterator[Assignments]:
    """Thirty partitions that nobody has; tests write themselves who has which."""
    async with MemoryStore() as store, asyncio.timeout(WAIT_S_MAX):
        group = Assignments(store, "g")
        await group.define(*(Partition(name=f"p{number}") for number in range(30)))
        yield group


async def place(group: Assignments, node: str, *partitions: str, reason: str = "", epoch: int = 7) -> None:
    note = EntryNote(reason=reason, since=1_700_000_000.0, is_handed=True).encode()
    entry = Placement(node=node, lease=1, epoch=epoch, body=note).encode()
    await group.store.commit([], [Put(KEYS.assignment("g", each), entry) for each in partitions])


async def told(run: Callable[[LogLines], Awaitable[None]], *, as_json: bool = False) -> list[str]:
    """The lines that were told; of what failed, those before that."""
    reading, writing = os.pipe()
    with LogLines(as_json=as_json, descriptor=writing) as log:
        await run(log)
    os.close(writing)
    try:
        return os.read(reading, 65_536).decode().splitlines()
    finally:
        os.close(reading)


async def test_the_live_table_shows_what_fits_and_counts_all(
    group: Assignments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignments_command, "DRAW_INTERVAL_S", 0.001)
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, width=120, height=24)
    async with group.view() as view:
        drawing = asyncio.create_task(draw(group, view, screen))
        try:
            while "30 without an owner; 16 more rows than fit" not in out.getvalue():
                await asyncio.sleep(0.001)
            await place(group, "anna", "p0")
            while "29 without an owner" not in out.getvalue():
                await asyncio.sleep(0.001)
        finally:
            drawing.cancel()
            await asyncio.wait([drawing])
    assert "anna" in out.getvalue()
    assert "not there" in out.getvalue()


async def test_each_change_is_told_and_saved_handoffs_only_to_programs(group: Assignments) -> None:
    async def change_and_tell(view: AssignmentView, log: LogLines) -> None:
        telling = asyncio.create_task(tell_events(group, view, log))
        await asyncio.sleep(0)  # It listens from here on.
        events = view.events()
        await place(group, "anna", "p0", reason="nobody has it")
        head = {
            "node": "anna",
            "epoch": 7,
            "number": 1,
            "generation": 0,
            "savedAt": 1.0,
            "blob": "",
            "size": 9,
        }
        head |= {"lastProcessedAt": 1.0, "lastOffset": 12, "isCompressed": False}
        handoff = json.dumps(head).encode() + b'\n{"checkpoint":"","resources":[]}\n'
        await view.until(lambda found: found["p0"].owner == "anna")
        await group.store.put(KEYS.handoff("g", "p0"), handoff)
        await view.until(lambda found: found["p0"].last_offset == 12)
        await place(group, "bert", "p0", reason="to level", epoch=9)
        async for event in events:
            if event.node == "bert":
                break
        await view.close()
        await telling

    async with group.view() as view:
        lines = await told(lambda log: change_and_tell(view, log))
    assert lines == [
        "watching group g: 30 partitions at 0 workers, 30 without an owner",
        "p0: anna has it, epoch 7: nobody has it",
        "p0: anna has given it up, at offset 12: to level",
        "p0: bert has it, at offset 12, epoch 9: to level",
    ]
    await place(group, "", "p0", epoch=11)
    await group.store.delete(KEYS.handoff("g", "p0"))
    async with group.view() as view:
        lines = await told(lambda log: change_and_tell(view, log), as_json=True)
    events = [json.loads(line) for line in lines]
    assert [each["event"] for each in events] == ["ready", "assigned", "updated", "revoked", "assigned"]
    assert len(events[0]["partitions"]) == 30
    assert events[2]["handoff"]["lastOffset"] == 12


async def test_draining_is_told_step_by_step_and_ends_with_what_only_that_worker_may_have(
    group: Assignments,
) -> None:
    metadata = {"works-for/g": "{}"}
    await group.define(Partition(name="p9", pinned="anna"))
    await place(group, "anna", "p1", "p2", "p9")
    here = NodeInfo(id="anna", metadata=metadata), NodeInfo(id="bert", metadata=metadata)

    async def drain(view: AssignmentView, log: LogLines) -> None:
        draining = asyncio.create_task(wait_until_drained(view, "anna", log, within=WAIT_S_MAX))
        for partition in ("p1", "p2"):
            await asyncio.sleep(0)
            await place(group, "bert", partition, epoch=9)
            await view.until(lambda found, partition=partition: found[partition].owner == "bert")  # type: ignore[misc]
        await draining

    async with Members(group.store, here[0]), Members(group.store, here[1]), group.view() as view:
        lines = await told(lambda log: drain(view, log))
        assert lines == [
            "anna has 2 partitions that others may have",
            "anna has 1 partition that others may have",
            "anna has nothing more of g that others may have; it keeps p9, which nobody else may have now",
        ]
        await place(group, "anna", "p1", epoch=12)
        await view.until(lambda found: found["p1"].owner == "anna")
        with pytest.raises(TimedOut, match=r"node 'anna' still has p1 of group 'g' after 0\.01 s"):
            await told(lambda log: wait_until_drained(view, "anna", log, within=0.01))
