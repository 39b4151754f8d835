"""A process that is tied to another one ends with it."""

import subprocess
import sys
from pathlib import Path

import pytest

from hansa.runtime import tied_process
from hansa.runtime.tied_process import tied
from tests.support.process_ends import has_ended, wait_for_end

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
# Starts a process and waits for it; tells which.
STARTS = f"""
import subprocess
from hansa.runtime.tied_process import tied
process = subprocess.Popen(tied({SLEEPS!r}))
print(process.pid, flush=True)
process.wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie processes")
def test_a_tied_process_ends_when_its_parent_is_killed() -> None:
    source = Path(tied_process.__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", STARTS], env={"PYTHONPATH": str(source)}, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not has_ended(pid)
        parent.kill()
    wait_for_end(pid)


def test_elsewhere_a_command_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert tied(["/bin/true", "x"]) == ["/bin/true", "x"]
