"""Plain command lines are read without the full parser, exactly as it reads them, and only those."""

import inspect
import json
import os
import subprocess
import sys
from dataclasses import asdict, is_dataclass
from typing import Any

import cyclopts
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansa.cli import program
from hansa.cli.arguments import read
from hansa.cli.commands import COMMANDS, load, named
from hansa.cli.full_parser import parser

VARIABLES = {
    "HANSA_PUB": "tcp://a:1, tcp://b:2",
    "HANSA_ROUTER": "tcp://c:3",
    "HANSA_STORE": "etcd://d:4",
    "HANSA_CLUSTER": "north",
    "HANSA_TLS_CERT": "cert.pem",
    "HANSA_TLS_KEY": "",
}
FULL = parser()


def options_of(name: str) -> list[str]:
    app = FULL
    for word in name.split():
        app = app[word]
    return [argument.name for argument in app.assemble_argument_collection() if argument.name[:2] == "--"]


# What a command cannot do without.
NEEDS = {
    **dict.fromkeys(COMMANDS, ""),
    **{"call": "upper x", "provide": "upper --exec cat", "publish": "chat", "subscribe": "chat"},
    **dict.fromkeys(["lock", "lead"], "nightly true"),
    **dict.fromkeys(["raft leave", "raft approve"], "orders --via a:1 --name n"),
    **{"raft start": "orders --name n --data d", "raft join": "orders --via a:1 --name n --data d"},
    **{"raft refuse": "orders --via a:1 --name n --reason r", "raft approval": "orders manual --via a:1"},
    "raft status": "orders --via a:1",
}
OPTIONS = {name: options_of(name) for name in COMMANDS}
WORDS = [
    *(
        "upper",
        "x",
        "-",
        "",
        "a=b",
        "@file",
        "é",
        "n1=host:1",
        "none",
        "router",
        "Pubsub",
        "manual",
        "etcd://e:5",
    ),
    *("0", "1", "3.5", "0x7", "007", "-1", "1e3", "nan", "inf", "65535", "1_0", " 2", "true", "5s"),
    *("--", "--help", "-h", "--version", "--json", "--no-json", "--nonsense", "-x", "--tim", "--msg_id"),
]


def plain(value: Any) -> Any:
    """Groups of options by their contents: the full parser makes twins of their classes."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    # Not a number is not even itself.
    return repr(value)


def fully(typed: list[str], environment: dict[str, str]) -> tuple[object, Any] | None:
    """The function and the arguments that the full parser finds, or None where it finds a fault."""
    before = {name: os.environ.pop(name, None) for name in VARIABLES}
    os.environ.update(environment)
    try:
        command, bound, *_ = FULL.parse_args(typed, exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError:
        return None
    finally:
        for name, text in before.items():
            os.environ.pop(name, None)
            if text is not None:
                os.environ[name] = text
    return getattr(command, "__wrapped__", command), plain(with_defaults(command, bound.args, bound.kwargs))


def with_defaults(command: Any, words: Any, options: Any) -> Any:
    """All that the function gets, whether it was given or not."""
    bound = inspect.signature(command).bind(*words, **options)
    bound.apply_defaults()
    return dict(bound.arguments)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    option = st.sampled_from(OPTIONS[name])
    word = st.sampled_from(WORDS)
    pieces = st.one_of(
        st.tuples(word),
        st.tuples(option),
        st.tuples(option, word),
        st.builds(lambda one, other: (f"{one}={other}",), option, word),
    )
    needs = draw(st.sampled_from([NEEDS[name], NEEDS[name], ""])).split()
    return [*name.split(), *needs, *(one for piece in draw(st.lists(pieces, max_size=4)) for one in piece)]


# What people type, and what is nearly that.
@example(["call", "upper", "x", "--timeout", "1", "--pub=tcp://z:9"], {})
@example(["call", "upper", "-", "--count", "0x3", "--json"], dict(VARIABLES, HANSA_TLS_KEY="key.pem"))
@example(["call", "-", "upper"], {})
@example(["publish", "chat", "--mesh", "Pubsub"], {})
@example(["publish", "chat", "--store", "none"], {})
@example(["lock", "n", "--ttl", "2", "--", "jq", "--json", "--", "-h"], {"HANSA_STORE": "etcd://d:4"})
@example(["lock", "n", "jq", "--json"], {})
@example(["provide", "s", "--exec", "cat", "--msg-id", "1", "--msg-id", "2"], {})
@example(["raft", "start", "app", "--name", "n", "--data", "d", "--approval", "manual"], {})
@example(["raft", "status", "app", "--via", "a:1", "--via", "b:2"], {})
@given(command_lines(), st.fixed_dictionaries({}, optional={k: st.just(v) for k, v in VARIABLES.items()}))
def test_what_is_read_plainly_is_what_the_full_parser_reads(
    typed: list[str], environment: dict[str, str]
) -> None:
    meant = named(typed)
    assert meant is not None
    command = load(meant[0])
    call = read(command, meant[1], environment)
    if call is not None:
        assert (command, plain(with_defaults(command, *call))) == fully(typed, environment)


@pytest.mark.parametrize(
    "typed",
    [
        "call upper x",
        "call upper - --json --timeout 3 --pub tcp://a:1 --pub tcp://b:2",
        "lock nightly --try --store etcd://a:1,b:2 -- ./backup.sh --full",
        "lead scheduler --value=host-1:8080 --once -- ./scheduler",
        "publish chat hello --create --wait 2 --mesh router",
        "subscribe chat zone:* --count 3",
        "members --watch --cluster north",
        "services",
        "topics --watch --json",
        "provide shout --exec cat --msg-id 1 --msg-id 2 --weight 3",
        "registry --id 7 --peer tcp://a:1 --tls-cert a --tls-key b --tls-ca c",
        "store --memory --listen 127.0.0.1:0",
        "raft start orders --name n1 --data n1 --peers n1=127.0.0.1:1 --heartbeat-ms 50 --approval manual",
        "raft status orders --via 127.0.0.1:2390 --json",
        "demo --seconds 3",
    ],
)
def test_what_people_type_is_plain(typed: str) -> None:
    meant = named(typed.split())
    assert meant is not None
    assert read(load(meant[0]), meant[1], {}) is not None


@pytest.mark.parametrize(
    "typed",
    [
        "call",
        "call upper",
        "call upper x y",
        "call upper x --count 1.5",
        "call upper x --count 0",
        "call upper x --timeout",
        "call upper x --timeout --json",
        "call upper x --timeout 1 --timeout 2",
        "call upper x --json=yes",
        "call upper x --nonsense",
        "call upper x --help",
        "publish chat x --mesh ROUTER",
        "raft status orders",
    ],
)
def test_help_and_faults_are_left_to_the_full_parser(typed: str) -> None:
    meant = named(typed.split())
    assert meant is not None
    assert read(load(meant[0]), meant[1], {}) is None


def test_a_command_that_is_interrupted_ends_as_shells_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: str) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "load", lambda name: interrupted)
    monkeypatch.setattr("sys.argv", ["hansa", "call", "upper", "x"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 130


# ---- what a command does not need is not loaded ------------------------------------------------


def loaded_by(*typed: str) -> tuple[int, set[str]]:
    """The exit status of a command, and the modules that its process had loaded at the end."""
    program_text = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: print('\\n' + json.dumps(list(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['hansa', *{typed!r}]\n"
        "from hansa.cli.program import main\n"
        "main()"
    )
    environment = {name: text for name, text in os.environ.items() if not name.startswith("HANSA_")}
    done = subprocess.run(
        [sys.executable, "-c", program_text], capture_output=True, text=True, env=environment, timeout=60
    )
    return done.returncode, set(json.loads(done.stderr.splitlines()[-1]))


HEAVY = {"cyclopts", "grpc", "rich"}
NOBODY = "tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    ("typed", "status", "heavy"),
    [
        ("--version", 0, set()),
        (f"call upper x --timeout 0.1 --pub {NOBODY}", 1, set()),
        (f"services --json --timeout 0.1 --pub {NOBODY}", 1, set()),
        # A store that is none is refused before gRPC would be needed.
        ("lock nightly --store memory://x -- true", 2, set()),
        ("members --store memory://x", 2, set()),
        ("raft status orders --via nonsense", 2, {"grpc"}),
        ("lock nightly --store etcd://127.0.0.1:x -- true", 2, {"grpc"}),
        ("call --help", 0, {"cyclopts", "rich"}),
        ("--help", 0, {"cyclopts", "rich"}),
    ],
)
def test_a_command_loads_only_what_it_needs(typed: str, status: int, heavy: set[str]) -> None:
    ended, loaded = loaded_by(*typed.split())
    assert (ended, loaded & HEAVY) == (status, heavy)
