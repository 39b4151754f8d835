"""The engines that the suite of stores runs on. Another engine is one more class and one more entry."""

import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, ClassVar, Self

import grpc

from hansa.store.memory import MemoryStore
from hansa.store.opening import open_store
from hansa.store.store import Store
from hansa.store.values import KeyValue
from tests.support.etcd_servers import EtcdGroup, dying_with_us, for_etcd, freeze, wipe
from tests.support.raft_stage import freeze_process, reset_raft_group, trusted_etcd

RAFT_PEERS_COUNT = 3
# What an engine may keep in the store about itself; no test of stores writes there.
RESERVED = b"/hansa/"


def ours(items: Iterable[KeyValue]) -> list[KeyValue]:
    """What tests have written, of what was found."""
    return [item for item in items if not item.key.startswith(RESERVED)]


class StoreEngine(ABC):
    """A kind of store, and the servers behind it, which live as long as the `with` block."""

    # Of which event loops the suite runs it on: what differs is the client, and a server is not quick.
    loops: ClassVar[Sequence[str]] = ("asyncio",)
    # A request that has left for a server cannot be called back: it may act after its caller gave up.
    is_remote: ClassVar[bool] = True
    # It renews leases from a place of its own, beside the event loop.
    has_heart: ClassVar[bool] = True
    # Of the revision that it compacts to it keeps everything, deletions too.
    keeps_deletions: ClassVar[bool] = True
    # How many random histories: each is hundreds of calls.
    histories_count: ClassVar[int] = 4
    # How short its leases can be.
    ttl_s_min: float

    def __init__(self) -> None:
        # The servers.
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    @abstractmethod
    def reset(self) -> None:
        """Before each test: it answers, and holds no key but `RESERVED` ones, which then stay as they are.

        Revisions need not begin anew.
        """

    @abstractmethod
    def make(self) -> Store:
        """A store, or one more client of it, that nobody has opened yet."""

    # Which store it is matters where there is no server behind it.
    @abstractmethod
    def pause(self, store: Any) -> None:
        """Answer nobody for a while; connections stay."""

    @abstractmethod
    def resume(self, store: Any) -> None:
        """Answer again, also what was asked meanwhile."""


class MemoryEngine(StoreEngine):
    """The store in the process."""

    loops = ("asyncio", "uvloop")
    is_remote = False
    has_heart = False
    histories_count = 12
    ttl_s_min = 0.05

    def reset(self) -> None:
        """Nothing to do: each store that is made is new."""

    def make(self) -> Store:
        return MemoryStore()

    def pause(self, store: Any) -> None:
        store.pause()

    def resume(self, store: Any) -> None:
        store.resume()


class RemoteEngine(StoreEngine):
    """One whose servers any process can reach."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Of the store, as `open_store` takes it."""

    def make(self) -> Store:
        return open_store(self.address)


class EtcdEngine(RemoteEngine):
    """The client of etcd, and one server of it."""

    # Older servers forget, with a compaction, the deletions of its own revision too (their issue 18089).
    keeps_deletions = False

    def __init__(self) -> None:
        super().__init__()
        self._group = self._new_group()
        self.ttl_s_min = self._group.ttl_s_min

    def __enter__(self) -> Self:
        self._held.enter_context(self._group)
        return self

    def reset(self) -> None:
        self._group.restore()
        self._group.wipe()

    @property
    def address(self) -> str:
        return self._group.address

    def pause(self, store: Any) -> None:
        self._group.pause_all()

    def resume(self, store: Any) -> None:
        self._group.resume_all()

    def _new_group(self) -> EtcdGroup:
        # Quick elections allow leases of one second; a server without others holds none.
        return EtcdGroup(heartbeat_ms=50, election_ms=500)


class EtcdGroupEngine(EtcdEngine):
    """The client of etcd, and a group of three. On the other loop: it is the same client."""

    loops = ("uvloop",)
    histories_count = 2

    def _new_group(self) -> EtcdGroup:
        return EtcdGroup(3)


class ServedEngine(RemoteEngine):
    """The same client, and `hansa store` on a folder."""

    histories_count = 2
    ttl_s_min = 1.0

    def __enter__(self) -> Self:
        folder = self._held.enter_context(TemporaryDirectory(prefix="hansa-store-"))
        command = [sys.executable, "-m", "hansa.cli", "store", "--listen", "127.0.0.1:0", "--json"]
        self._process = subprocess.Popen(
            [*dying_with_us(), *command, "--data", folder, "--no-fsync"], stdout=subprocess.PIPE
        )
        self._held.callback(self._end)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"hansa store ended with {self._process.wait()}"
        self._endpoint: str = json.loads(line)["address"]
        return self

    def reset(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        wipe(self._endpoint)

    @property
    def address(self) -> str:
        return f"etcd://{self._endpoint}"

    def pause(self, store: Any) -> None:
        freeze(self._process)

    def resume(self, store: Any) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()


class RaftEngine(RemoteEngine):
    """The store of a raft group that runs in a process of its own."""

    # It keeps everything in etcd.
    keeps_deletions = False
    histories_count = 1
    # As etcd reckons it from the elections of `TIMINGS`.
    ttl_s_min = 1.0

    def __enter__(self) -> Self:
        # Here, where a version that raft mode refuses skips the test.
        trusted_etcd()
        folder = self._held.enter_context(TemporaryDirectory(prefix="hansa-raft-"))
        command = [sys.executable, "-m", "tests.support.raft_stage", f"--peers={RAFT_PEERS_COUNT}"]
        self._process = subprocess.Popen(
            [*dying_with_us(), *command, f"--data={folder}"],
            env=for_etcd(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        # Its stdin ends, and it with it.
        self._held.callback(self._process.communicate)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the raft group ended with {self._process.wait()}"
        self._group: dict[str, Any] = json.loads(line)
        self._channel = self._held.enter_context(grpc.insecure_channel(self._group["members"][0]))
        return self

    def reset(self) -> None:
        self.resume(None)
        reset_raft_group(self._channel, RAFT_PEERS_COUNT)

    @property
    def address(self) -> str:
        address: str = self._group["store"]
        return address

    def pause(self, store: Any) -> None:
        for pid in self._group["etcd_pids"]:
            freeze_process(pid)

    def resume(self, store: Any) -> None:
        for pid in self._group["etcd_pids"]:
            os.kill(pid, signal.SIGCONT)


ENGINES: dict[str, type[StoreEngine]] = {
    "memory": MemoryEngine,
    "etcd": EtcdEngine,
    "etcd3": EtcdGroupEngine,
    "served": ServedEngine,
    "raft": RaftEngine,
}
