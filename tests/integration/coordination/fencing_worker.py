"""Increments two counters under a lock: reads, adds one, writes; tells in a file what was acknowledged.

    python tests/integration/coordination/fencing_worker.py --store etcd://... --name w1 --folder DIR

In its log a line is a word, a counter and the value: `acked key 17`, `refused file 3`, `unknown key 18`.
Whoever finds a file `gate.<counter>` in the folder between its reading and its writing renames it to
`<name>.at`, and stands still until that is gone: there it can be stopped, in the middle of things. It ends
when there is a file `stop`.
"""

import argparse
import asyncio
import itertools
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.coordination.fencing import FencedFile, FencedKey  # noqa: E402
from hansa.coordination.lock import Hold, Lock  # noqa: E402
from hansa.coordination.session import Session  # noqa: E402
from hansa.errors import Fenced, Unavailable  # noqa: E402
from hansa.store.opening import open_store  # noqa: E402
from hansa.store.store import Store  # noqa: E402

COUNTER_KEY = "guarded/counter"
COUNTER_FILE = "counter"
LEASE_S = 2.0
TURN_COUNT = 8
_LOOK_S = 0.001


class Guarded(Protocol):
    """Where a counter is kept."""

    async def take(self, fence: int) -> bytes | None: ...

    async def write(self, fence: int, value: bytes) -> object: ...


class InFile:
    """A fenced file, beside the event loop."""

    def __init__(self, path: Path) -> None:
        self._file = FencedFile(path)

    async def take(self, fence: int) -> bytes | None:
        return await asyncio.to_thread(self._file.take, fence)

    async def write(self, fence: int, value: bytes) -> None:
        await asyncio.to_thread(self._file.write, fence, value)


class UnfencedKey:
    """A key whose writers trust their lock."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self, fence: int) -> bytes | None:
        item = await self._store.get(COUNTER_KEY)
        return None if item is None else item.value

    async def write(self, fence: int, value: bytes) -> None:
        await self._store.put(COUNTER_KEY, value)


class UnfencedFile:
    """A file whose writers trust their lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new_path = path.with_name(f"{path.name}.{os.getpid()}")

    async def take(self, fence: int) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    async def write(self, fence: int, value: bytes) -> None:
        self._new_path.write_bytes(value)
        self._new_path.replace(self._path)


class Worker:
    def __init__(self, store: Store, name: str, folder: Path, *, is_fenced: bool) -> None:
        self._store = store
        self._name = name
        self._folder = folder
        self._at = folder / f"{name}.at"
        self._log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        file = folder / COUNTER_FILE
        counters: dict[str, Guarded] = (
            {"key": FencedKey(store, COUNTER_KEY), "file": InFile(file)}
            if is_fenced
            else {"key": UnfencedKey(store), "file": UnfencedFile(file)}
        )
        self._counters = itertools.cycle(counters.items())

    async def run(self) -> None:
        while not self._is_over:
            # A session that was lost is not coming back: the next one.
            with suppress(Fenced, Unavailable):
                async with Session(self._store, LEASE_S, name=self._name) as session:
                    lock = Lock(session, "counter")
                    while not self._is_over:
                        await self._turn(await lock.acquire())

    @property
    def _is_over(self) -> bool:
        return (self._folder / "stop").exists()

    async def _turn(self, hold: Hold) -> None:
        for which, counter in itertools.islice(self._counters, TURN_COUNT):
            if not hold.is_held or not await self._increment(which, counter, hold.fence):
                break
        await hold.release()

    async def _increment(self, which: str, counter: Guarded, fence: int) -> bool:
        """One increment; says whether it was acknowledged."""
        value = 0
        try:
            value = int(await counter.take(fence) or 0) + 1
            self._gate(which)
            await counter.write(fence, b"%d" % value)
        except Fenced:
            self._tell("refused", which, value)
            return False
        except Unavailable:
            # It may have been written. What comes next has another fence, so that this cannot come behind it.
            self._tell("unknown", which, value)
            return False
        self._tell("acked", which, value)
        return True

    def _gate(self, which: str) -> None:
        try:
            (self._folder / f"gate.{which}").rename(self._at)
        except FileNotFoundError:
            return
        while self._at.exists():
            time.sleep(_LOOK_S)

    def _tell(self, what: str, which: str, value: int) -> None:
        os.write(self._log, f"{what} {which} {value}\n".encode())


async def main(address: str, name: str, folder: Path, *, is_fenced: bool) -> None:
    async with open_store(address) as store:
        await Worker(store, name, folder, is_fenced=is_fenced).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--no-fence", action="store_true")
    given = parser.parse_args()
    asyncio.run(main(given.store, given.name, given.folder, is_fenced=not given.no_fence))
