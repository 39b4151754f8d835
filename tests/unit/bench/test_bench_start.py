"""What starting costs is measured until a program has loaded, or until its first bytes are out."""

import asyncio
import socket
import sys

import pytest

from bench import __main__ as command_line
from bench.case import Case
from bench.figures import START_FIGURES
from bench.kinds import start
from bench.peers import PEERS, starts
from bench.stage import Stage
from bench.window import Window

TWICE = Case(kind="start", width=2)
MOMENT = Window(warmup_s=0.0, measured_s=0.0)


def test_a_program_that_computes_costs_more_than_one_that_does_not() -> None:
    busy = (sys.executable, "-c", "sum(range(3_000_000))")
    assert starts.cpu_s_of(busy, None) > starts.cpu_s_of(starts.BARE, None) > 0


def test_a_program_that_sends_is_ended_by_its_first_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10.0)
        host, port = listener.getsockname()
        sender = (
            f"import socket, time; line = socket.create_connection(({host!r}, {port})); "
            "line.send(b'x'); time.sleep(3600)"
        )
        assert starts.cpu_s_of((sys.executable, "-c", sender), listener) > 0


def test_a_program_that_fails_or_sends_nothing_has_no_number() -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        starts.cpu_s_of((sys.executable, "-c", "raise SystemExit(3)"), None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.01)
        with pytest.raises(TimeoutError):
            starts.cpu_s_of((sys.executable, "-c", "pass"), listener)


@pytest.mark.parametrize("peer", ["start-hansa", "start-call", "start-lock"])
async def test_hansa_starts_and_sends_its_first_bytes(peer: str) -> None:
    async with asyncio.timeout(60), Stage(PEERS[peer], TWICE) as stage:
        figures = (await start.measure(stage, MOMENT)).figures
    assert figures.keys() == START_FIGURES.keys()
    assert figures["start_cpu_s"] > figures["start_bare_s"] > 0


def test_a_program_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "start-etcdctl" not in {peer.name for peer in command_line.choose_peers("")}
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert "start-etcdctl" in {peer.name for peer in command_line.choose_peers("")}
