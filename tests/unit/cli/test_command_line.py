"""What is typed, and how errors, commands and services are shown."""

import io
import json
import re

import pytest
from rich.console import Console

from hansa.cli import program
from hansa.cli.arguments import Declaration
from hansa.cli.exit_status import FAILED, USAGE, complain, error_facts, status_of
from hansa.cli.program import COMMANDS, FAMILIES, load
from hansa.cli.services_command import as_object, as_table, summary
from hansa.errors import BadArgument, BadEndpoint, HandlerFailed, StoreUnavailable, TimedOut, TopicExists
from hansa.presence.provider_info import ProviderInfo


def provider(service: str = "shout", **more: object) -> ProviderInfo:
    values = {
        "service": service,
        "endpoint": "tcp://127.0.0.1:5",
        "routing_id": b"\x01abcd",
        "weight": 2,
        "registered_at": 0.0,
        **more,
    }
    return ProviderInfo(**values)  # type: ignore[arg-type]


def test_the_exit_status_says_whose_fault_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(BadEndpoint("bad")) == USAGE
    assert status_of(TimedOut("late")) == FAILED
    assert error_facts(HandlerFailed("no money", "poor")) == {"error": "poor", "text": "no money"}
    assert complain("call", TimedOut("late\x1b"), as_json=True) == FAILED
    shown = capsys.readouterr()
    assert shown.err == "hansa call: late\\x1b\n"
    assert json.loads(shown.out) == {"error": "timed-out", "text": "late\x1b"}


def test_what_exists_already_may_be_free_the_next_time() -> None:
    assert status_of(TopicExists("'chat' is owned")) == FAILED


RAFT = ["orders", "--name", "n1", "--data", "folder"]
WITH_WHOLE_NUMBERS = [
    ("call", ["upper", "x"], "--count"),
    ("call", ["upper", "x"], "--msg-id"),
    ("provide", ["upper", "--exec", "cat"], "--weight"),
    ("provide", ["upper", "--exec", "cat"], "--msg-id"),
    ("provide", ["upper", "--exec", "cat"], "--concurrency"),
    ("registry", [], "--id"),
    ("registry", [], "--provider-entries-max"),
    ("publish", ["chat", "x"], "--count"),
    ("publish", ["chat", "x"], "--wait"),
    ("subscribe", ["chat"], "--count"),
    ("members", [], "--port"),
    ("assignments define", ["orders"], "--partitions"),
    ("assignments work", ["orders", "anna"], "--weight"),
    *(
        (f"raft {command}", words, option)
        for command, words in (("start", RAFT), ("join", [*RAFT, "--via", "host:1"]))
        for option in ("--heartbeat-ms", "--election-ms", "--snapshot-count")
    ),
    ("dev kafka", [], "--port"),
    ("demo", [], "--in-flight"),
    ("demo", [], "--payload-bytes"),
]


@pytest.mark.parametrize(("command", "words", "option"), WITH_WHOLE_NUMBERS)
def test_a_fraction_is_refused_where_a_whole_number_is_asked_for(
    command: str, words: list[str], option: str
) -> None:
    declared = Declaration(load(command))
    declared.read([*words, option, "7"], {})
    declared.read([*words, option, "0x7"], {})
    with pytest.raises(BadArgument, match=r"no whole number|into int"):
        declared.read([*words, option, "7.5"], {})


def test_every_whole_number_that_a_command_takes_is_among_those() -> None:
    listed = {(command, option) for command, _, option in WITH_WHOLE_NUMBERS}
    options = {name: Declaration(load(name)).options for name in COMMANDS}
    assert {
        (name, label) for name in COMMANDS for label, one in options[name].items() if one.kind is int
    } == listed


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["call", "--json"], "requires an argument"),
        (["call", "upper", "x", "--json", "--count", "1.5"], "no whole number"),
        (["publish", "chat", "x", "--nonsense", "--json"], "--nonsense"),
        (["nonsense", "--json"], "nonsense"),
        (["serivces", "--json"], "Did you mean services?"),
        (["call", "upper", "x", "--jsonn", "--json"], "Did you mean --json?"),
        (["raft", "nonsense", "--json"], "start, join, leave"),
        (["--json"], "--json"),
    ],
)
def test_what_cannot_be_parsed_is_json_for_programs(
    typed: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hansa", *typed])
    with pytest.raises(SystemExit) as ended:
        program.main()
    shown = capsys.readouterr()
    assert ended.value.code == USAGE
    assert said in shown.err
    assert shown.err.count("\n") == 1
    facts = json.loads(shown.out)
    assert facts["error"] == "bad-argument"
    assert said in facts["text"]


def test_json_that_another_program_is_asked_for_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hansa", "lock", "till", "--nonsense", "--", "jq", "--json"])
    with pytest.raises(SystemExit):
        program.main()
    assert capsys.readouterr().out == ""


def test_who_finds_no_store_is_told_how_to_get_one(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("lock", "lead", "handovers", "members", "topics move"):
        assert complain(command, StoreUnavailable("silent")) == FAILED
        assert "`hansa store`" in capsys.readouterr().err
    complain("store", StoreUnavailable("in use"))
    assert capsys.readouterr().err == "hansa store: in use\n"


@pytest.mark.parametrize("typed", [[], ["--help"], ["-h"]])
def test_the_list_of_commands_says_what_each_does(
    typed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hansa", *typed])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
    listed = capsys.readouterr().out.splitlines()
    for command in FAMILIES.keys() | {name for name in COMMANDS if name.partition(" ")[0] not in FAMILIES}:
        assert any(re.match(rf"  {command} +[A-Z]\w+ \w", line) for line in listed), command


def test_a_command_of_two_words_is_found_beside_the_one_of_its_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed, said in (
        (["topics", "--nonsense"], "hansa topics: Unknown option: --nonsense."),
        (["topics", "move", "zone:12"], "hansa topics move: NODE requires an argument."),
    ):
        monkeypatch.setattr("sys.argv", ["hansa", *typed])
        with pytest.raises(SystemExit):
            program.main()
        assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("typed", [["raft"], ["raft", "--help"]])
def test_the_list_of_a_family_says_what_each_command_of_it_does(
    typed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hansa", *typed])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
    listed = capsys.readouterr().out.splitlines()
    for name in COMMANDS:
        if name.startswith("raft "):
            assert any(re.match(rf"  {name[5:]} +[A-Z]\w+ \w", line) for line in listed), name


def test_the_table_shows_what_peers_wrote_as_it_is_and_never_as_markup() -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    name = "[red]x\x1b[2J"
    console.print(as_table({name: (provider(name), provider(name, endpoint="tcp://127.0.0.1:6"))}))
    screen = console.export_text()
    assert r"[red]x\x1b[2J" in screen
    assert screen.count("[red]") == 1
    assert "tcp://127.0.0.1:6" in screen


def test_any_time_that_a_registry_says_can_be_shown() -> None:
    times = (0.0, 1e18, 1_700_000_000.0)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(as_table({"shout": tuple(provider(registered_at=time) for time in times)}))
    shown = [line.split("│")[-2].strip() for line in console.export_text().splitlines() if "tcp://" in line]
    assert shown[:2] == ["-", "?"]
    assert shown[2].startswith("2023-11-")


def test_the_list_as_json_and_in_a_sentence() -> None:
    services = {"shout": (provider(),)}
    plain = json.loads(json.dumps(as_object(services, (3,))))
    assert plain["registries"] == [3]
    assert plain["services"]["shout"][0]["registered_at"] is None
    assert summary(services, (3, 4)) == "1 service, 1 provider; heard: registries 3, 4"
    assert summary({}, ()) == "0 services, 0 providers; heard: registries none"
