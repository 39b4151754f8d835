"""Workers that increment guarded counters under a lock, each a process, stopped again and again for longer
than their leases; and the books: what was acknowledged, and what of it is there in the end.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from hansa.chance import Chance
from hansa.coordination.fencing import FencedFile
from hansa.store.opening import open_store
from tests.support.peer_process import PeerProcess

# As in fencing_worker.py, which is a program and not imported.
COUNTER_KEY = "guarded/counter"
COUNTER_FILE = "counter"
COUNTERS = ("key", "file")
STOP_S = (3.0, 5.0)
PROGRESS_S_MAX = 60.0
_LOOK_S = 0.01


@dataclass(slots=True)
class Books:
    """What the workers told of one counter, and the value that it has in the end."""

    final: int
    acked: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    refused_count: int = 0

    @property
    def lost_count(self) -> int:
        """Acknowledged increments that are not in the final value: one value is one increment, not two."""
        return len(self.acked) - len({value for value in self.acked if value <= self.final})

    @property
    def unexplained(self) -> list[int]:
        """Increments that are in the final value, though nobody says that they may be."""
        return sorted(set(range(1, self.final + 1)) - set(self.acked) - set(self.unknown))


class FencingStage:
    """Use `async with`: it begins with workers that work; leaving kills them. `end` gives the books."""

    def __init__(
        self, address: str, folder: Path, chance: Chance, *, is_fenced: bool = True, workers_count: int = 5
    ) -> None:
        self.stops_count = 0
        self._address = address
        self._folder = folder
        self._chance = chance
        self._is_fenced = is_fenced
        self._names = [f"w{number}" for number in range(workers_count)]
        self._stack = AsyncExitStack()
        self._processes: dict[str, PeerProcess] = {}
        self._awake = set(self._names)
        self._told: Counter[str] = Counter()
        self._read_bytes: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        for name in self._names:
            fence = [] if self._is_fenced else ["--no-fence"]
            program = PeerProcess(
                "coordination/fencing_worker.py",
                f"--store={self._address}",
                f"--name={name}",
                f"--folder={self._folder}",
                *fence,
            )
            self._processes[name] = await self._stack.enter_async_context(program)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    # -- what happens

    @property
    def operations_count(self) -> int:
        """Increments that ended, acknowledged or not."""
        self._look()
        return sum(self._told.values())

    def told_count(self, what: str) -> int:
        self._look()
        return sum(count for told, count in self._told.items() if told.startswith(what))

    async def progress(self, count: int, what: str = "acked") -> None:
        """Wait until so many more increments ended so. Raises `TimeoutError`."""
        goal = self.told_count(what) + count
        await self._until(lambda: self.told_count(what) >= goal)

    async def stop_in_the_middle(self, which: str) -> str:
        """Stop a worker between its reading and its writing, and let it go on when others have written."""
        (self._folder / f"gate.{which}").touch()
        await self._until(lambda: any(self._folder.glob("*.at")))
        (at,) = self._folder.glob("*.at")
        name = at.stem
        # Somebody else may have stopped it just now; it stays there until the file is gone.
        await self._until(lambda: name in self._awake)
        self._freeze(name)
        at.unlink()
        # Its lease ends, another gets the lock, and writes.
        await self.progress(3, f"acked {which}")
        before = self._lines_count(name)
        self._thaw(name)
        await self._until(lambda: self._lines_count(name) > before)
        return self._lines(name)[before].split()[0]

    async def stop_somebody(self) -> None:
        """Stop a worker wherever it is, for longer than its lease."""
        name = self._chance.choose(sorted(self._awake))
        self._freeze(name)
        await asyncio.sleep(self._chance.uniform(*STOP_S))
        self._thaw(name)

    async def end(self) -> dict[str, Books]:
        """Let all workers finish what they are at; the books of each counter."""
        (self._folder / "stop").touch()
        async with asyncio.timeout(PROGRESS_S_MAX):
            codes = [await process.process.wait() for process in self._processes.values()]
        assert codes == [0] * len(codes), f"workers ended with {codes}"
        books = {which: Books(final=await self._final(which)) for which in COUNTERS}
        for name in self._names:
            for line in self._lines(name):
                what, which, value = line.split()
                if what == "refused":
                    books[which].refused_count += 1
                else:
                    (books[which].acked if what == "acked" else books[which].unknown).append(int(value))
        return books

    # -- how

    def _freeze(self, name: str) -> None:
        self._awake.remove(name)
        self._processes[name].freeze()
        self.stops_count += 1

    def _thaw(self, name: str) -> None:
        self._processes[name].process.send_signal(signal.SIGCONT)
        self._awake.add(name)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PROGRESS_S_MAX
        while not is_so():
            dead = [name for name, one in self._processes.items() if one.process.returncode is not None]
            assert not dead, f"{dead} ended"
            if time.monotonic() > until_s:
                raise TimeoutError(f"not within {PROGRESS_S_MAX} s; so far {dict(self._told)}")
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        """Read what the workers have told since the last look, whole lines only."""
        for name in self._names:
            path = self._folder / f"{name}.log"
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._read_bytes[name])
                lines, newline, _ = file.read().rpartition(b"\n")
            self._read_bytes[name] += len(lines) + len(newline)
            self._told.update(line.rpartition(" ")[0] for line in lines.decode().splitlines())

    def _lines(self, name: str) -> list[str]:
        path = self._folder / f"{name}.log"
        return path.read_text().splitlines() if path.exists() else []

    def _lines_count(self, name: str) -> int:
        return len(self._lines(name))

    async def _final(self, which: str) -> int:
        path = self._folder / COUNTER_FILE
        if which == "file":
            return int((FencedFile(path).read() if self._is_fenced else path.read_bytes()) or 0)
        async with open_store(self._address) as store:
            item = await store.get(COUNTER_KEY)
            return 0 if item is None else int(item.value)
