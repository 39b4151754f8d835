"""Real etcd servers, one or a group of three, that tests start, kill, freeze and start again.

They listen on this machine alone, on free ports, and keep their data in a folder that goes with them. A
server dies with the process that started it, whatever ends that one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from hansa.store.etcd import messages
from hansa.store.values import FROM_KEY
from tests.support.etcd_program import etcd_program
from tests.support.reserved_ports import reserved_endpoints

SERVING_S_MAX = 30.0
_LOOK_S = 0.02
_ASK_S_MAX = 2.0
_LOG_SHOWN_BYTES = 4_000


def dying_with_us() -> list[str]:
    """The beginning of a command whose process the kernel ends when this one ends, even by a kill.

    When this thread ends, to be exact: start it from the main thread. Empty where there is no such thing.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def for_etcd() -> dict[str, str]:
    """The environment of a server that a test starts.

    On one core: the threads of several servers on few cores spend a quarter of their time looking for work.
    """
    return {**os.environ, "GOMAXPROCS": "1"}


def wipe(endpoint: str) -> None:
    """Delete every key of a server that speaks etcd's API."""
    with grpc.insecure_channel(endpoint) as channel:
        delete = messages.DELETE_RANGE.blocking_stub(channel)
        request = messages.DELETE_RANGE.request(key=FROM_KEY, range_end=FROM_KEY)
        delete(request, timeout=SERVING_S_MAX, wait_for_ready=True)


def freeze(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP, and wait until every thread of it stands."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


class EtcdFailed(Exception):
    """A server did not start, or does not serve; the text ends with what it wrote."""


@dataclass(slots=True)
class _Member:
    name: str
    folder: Path
    client_port: int
    peer_port: int
    # Here it tells of its health and whether it leads, in plain HTTP, whatever its clients must speak.
    metrics_port: int
    command: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    is_frozen: bool = False


class EtcdGroup:
    """A group of etcd servers: `with EtcdGroup(3) as group`. Entering waits until they serve.

    `kill`, `pause`, `resume` and `restart` act at once and do not wait; `serving` does. With shorter
    elections there are shorter leases: `ttl_s_min` is what etcd raises a lease to. Not for several threads: a
    server dies with the thread that started it.
    """

    def __init__(
        self,
        members_count: int = 1,
        *,
        heartbeat_ms: int = 100,
        election_ms: int = 1000,
        arguments: Sequence[str] = (),
        scheme: str = "http",
    ) -> None:
        self.program = etcd_program()
        # As etcd reckons it: three halves of the election timeout, in whole seconds.
        self.ttl_s_min = float(-(-3 * election_ms // 2 // 1000))
        self._members_count = members_count
        self._timing = [f"--heartbeat-interval={heartbeat_ms}", f"--election-timeout={election_ms}"]
        self._arguments = list(arguments)
        self._scheme = scheme
        self._members: list[_Member] = []
        self._held = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- where it is ----

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where clients connect: host and port of each member."""
        return tuple(f"127.0.0.1:{member.client_port}" for member in self._members)

    @property
    def address(self) -> str:
        """The group as the address of a store."""
        return f"etcd://{','.join(self.endpoints)}"

    @property
    def indexes(self) -> range:
        return range(len(self._members))

    def pid(self, index: int) -> int:
        return self._running(index).pid

    def log(self, index: int) -> str:
        """The last of what a member wrote."""
        path = self._members[index].folder / "log"
        return path.read_bytes()[-_LOG_SHOWN_BYTES:].decode(errors="replace") if path.exists() else ""

    # ---- life ----

    def start(self) -> None:
        """Start all, and wait until they serve. Raises `EtcdFailed`."""
        folder = Path(tempfile.mkdtemp(prefix="hansa-etcd-"))
        self._held.callback(shutil.rmtree, folder, ignore_errors=True)
        endpoints = self._held.enter_context(reserved_endpoints(3 * self._members_count))
        ports = iter([int(endpoint.rpartition(":")[2]) for endpoint in endpoints])
        for number in range(self._members_count):
            name = f"member-{number}"
            member = _Member(name, folder / name, next(ports), next(ports), next(ports))
            member.folder.mkdir()
            self._members.append(member)
        for member in self._members:
            member.command = self._command(member)
        try:
            for index in self.indexes:
                self._spawn(index)
            self.wait_until_serving()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all, and remove what they kept."""
        for index in self.indexes:
            self.kill(index)
        self._members.clear()
        self._held.close()

    def kill(self, index: int) -> None:
        """SIGKILL, and wait for its end. Killing it twice is no harm."""
        member = self._members[index]
        if member.process is not None:
            member.process.kill()
            member.process.wait()
        member.process, member.is_frozen = None, False

    def pause(self, index: int) -> None:
        """SIGSTOP: its connections stay, and nobody answers."""
        freeze(self._running(index))
        self._members[index].is_frozen = True

    def resume(self, index: int) -> None:
        """SIGCONT."""
        self._running(index).send_signal(signal.SIGCONT)
        self._members[index].is_frozen = False

    def pause_all(self) -> None:
        for index in self.indexes:
            self.pause(index)

    def resume_all(self) -> None:
        for index in self.indexes:
            self.resume(index)

    def restart(self, index: int) -> None:
        """Start a member that was killed, with its data and on its ports."""
        assert self._members[index].process is None, f"member {index} is running: kill it first"
        self._spawn(index)

    def restore(self) -> None:
        """As after `start`, whatever a test did: all run, none is frozen, all serve."""
        for index, member in enumerate(self._members):
            if member.process is None or member.process.poll() is not None:
                member.process = None
                self.restart(index)
            elif member.is_frozen:
                self.resume(index)
        self.wait_until_serving()

    def save(self, path: Path) -> None:
        """Write a snapshot of the first member, as an operator does."""
        self._etcdctl("snapshot", "save", str(path), f"--endpoints={self.endpoints[0]}")

    def go_back(self, path: Path) -> None:
        """Kill a group of one, and start it again with what a snapshot has. Its revisions are not bumped."""
        (member,) = self._members
        self.kill(0)
        shutil.rmtree(member.folder / "data")
        peer = f"http://127.0.0.1:{member.peer_port}"
        where = (f"--name={member.name}", f"--data-dir={member.folder / 'data'}")
        peers = (f"--initial-cluster={member.name}={peer}", f"--initial-advertise-peer-urls={peer}")
        self._etcdctl("snapshot", "restore", str(path), *where, *peers)
        self.restart(0)

    # ---- what it says of itself ----

    def wait_until_serving(self, timeout_s: float = SERVING_S_MAX) -> None:
        """Block until every member that runs reads and writes, with a leader. Raises `EtcdFailed`."""
        until_s = time.monotonic() + timeout_s
        while waiting := [index for index in self._awake() if not self._is_healthy(index)]:
            for index in waiting:
                member = self._members[index]
                if member.process is not None and (code := member.process.poll()) is not None:
                    raise EtcdFailed(f"{member.name} ended with {code}: {self.log(index)}")
            if time.monotonic() > until_s:
                logs = "\n".join(f"{self._members[index].name}: {self.log(index)}" for index in waiting)
                raise EtcdFailed(f"not served within {timeout_s} s by {waiting}:\n{logs}")
            time.sleep(_LOOK_S)

    async def serving(self, timeout_s: float = SERVING_S_MAX) -> None:
        """Wait, beside the event loop, until every member that runs serves. Raises `EtcdFailed`."""
        await asyncio.to_thread(self.wait_until_serving, timeout_s)

    def leader(self) -> int | None:
        """Which member says that it leads; None when none does."""
        for index in self._awake():
            if b"\netcd_server_is_leader 1" in self._ask(index, "/metrics"):
                return index
        return None

    async def led_by(self, *, other_than: int | None = None, timeout_s: float = SERVING_S_MAX) -> int:
        """Wait until there is a leader, or another one, and give it. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = await asyncio.to_thread(self.leader)
                if found is not None and found != other_than:
                    return found
                await asyncio.sleep(_LOOK_S)

    def wipe(self) -> None:
        """Delete every key: for the next test that shares the group. Revisions go on from where they are."""
        wipe(self.endpoints[self._awake()[0]])

    # ---- inside ----

    def _command(self, member: _Member) -> list[str]:
        peers = ",".join(f"{each.name}=http://127.0.0.1:{each.peer_port}" for each in self._members)
        client, peer = (
            f"{self._scheme}://127.0.0.1:{member.client_port}",
            f"http://127.0.0.1:{member.peer_port}",
        )
        return [
            *dying_with_us(),
            str(self.program.etcd),
            f"--name={member.name}",
            f"--data-dir={member.folder / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={peers}",
            f"--listen-metrics-urls=http://127.0.0.1:{member.metrics_port}",
            "--logger=zap",
            "--log-level=warn",
            "--log-outputs=stderr",
            *(["--unsafe-no-fsync"] if self.program.can_skip_fsync else []),
            *self._timing,
            *self._arguments,
        ]

    def _etcdctl(self, *arguments: str) -> None:
        environment = {**os.environ, "ETCDCTL_API": "3"}
        command = [str(self.program.etcdctl), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EtcdFailed(f"{' '.join(command)}: {done.stderr[-_LOG_SHOWN_BYTES:]}")

    def _spawn(self, index: int) -> None:
        assert threading.current_thread() is threading.main_thread(), "it would die with this thread"
        member = self._members[index]
        with (member.folder / "log").open("ab") as log:
            member.process = subprocess.Popen(
                member.command, env=for_etcd(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _running(self, index: int) -> subprocess.Popen[bytes]:
        process = self._members[index].process
        assert process is not None, f"member {index} is not running"
        return process

    def _awake(self) -> list[int]:
        return [
            i for i, member in enumerate(self._members) if member.process is not None and not member.is_frozen
        ]

    def _is_healthy(self, index: int) -> bool:
        said = self._ask(index, "/health")
        return bool(said) and json.loads(said).get("health") == "true"

    def _ask(self, index: int, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._members[index].metrics_port, _ASK_S_MAX)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return b""
        finally:
            connection.close()
