"""The processes of a history, and what is asserted of it in the end."""

import sys
from pathlib import Path

from hansa.testing import Call, LockModel, RegisterModel, check_linearizability
from tests.support.discovery_processes import Told
from tests.support.store_history import KEYS, LOCKS, from_lines

# In each call that has no outcome the search has one more choice, and the history proves one thing less.
UNKNOWN_SHARE_MAX = 0.1


class HistoryProcess(Told):
    """history_program.py: clients in a process of their own."""

    def __init__(self, address: str, name: str, folder: Path) -> None:
        self._out = folder / f"{name}.jsonl"
        super().__init__(
            "store/history_program.py", f"--store={address}", f"--name={name}", f"--out={self._out}"
        )

    async def end(self) -> list[Call]:
        """Let its clients end; what they saw."""
        await self.say("end")
        await self.event("done")
        return from_lines(self._out.read_text().splitlines())


class HansaStoreProcess(Told):
    """`hansa store` in a folder."""

    def __init__(self, listen: str, data: Path) -> None:
        super().__init__("")
        self._command = [sys.executable, "-m", "hansa.cli", "store", "--json"]
        self._command += [f"--listen={listen}", f"--data={data}"]


def judge(calls: list[Call], *, processes_count: int) -> None:
    """The history is linearizable, and it is one: of all processes, with answers, with few gaps."""
    registers = [call for call in calls if call.key in KEYS]
    locks = [call for call in calls if call.key in LOCKS]
    # The ends of holds have no outcome by their nature.
    asked = [*registers, *(call for call in locks if str(call.asked) == "acquire")]
    unknown_count = sum(not call.is_answered for call in asked)
    assert unknown_count <= UNKNOWN_SHARE_MAX * len(asked), f"{unknown_count} of {len(asked)} are unknown"
    assert unknown_count, "no fault came in the middle of a call"
    for some in (registers, locks):
        answered = [call for call in some if call.is_answered]
        assert len(answered) >= 100, f"only {len(answered)} answers"
        assert len({call.process.partition("r")[0].partition("l")[0] for call in answered}) == processes_count
    verdict = check_linearizability(registers, RegisterModel())
    assert verdict.is_linearizable, str(verdict)
    verdict = check_linearizability(locks, LockModel())
    assert verdict.is_linearizable, str(verdict)
