"""Commands of `hansa` as processes, the way a user runs them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import hansa
from hansa.cli.program import main

SOURCE = Path(hansa.__file__).resolve().parents[1]
RUN_S_MAX = 60
ANY = "tcp://127.0.0.1:0"
NOBODY = "tcp://127.0.0.1:1"


class Command:
    """A `hansa` command that runs, if asked in a process group of its own. Leaving the block kills it."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, group: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hansa.cli", *arguments],
            env={**os.environ, "PYTHONPATH": str(SOURCE), **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0 if group else None,
        )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=RUN_S_MAX)

    def line(self) -> str:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return line.rstrip("\n")

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name; others before it are passed over."""
        while True:
            event: dict[str, Any] = json.loads(self.line())
            if event["event"] == name:
                return event

    def news(self, name: str) -> dict[str, Any]:
        """As `event`, from stderr."""
        assert self.process.stderr is not None
        while True:
            line = self.process.stderr.readline()
            assert line, f"it ended, and said nothing of {name}"
            event: dict[str, Any] = json.loads(line)
            if event["event"] == name:
                return event

    def write(self, *lines: str) -> None:
        """To its stdin, which stays open."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=RUN_S_MAX)
        return self.process.returncode, out, err


def run(*arguments: str, given: bytes = b"", env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hansa.cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **(env or {})},
        input=given,
        capture_output=True,
        timeout=RUN_S_MAX,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def run_here(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """As `run`, in this process: for what ends before a loop, a signal or a socket has a part in it."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", ["hansa", *arguments])
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        main()
    return int(ended.value.code or 0), out.getvalue(), err.getvalue()


def start_registry(stack: ExitStack) -> tuple[Command, dict[str, str]]:
    """A registry, and the environment in which commands find it."""
    command = stack.enter_context(
        Command("registry", "--pub", ANY, "--router", ANY, "--broadcast-interval", "1", "--json")
    )
    ready = command.event("ready")
    return command, {"HANSA_PUB": ready["pub"], "HANSA_ROUTER": ready["router"]}
