"""The leader's peer is killed while another one joins: its process and its etcd, like a lost machine."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from hansa.store.raft import GroupStatus, JoinClient, JoinState
from tests.support.commands import Command, run
from tests.support.raft_stage import APP, WITHIN_S, trusted_etcd
from tests.support.reserved_ports import reserved_endpoints

RHYTHM = ("--heartbeat-ms", "50", "--election-ms", "500")


class Machines:
    """Peers of one group, each a `hansa raft` of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._env = {"HANSA_ETCD": trusted_etcd()}
        endpoints = stack.enter_context(reserved_endpoints(3))
        founders = [f"n{n}={at.removeprefix('tcp://')}" for n, at in enumerate(endpoints, 1)]
        self._peers = ",".join(founders)
        self.running: dict[str, Command] = {}
        self.ready: dict[str, dict[str, Any]] = {}

    def run(self, command: str, name: str, *more: str) -> Command:
        process = Command(
            *("raft", command, APP, "--name", name, "--data", str(self.folder / name), "--json"),
            *RHYTHM,
            *more,
            env=self._env,
        )
        self.running[name] = self._stack.enter_context(process)
        return process

    def start(self, *names: str) -> None:
        for name in names:
            self.run("start", name, "--peers", self._peers, "--approval", "manual")
        for name in names:
            self.ready[name] = self.running[name].event("ready")

    def kill(self, name: str) -> None:
        """At once and for good: the peer's process, and its etcd."""
        for pid in (self.ready[name]["pid"], self.ready[name]["etcd_pid"]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.running.pop(name).process.wait()

    def via(self) -> list[str]:
        return [self.ready[name]["join_address"] for name in self.running if name in self.ready]

    def until(self, holds: Callable[[GroupStatus], Any]) -> GroupStatus:
        """The group, as soon as it is as it should be."""

        async def look() -> GroupStatus:
            until_s = monotonic() + WITHIN_S
            async with JoinClient(APP, self.via()) as client:
                while not holds(group := await client.describe(timeout=WITHIN_S)):
                    assert monotonic() < until_s, f"after {WITHIN_S} s it still is {group}"
                    await asyncio.sleep(0.05)
                return group

        return asyncio.run(look())

    def join(self, name: str, *more: str) -> Command:
        """Until it is said that a person has to decide."""
        joining = self.run("join", name, *_words("--via", self.via()), *more)
        joining.event("approval-awaited")
        self.until(lambda group: JoinState.PENDING in [one.state for one in group.requests])
        return joining

    def approve(self, name: str) -> None:
        status, _, err = run("raft", "approve", APP, "--name", name, *_words("--via", self.via()))
        assert status == 0, err


def _words(option: str, values: list[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(tmp_path, stack)


def held_etcd(folder: Path) -> tuple[str, Path]:
    """An etcd that begins to work when a file is there."""
    etcd, may_start = trusted_etcd(), folder / "may-start"
    script = folder / "held-etcd"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec "{etcd}" --version\n'
        f'while [ ! -e "{may_start}" ]; do sleep 0.05; done\nexec "{etcd}" "$@"\n'
    )
    script.chmod(0o755)
    return str(script), may_start


@pytest.mark.spec("CRD-13")
@pytest.mark.spec("CRD-16")
def test_a_join_is_refused_clearly_or_carried_on_when_the_leaders_machine_is_lost_in_the_middle(
    machines: Machines, tmp_path: Path
) -> None:
    machines.start("n1", "n2", "n3")
    lost = machines.until(lambda group: group.leader).leader

    # Lost while the request waits for a person: the next leader has it still, and says why it cannot be.
    joining = machines.join("n4")
    machines.running.pop("n4")
    machines.kill(lost)
    group = machines.until(lambda group: group.leader not in ("", lost))
    assert [(one.peer.name, one.state) for one in group.requests] == [("n4", JoinState.PENDING)]
    machines.approve("n4")
    status, _, err = joining.end()
    assert status == 1
    assert f"n4 was not taken into {APP}: {lost} of 3 peers did not answer" in err
    assert "(unhealthy)" in err

    # Lost after the peer was accepted, and before its etcd has begun: the next leader gives it its vote.
    machines.start(lost)
    script, may_start = held_etcd(tmp_path)
    joining = machines.join("n4", "--etcd", script)
    machines.approve("n4")
    joining.event("join-accepted")
    lost = machines.until(lambda group: group.leader).leader
    machines.kill(lost)
    may_start.touch()
    machines.ready["n4"] = joining.event("ready")
    group = machines.until(lambda group: group.leader not in ("", lost))
    assert {one.peer.name: one.is_voter for one in group.peers} == dict.fromkeys(
        ("n1", "n2", "n3", "n4"), True
    )
    assert group.requests == ()
