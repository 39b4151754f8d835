"""Lists what is alive: tasks, file descriptors, timers. What differs before and after was left behind."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """Everything that a program could have forgotten to end."""

    tasks: frozenset[str]
    grpc_tasks: frozenset[str]
    descriptors: frozenset[str]
    timers: tuple[str, ...]
    threads: frozenset[str]


def alive() -> Alive:
    """Everything alive now, on the running loop and in this process."""
    loop = asyncio.get_running_loop()
    # Only the loop of the standard library shows its timers; uvloop's are inside libuv.
    scheduled: list[asyncio.TimerHandle] = getattr(loop, "_scheduled", [])
    tasks = {f"{task.get_name()} {task.get_coro()!r}" for task in asyncio.all_tasks(loop)}
    # Only gRPC runs coroutines compiled by Cython: its calls end when its own thread says so.
    grpc_tasks = {task for task in tasks if "<_cython" in task}
    return Alive(
        tasks=frozenset(tasks - grpc_tasks),
        grpc_tasks=frozenset(grpc_tasks),
        descriptors=frozenset(_descriptors()),
        timers=tuple(sorted(repr(timer) for timer in scheduled if not timer.cancelled())),
        threads=frozenset(t.name for t in threading.enumerate() if not _is_of_a_library(t.name)),
    )


def _is_of_a_library(thread: str) -> bool:
    """The loop's own pool, which looks up names, lives as long as the loop; gRPC's thread as it likes."""
    return thread.startswith("asyncio_") or "_poll_wrapper" in thread


def _descriptors() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """For every test of a module that imports it."""
    before = set(threading.enumerate())
    yield
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [name for name in left if not _is_of_a_library(name)] == []
