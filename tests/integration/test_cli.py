"""The commands as a user runs them: real processes, real signals."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.commands import ANY, NOBODY, RUN_S_MAX, SOURCE, Command, run, run_here, start_registry
from tests.support.held_pipe import HeldPipe


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def registry(stack: ExitStack) -> tuple[Command, dict[str, str]]:
    return start_registry(stack)


def provide(stack: ExitStack, where: dict[str, str], service: str, command: str, *more: str) -> Command:
    provider = stack.enter_context(Command("provide", service, "--exec", command, "--json", *more, env=where))
    provider.event("ready")
    return provider


# ---- hansa registry -----------------------------------------------------------------------------


@pytest.mark.spec("DIS-01")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_registry_says_when_it_is_ready_and_stops_in_order(number: int) -> None:
    with Command("registry", "--pub", ANY, "--router", ANY, "--id", "1234") as command:
        line = command.line()
        assert line.startswith("registry 1234 ready: pub tcp://127.0.0.1:")
        assert line.endswith(f" pid {command.process.pid}")
        assert ":0 " not in line
        status, out, err = command.stop(number)
    assert (status, err) == (0, "")
    assert "registry 1234 stopped: 0 registered" in out


@pytest.mark.spec("DIS-01")
def test_a_registry_tells_its_events_as_json(
    stack: ExitStack, registry: tuple[Command, dict[str, str]]
) -> None:
    command, where = registry
    peer = stack.enter_context(
        Command(
            *("registry", "--pub", ANY, "--router", ANY, "--peer", where["HANSA_PUB"], "--json"),
            # Three of these without a word, and a peer counts as silent.
            *("--broadcast-interval", "1"),
        )
    )
    assert peer.event("ready")["pid"] == peer.process.pid
    provider = provide(stack, where, "shout", "cat", "--weight", "3")
    added = command.event("provider-added")
    assert (added["service"], added["weight"]) == ("shout", 3)
    assert peer.event("peer-heard")["peer"]
    assert peer.event("provider-added")["endpoint"] == added["endpoint"]
    assert provider.stop()[0] == 0
    assert command.event("provider-removed")["endpoint"] == added["endpoint"]
    status, out, _ = command.stop()
    assert status == 0
    stopped = json.loads(out.splitlines()[-1])
    assert stopped["event"] == "stopped"
    assert stopped["stats"]["registered_count"] == 1
    assert peer.event("peer-silent")["peer"] == stopped["registry_id"]


def test_a_reader_that_stalls_does_not_stop_the_registry(
    stack: ExitStack, registry: tuple[Command, dict[str, str]]
) -> None:
    _, where = registry
    # Nobody reads the registry's lines from here on; a pipe holds 64 KiB.
    script = (
        "import os\n"
        "from hansa import sync\n"
        "with sync.Provider(registries=[os.environ['HANSA_ROUTER']]) as provider:\n"
        "    for number in range(400):\n"
        "        provider.register(f'service-{number}' + 'x' * 200, timeout=30)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **where},
        timeout=RUN_S_MAX,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert run("services", "--json", env=where)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--pub", "tcp://127.0.0.1"], 2, "add a port"),
        (["--pub", ANY, "--router", ANY, "--peer", "tcp://*:5"], 2, "cannot be dialled"),
        (["--pub", ANY, "--router", ANY, "--heartbeat-timeout", "0.01"], 2, "0.01 s is not longer than"),
        (
            ["--pub", ANY, "--router", ANY, "--heartbeat-interval", "4", "--heartbeat-timeout", "3"],
            2,
            "timeout of 3.0 s is not longer than the interval of 4.0 s",
        ),
        (["--pub", ANY, "--router", ANY, "--heartbeat-interval", "-1"], 2, "Must be > 0"),
        (["--id", "many"], 2, "whole number"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(arguments: list[str], status: int, said: str) -> None:
    found, out, err = run_here("registry", *arguments)
    assert (found, out) == (status, "")
    assert said in err
    assert "Traceback" not in err


def test_an_address_in_use_is_said_in_a_sentence(registry: tuple[Command, dict[str, str]]) -> None:
    _, where = registry
    status, out, err = run("registry", "--pub", ANY, "--router", where["HANSA_ROUTER"])
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "in use" in err


# ---- hansa services -----------------------------------------------------------------------------


@pytest.mark.spec("DIS-17")
def test_services_are_shown_as_a_table_and_as_json(
    stack: ExitStack, registry: tuple[Command, dict[str, str]]
) -> None:
    _, where = registry
    assert "0 services" in run("services", env=where)[1]
    provide(stack, where, "shout", "cat", "--weight", "5")
    status, out, err = run("services", env=where)
    assert (status, err) == (0, "")
    assert "shout" in out
    assert "1 service, 1 provider;" in out
    status, out, _ = run("services", "--json", "--pub", where["HANSA_PUB"])
    (found,) = json.loads(out)["services"]["shout"]
    assert found["weight"] == 5


def test_watching_tells_every_change_until_it_is_stopped(
    stack: ExitStack, registry: tuple[Command, dict[str, str]]
) -> None:
    _, where = registry
    # Two names for one registry and one that is away: whoever answers is enough.
    several = {"HANSA_PUB": f"{where['HANSA_PUB']}, {NOBODY}"}
    watching = stack.enter_context(Command("services", "--watch", "--json", env=several))
    watching.event("ready")
    provider = provide(stack, where, "shout", "cat")
    assert watching.event("provider-added")["service"] == "shout"
    assert watching.event("service-available")
    provider.stop()
    assert watching.event("service-unavailable")["service"] == "shout"
    assert watching.stop(signal.SIGINT)[0] == 0


def test_watching_ends_when_its_reader_has_left(registry: tuple[Command, dict[str, str]]) -> None:
    _, where = registry
    with Command("services", "--watch", env=where) as watching, ExitStack() as stack:
        assert watching.line().startswith("watching: 0 services")
        assert watching.process.stdout is not None
        watching.process.stdout.close()
        provide(stack, where, "shout", "cat")
        assert watching.process.wait(RUN_S_MAX) == 0


def test_without_a_registry_it_says_what_was_tried() -> None:
    status, out, err = run("services", "--pub", NOBODY, "--timeout", "0.2", "--json")
    assert status == 1
    assert NOBODY in err
    assert json.loads(out)["error"] == "timed-out"


# ---- hansa provide and hansa call ---------------------------------------------------------------


@pytest.mark.spec("DIS-26")
def test_a_shell_command_answers_calls(
    stack: ExitStack, registry: tuple[Command, dict[str, str]], tmp_path: Path
) -> None:
    _, where = registry
    provide(stack, where, "shout", "tr a-z A-Z", "--msg-id", "0", "--msg-id", "7")
    provide(stack, where, "who", 'printf "%s %s" "$HANSA_SERVICE" "$HANSA_MSG_ID"')
    assert run("call", "shout", "hello", env=where) == (0, "HELLO\n", "")
    assert (
        run("call", "shout", "-", "--msg-id", "7", "--raw", given=b"from stdin", env=where)[1] == "FROM STDIN"
    )
    (tmp_path / "payload").write_bytes(b"a" * 200_000)
    assert run("call", "shout", f"@{tmp_path}/payload", env=where)[1] == "A" * 200_000 + "\n"
    assert run("call", "shout", "@@x", env=where)[1] == "@X\n"
    assert run("call", "who", "", env=where)[1] == "who 0\n"
    _, out, err = run("call", "shout", "again", "--count", "3", "--json", env=where)
    assert [json.loads(line)["parts"] for line in out.splitlines()] == [["AGAIN"]] * 3
    assert "3 replies" in err
    assert (
        json.loads(run("call", "shout", "-", "--json", given=b"\xff", env=where)[1])["encoding"] == "base64"
    )


@pytest.mark.spec("DIS-26")
def test_a_command_that_fails_reaches_the_caller_with_its_status_and_its_last_words(
    stack: ExitStack, registry: tuple[Command, dict[str, str]]
) -> None:
    _, where = registry
    provider = provide(stack, where, "bank", 'echo "not enough money" >&2; exit 3')
    status, out, err = run("call", "bank", "100", env=where)
    assert (status, out) == (1, "")
    assert err == "hansa call: exit-3: not enough money\n"
    status, out, _ = run("call", "bank", "100", "--json", env=where)
    assert (status, json.loads(out)) == (1, {"error": "exit-3", "text": "not enough money"})
    assert provider.event("failed")["reason"] == "exit-3"
    assert "unknown-msg-id" in run("call", "bank", "100", "--msg-id", "9", "--json", env=where)[1]


def test_a_command_is_killed_with_all_it_started_when_the_deadline_passes(
    stack: ExitStack, registry: tuple[Command, dict[str, str]], tmp_path: Path
) -> None:
    _, where = registry
    held = HeldPipe(tmp_path / "held open by what runs")
    provide(stack, where, "slow", f"exec 9>'{held.path}'; echo began >&9; sleep 1000 & sleep 1000")
    status, _, err = run("call", "slow", "", "--timeout", "3", env=where)
    assert status == 1, err
    assert held.read_to_end() == b"began\n"


@pytest.mark.spec("DIS-29")
def test_sigterm_lets_a_provider_finish_what_it_has(
    stack: ExitStack, registry: tuple[Command, dict[str, str]], tmp_path: Path
) -> None:
    _, where = registry
    began, go_on = tmp_path / "began", tmp_path / "go on"
    os.mkfifo(began)
    os.mkfifo(go_on)
    provider = provide(stack, where, "slow", f"echo > '{began}'; cat '{go_on}'")
    caller = stack.enter_context(Command("call", "slow", "", "--timeout", "30", env=where))
    began.read_bytes()
    provider.process.send_signal(signal.SIGTERM)
    provider.event("draining")
    go_on.write_bytes(b"finished")
    assert caller.end() == (0, "finished\n", "")
    status, out, _ = provider.end()
    assert status == 0
    assert json.loads(out.splitlines()[-1])["is_drained"] is True


def test_calls_without_a_provider_or_a_registry_say_what_was_tried(
    registry: tuple[Command, dict[str, str]],
) -> None:
    _, where = registry
    status, out, err = run("call", "nobody", "x", "--timeout", "0.2", "--json", env=where)
    assert status == 1
    assert json.loads(out)["error"] == "timed-out"
    assert "was heard, without one" in err
    status, _, err = run("call", "nobody", "x", "--timeout", "0.2", "--pub", NOBODY)
    assert status == 1
    assert NOBODY in err
    status, _, err = run("call", "nobody", "@no such file", env=where)
    assert status == 2
    assert "No such file" in err
    status, _, err = run("provide", "x", "--exec", "cat", "--router", "tcp://*:1")
    assert status == 2
    assert "cannot be dialled" in err


def test_who_takes_a_router_for_a_pub_is_told_so(registry: tuple[Command, dict[str, str]]) -> None:
    _, where = registry
    for command in (("call", "shout", "x"), ("services",)):
        status, _, err = run(*command, "--pub", where["HANSA_ROUTER"], "--timeout", "2")
        assert status == 1
        assert "a SUB met a ROUTER" in err
    status, _, err = run(
        "subscribe", "a", "--timeout", "2", env={**where, "HANSA_PUB": where["HANSA_ROUTER"]}
    )
    assert status == 1
    assert "a SUB met a ROUTER" in err


@pytest.mark.spec("DIS-08")
def test_a_weight_of_0_means_1(stack: ExitStack, registry: tuple[Command, dict[str, str]]) -> None:
    command, where = registry
    provide(stack, where, "shout", "cat", "--weight", "0")
    assert command.event("provider-added")["weight"] == 1


@pytest.mark.parametrize(
    "command", ["registry", "services", "call", "provide", "topics", "publish", "subscribe", "demo"]
)
def test_every_command_explains_itself(command: str) -> None:
    status, out, _ = run_here(command, "--help")
    assert status == 0
    assert f"hansa {command}" in out
    assert command in help_of_all()


@functools.cache
def help_of_all() -> str:
    return run("--help")[1]


def test_the_same_options_fit_every_command(
    stack: ExitStack, registry: tuple[Command, dict[str, str]]
) -> None:
    _, where = registry
    both = ("--pub", where["HANSA_PUB"], "--router", where["HANSA_ROUTER"])
    provide(stack, {}, "shout", "tr a-z A-Z", *both)
    assert run("call", "shout", "hello", *both) == (0, "HELLO\n", "")
    status, out, _ = run("services", "--json", *both)
    assert status == 0
    assert list(json.loads(out)["services"]) == ["shout"]


# ---- over TLS -----------------------------------------------------------------------------------


def test_commands_meet_over_tls_and_strangers_stay_out(stack: ExitStack, tmp_path: Path) -> None:
    def environment(authority: Authority, name: str) -> dict[str, str]:
        tls = authority.issue(name)
        return {"HANSA_TLS_CERT": tls.cert, "HANSA_TLS_KEY": tls.key, "HANSA_TLS_CA": tls.ca}

    ours, theirs = Authority.create(tmp_path / "ours"), Authority.create(tmp_path / "theirs")
    any_port = "tls://127.0.0.1:0"
    command = stack.enter_context(
        Command(
            *("registry", "--pub", any_port, "--router", any_port, "--json"),
            env=environment(ours, "registry"),
        )
    )
    ready = command.event("ready")
    assert ready["pub"].startswith("tls://")
    where = {"HANSA_PUB": ready["pub"], "HANSA_ROUTER": ready["router"]}
    provide(stack, {**where, **environment(ours, "provider")}, "shout", "tr a-z A-Z", "--bind", any_port)
    assert run("call", "shout", "hello", env={**where, **environment(ours, "caller")}) == (0, "HELLO\n", "")
    stranger = run("call", "shout", "hello", "--timeout", "1", env={**where, **environment(theirs, "x")})
    assert stranger[:2] == (1, "")
    status, _, err = run("call", "shout", "hello", "--tls-cert", "cert.pem", env=where)
    assert status == 2
    assert "--tls-ca together" in err
