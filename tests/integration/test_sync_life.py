"""The blocking API where it hurts: interrupts, callbacks, forks, what was not opened or is closed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep

import pytest

import hansa
from hansa import sync
from hansa.errors import (
    UsageError,
)
from hansa.services.gateway import Completion
from tests.support.interrupts import interrupted_after
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_stage import SERVICE, WITHIN_S, Stage, opened

__all__ = ["no_thread_is_left"]


@pytest.fixture
def stage() -> Iterator[Stage]:
    with opened() as stage:
        yield stage


def test_a_blocking_call_from_a_callback_is_an_error_and_not_a_deadlock(stage: Stage) -> None:
    caught: list[BaseException] = []
    happened = threading.Event()

    def callback(completion: Completion) -> None:
        for call in (
            lambda: stage.gateway.request(SERVICE, b""),
            stage.gateway.recv,
            stage.gateway.close,
            lambda: stage.discovery.wait_available(SERVICE),
            stage.registry.stop,
        ):
            try:
                call()
            except UsageError as error:
                caught.append(error)
        # What does not wait is allowed.
        stage.gateway.submit(SERVICE, b"", lambda completion: happened.set())
        assert stage.discovery.is_available(SERVICE)

    stage.gateway.submit(SERVICE, b"", callback)
    assert happened.wait(WITHIN_S)
    assert len(caught) == 5
    assert all("callback" in str(error) for error in caught)


def test_not_even_sys_exit_in_a_callback_stops_the_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def callback(completion: Completion) -> None:
        raise SystemExit(3)

    stage.gateway.submit(SERVICE, b"", callback)
    assert stage.gateway.request(SERVICE, b"still here", timeout=WITHIN_S)[1] == b"still here"
    assert "the callback of request" in caplog.text


@pytest.mark.parametrize("wakes", [True, False])
def test_an_interrupt_ends_the_wait_and_gives_the_request_up(stage: Stage, wakes: bool) -> None:
    begun_at = monotonic()
    with interrupted_after(lambda: stage.waiting.acquire(timeout=WITHIN_S), wakes=wakes):
        stage.gateway.request(SERVICE, b"", msg_id=2, timeout=None)
    assert monotonic() - begun_at < WITHIN_S
    assert stage.gateway.stats.abandoned_count == 1
    assert stage.gateway.stats.in_flight_count == 0


def test_an_interrupt_of_any_other_wait_cancels_what_waits(stage: Stage) -> None:
    def waits() -> None:
        while not stage.gateway._inner._completions._getters:
            sleep(0.001)

    with interrupted_after(waits):
        stage.gateway.recv()
    assert not stage.gateway._inner._completions._getters
    stage.gateway.send(SERVICE, b"mine")
    assert stage.gateway.recv().result()[1] == b"mine"


def test_objects_are_used_inside_a_with_block_only(stage: Stage) -> None:
    gateway = sync.Gateway(stage.discovery)
    with pytest.raises(UsageError, match="with"):
        gateway.request(SERVICE, b"")
    with pytest.raises(UsageError):
        gateway.send(SERVICE, b"")
    with pytest.raises(UsageError):
        stage.gateway.__enter__()


def test_a_registry_starts_again_and_frees_its_ports() -> None:
    registry = sync.Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    registry.start()
    with pytest.raises(UsageError):
        registry.start()
    pub, router = str(registry.pub), str(registry.router)
    registry.stop()
    registry.stop()
    assert not registry.is_running
    with sync.Registry(pub, router) as again:
        assert str(again.router) == router
    registry.start()
    registry.stop()


def test_what_cannot_be_opened_leaves_nothing_behind() -> None:
    with sync.Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as registry:
        taken = str(registry.router)
        with pytest.raises(Exception, match="in use"):
            sync.Registry("tcp://127.0.0.1:0", taken).start()
        with pytest.raises(Exception, match="in use"), sync.Provider(taken):
            pass


def test_queries_answer_before_the_block_and_after_it(stage: Stage) -> None:
    discovery = sync.Discovery([str(stage.registry.pub)])
    discovery.subscribe(SERVICE)
    assert discovery.providers(SERVICE) == ()
    with discovery:
        discovery.wait_available(SERVICE, timeout=WITHIN_S)
    assert discovery.provider_count(SERVICE) == 1


@pytest.mark.spec("DIS-28")
def test_draining_a_provider_fails_nobody() -> None:
    with sync.Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as registry:
        providers = [sync.Provider(registries=[str(registry.router)], name=f"p{n}") for n in range(2)]
        with providers[0], providers[1], sync.Discovery([str(registry.pub)]) as discovery:
            for provider in providers:
                provider.handler()(lambda request: request.payload)
                provider.register(SERVICE, timeout=WITHIN_S)
            discovery.subscribe(SERVICE)
            with sync.Gateway(discovery) as gateway, ThreadPoolExecutor(4) as pool:
                gateway.wait_connected(SERVICE, 2, timeout=WITHIN_S)
                ended = threading.Event()

                def caller() -> int:
                    count = 0
                    while not ended.is_set():
                        assert gateway.request(SERVICE, b"x", timeout=WITHIN_S) == [b"x"]
                        count += 1
                    return count

                callers = [pool.submit(caller) for _ in range(4)]
                try:
                    assert providers[0].drain(timeout=WITHIN_S)
                finally:
                    ended.set()
                assert all(future.result(WITHIN_S) for future in callers)


FORKING = """
import os, sys
import hansa
from hansa import sync
from hansa.errors import UsageError

with sync.Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as registry:
    registry.services
    child = os.fork()
    if child == 0:
        status = 1
        try:
            registry.services
        except UsageError as error:
            assert "fork" in str(error), error
            with sync.Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as mine:
                assert mine.services == {}
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert registry.services == {}
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_after_a_fork_the_parents_objects_are_refused_and_new_ones_work() -> None:
    done = subprocess.run(
        # A fork beside threads is what this is about; newer Pythons warn of it.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING],
        env={**os.environ, "PYTHONPATH": str(Path(hansa.__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_program_that_forgets_to_close_still_ends() -> None:
    script = (
        "from hansa import sync\n"
        "sync.Registry('tcp://127.0.0.1:0', 'tcp://127.0.0.1:0').start()\n"
        "print('end of main')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(Path(hansa.__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end of main\n"
