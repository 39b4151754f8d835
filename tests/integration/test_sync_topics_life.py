"""Topics from threads where it hurts: misuse, callbacks, an asyncio program's threads, interrupts, forks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hansa
from hansa import SpotNode, sync
from hansa.errors import AlreadyClosed, BadArgument, UsageError
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_mesh import ANY, Mesh, opened
from tests.support.sync_stage import WITHIN_S

__all__ = ["no_thread_is_left"]

SOURCE = {**os.environ, "PYTHONPATH": str(Path(hansa.__file__).resolve().parents[1])}


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    with opened() as mesh:
        yield mesh


# ---- misuse ------------------------------------------------------------------------------------


def test_a_node_is_used_in_its_block_only(mesh: Mesh) -> None:
    node = sync.SpotNode(ANY, [str(mesh.registry.router)], discovery=mesh.discovery)
    with pytest.raises(UsageError, match="with"):
        node.spot()
    with pytest.raises(UsageError, match="with"):
        node.events()
    with node:
        spot = node.spot()
        with pytest.raises(UsageError, match="open already"):
            node.__enter__()
    assert spot.is_closed
    with pytest.raises(AlreadyClosed):
        node.spot()
    with pytest.raises(UsageError):
        node.__enter__()
    with pytest.raises(BadArgument):
        sync.SpotNode(discovery=mesh.discovery)


@pytest.mark.spec("SPT-18")
def test_a_callback_may_post_and_look_but_not_wait(mesh: Mesh) -> None:
    spot = mesh.left.spot("mine")
    spot.create_topic("a")
    spot.subscribe("a")
    caught: list[UsageError] = []
    happened = threading.Event()

    def callback(event: object) -> None:
        stop()
        for call in (
            lambda: spot.publish("a", b""),
            spot.recv,
            lambda: mesh.left.survey(),
            mesh.left.close,
        ):
            try:
                call()
            except UsageError as error:
                caught.append(error)
        spot.post("a", b"posted")
        spot.post("a", b"twice")
        assert spot.recv_nowait().payload == b"posted"
        assert mesh.left.owned == ("a",)
        happened.set()

    stop = mesh.discovery.listen(callback)
    mesh.discovery.subscribe("other")
    with sync.Provider(registries=[str(mesh.registry.router)]) as provider:
        provider.register("other", timeout=WITHIN_S)
        assert happened.wait(WITHIN_S)
    assert len(caught) == 4
    assert all("callback" in str(error) for error in caught)
    assert spot.recv(WITHIN_S).payload == b"twice"


# ---- the threads of an asyncio program ---------------------------------------------------------


@pytest.mark.spec("SPT-18")
async def test_an_async_node_serves_other_threads_beside_its_own() -> None:
    async with SpotNode() as node:
        shared = node.threadsafe_spot("shared")
        plain = node.spot("plain")
        await plain.create_topic("down")
        inbox = await plain.subscribe("up")
        await asyncio.to_thread(shared.create_topic, "up")
        subscription = await asyncio.to_thread(shared.subscribe, "down")

        def work(number: int) -> list[int]:
            for step in range(200):
                shared.publish("up", f"{number} {step}".encode())
            return [int(subscription.recv(WITHIN_S).payload) for _ in range(200)]

        with ThreadPoolExecutor(4) as pool:
            working = [asyncio.wrap_future(pool.submit(work, number)) for number in range(4)]
            for step in range(800):
                await plain.publish("down", b"%d" % step)
            found = await asyncio.gather(*working)
        assert sorted(step for steps in found for step in steps) == list(range(800))
        assert all(steps == sorted(steps) for steps in found)
        seen: dict[bytes, list[int]] = defaultdict(list)
        for message in await inbox.recv_all():
            who, _, step_text = message.payload.partition(b" ")
            seen[who].append(int(step_text))
        assert seen == {b"%d" % number: list(range(200)) for number in range(4)}
        with pytest.raises(UsageError, match=r"await node\.spot\(\) here"):
            shared.publish("up", b"")
        with pytest.raises(UsageError, match=r"node\.threadsafe_spot\(\)"):
            await asyncio.to_thread(plain.post, "down", b"")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(subscription.recv)
            while subscription._tap._task is None:
                await asyncio.sleep(0)
            await node.close()
            assert isinstance(await asyncio.to_thread(waiting.exception, WITHIN_S), AlreadyClosed)
    assert shared.is_closed
    with pytest.raises(AlreadyClosed):
        await asyncio.to_thread(shared.publish, "up", b"")
    with pytest.raises(AlreadyClosed):
        shared.recv()
    assert {task.get_name() for task in asyncio.all_tasks()} == {asyncio.current_task().get_name()}  # type: ignore[union-attr]


# ---- interrupts and forks ----------------------------------------------------------------------

INTERRUPTED = """
import signal
from hansa import sync

with sync.SpotNode() as node, node.spot() as spot:
    spot.create_topic("a")
    subscription = spot.subscribe("a")
    for wait in (spot.recv, subscription.recv_all, lambda: subscription.pending(), lambda: spot.recv(60)):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            print("waiting", flush=True)
            wait()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("interrupted", flush=True)
    spot.publish("a", b"still here")
    print(spot.recv(10).payload.decode(), flush=True)
    tasks = spot._steps.run(lambda: len(spot._steps._tasks._tasks))
    print(tasks, "task", flush=True)
"""


@pytest.mark.spec("SPT-18")
def test_ctrl_c_ends_what_waits_and_leaves_nothing_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], env=SOURCE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        told = threading.Condition()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                with told:
                    lines.append(line.strip())
                    told.notify_all()

        reading = threading.Thread(target=read)
        reading.start()
        try:
            for number in range(4):
                with told:
                    assert told.wait_for(lambda: lines.count("waiting") > number, WITHIN_S)  # noqa: B023
                    process.send_signal(signal.SIGINT)
                    assert told.wait_for(lambda: lines.count("interrupted") > number, WITHIN_S)  # noqa: B023
            assert process.wait(WITHIN_S) == 0
        finally:
            process.kill()
            reading.join()
    assert lines == ["waiting", "interrupted"] * 4 + ["still here", "1 task"]


FORKING = """
import os, sys
from hansa import sync
from hansa.errors import UsageError

with sync.SpotNode() as node, node.spot() as spot:
    spot.create_topic("a")
    subscription = spot.subscribe("a")
    for payload in (b"0", b"1"):
        spot.publish("a", payload)
    assert spot.recv(10).payload == b"0"  # And the other one is at hand.
    child = os.fork()
    if child == 0:
        status = 1
        try:
            publish = lambda: spot.publish("a", b"")
            for call in (spot.recv, spot.recv_nowait, spot.recv_all, publish, node.spot):
                try:
                    call()
                except UsageError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError(call)
            with sync.SpotNode() as mine, mine.spot() as other:
                other.create_topic("a")
                other.subscribe("a")
                other.publish("a", b"2")
                assert other.recv(10).payload == b"2"
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert spot.recv(10).payload == b"1"
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_after_a_fork_the_parents_spots_are_refused_and_new_ones_work() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING],
        env=SOURCE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
