"""Command lines are read as the signature of a command says, and help tells of all that it takes."""

import inspect
import json
import os
import subprocess
import sys
from dataclasses import is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.cli import program
from hansa.cli.arguments import Declaration, Slot
from hansa.cli.program import COMMANDS, load, named
from hansa.errors import BadArgument

DECLARED = {name: Declaration(load(name)) for name in COMMANDS}
VARIABLES = {
    "HANSA_PUB": "tcp://a:1, tcp://b:2",
    "HANSA_ROUTER": "tcp://c:3",
    "HANSA_STORE": "etcd://d:4",
    "HANSA_CLUSTER": "north",
    "HANSA_TLS_CERT": "cert.pem",
    "HANSA_TLS_KEY": "",
}
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
    *("--", "--json", "--no-json", "--nonsense", "-x", "--tim", "--msg_id"),
]


@st.composite
def anything_typed(draw: st.DrawFn) -> tuple[str, list[str]]:
    name = draw(st.sampled_from(sorted(COMMANDS)))
    option = st.sampled_from(sorted(DECLARED[name].options))
    word = st.sampled_from(WORDS)
    pieces = st.one_of(
        st.tuples(word),
        st.tuples(option),
        st.tuples(option, word),
        st.builds(lambda one, other: (f"{one}={other}",), option, word),
    )
    return name, [one for piece in draw(st.lists(pieces, max_size=6)) for one in piece]


@given(anything_typed(), st.fixed_dictionaries({}, optional={k: st.just(v) for k, v in VARIABLES.items()}))
def test_any_words_call_the_command_or_are_refused(
    typed: tuple[str, list[str]], environment: dict[str, str]
) -> None:
    name, words = typed
    try:
        placed, named_ones = DECLARED[name].read(words, environment)
    except BadArgument as error:
        assert str(error)
    else:
        # What is given to the function is what its signature takes.
        inspect.signature(load(name)).bind(*placed, **named_ones)


def spelled(draw: st.DrawFn, slot: Slot) -> tuple[list[str], object]:
    """A value for a slot: the words that give it, without its name, and what it becomes."""
    if slot.choices:
        choice = draw(st.sampled_from(slot.choices))
        return [choice], choice
    count = draw(st.integers(1, 3)) if slot.is_many else 1
    if slot.kind is str:
        words = [draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1)) for _ in range(count)]
        words = [f"w{word}" for word in words]
        return words, tuple(words) if slot.is_many else words[0]
    # Within the bounds of all numbers that a command takes.
    numbers = [draw(st.integers(3, 60) if slot.kind is int else st.floats(3, 60)) for _ in range(count)]
    return [repr(number) for number in numbers], tuple(numbers) if slot.is_many else numbers[0]


@st.composite
def what_is_meant(draw: st.DrawFn) -> tuple[str, list[str], dict[str, object]]:
    """A command, words that are right for it in some order and spelling, and what each of them means."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    declared = DECLARED[name]
    meant: dict[str, object] = {}
    pieces: list[list[str]] = []
    for slot in declared.places:
        (word,), meant[slot.name] = spelled(draw, slot)
        pieces.append([word])
    for label, slot in declared.options.items():
        if slot.default is inspect.Parameter.empty or draw(st.booleans()):
            if slot.is_flag:
                meant[slot.name] = True
                pieces.append([label])
            else:
                words, meant[slot.name] = spelled(draw, slot)
                has_equals = draw(st.booleans())
                pieces += [[f"{label}={word}"] if has_equals else [label, word] for word in words]
    places = iter(pieces[: len(declared.places)])
    several = pieces[len(declared.places) :]
    order = draw(st.permutations(range(len(pieces))))
    # Words for places keep their order, and so do the words of one option.
    mixed = [next(places) if index < len(declared.places) else several.pop(0) for index in order]
    return name, [word for piece in mixed for word in piece], meant


@given(what_is_meant())
def test_what_is_typed_in_any_order_and_spelling_is_what_the_command_gets(
    typed: tuple[str, list[str], dict[str, object]],
) -> None:
    name, words, meant = typed
    placed, options = DECLARED[name].read(words, {})
    got: dict[str, object] = dict(zip((slot.name for slot in DECLARED[name].places), placed, strict=True))
    for label, value in options.items():
        got |= (
            {f: getattr(value, f) for f in value.__dataclass_fields__}
            if is_dataclass(value)
            else {label: value}
        )
    assert {label: got[label] for label in meant} == meant


@pytest.mark.parametrize(
    ("typed", "option", "value"),
    [
        ("call upper x --count 0x3", "count", 3),
        ("call upper x --timeout 1e1", "timeout", 10.0),
        ("call upper x", "pub", ("tcp://a:1", "tcp://b:2")),
        ("call upper x --pub=tcp://z:9", "pub", ("tcp://z:9",)),
        ("call upper x --pub tcp://a:1 --pub tcp://b:2", "pub", ("tcp://a:1", "tcp://b:2")),
        ("provide s --exec cat --msg-id 1 --msg-id 2", "msg_id", (1, 2)),
        ("publish chat x --store none", "store", "none"),
        ("lead scheduler --value=-x -- ./scheduler", "value", "-x"),
        ("raft start orders --name n1 --data n1 --approval manual", "approval", "manual"),
    ],
)
def test_options_become_what_their_type_says(typed: str, option: str, value: object) -> None:
    assert read(typed, VARIABLES)[1][option] == value


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("call upper -", ["upper", "-"]),
        ("call upper -x", ["upper", "-x"]),
        ("call upper -- --json", ["upper", "--json"]),
        ("publish chat -5", ["chat", "-5"]),
        ("publish chat", ["chat"]),
        ("lock n --ttl 2 -- jq --json -- -h", ["n", "jq", "--json", "--", "-h"]),
        ("lock n jq --json -x", ["n", "jq", "-x"]),
        ("subscribe chat zone:* --count 3", ["chat", "zone:*"]),
    ],
)
def test_words_stand_in_their_places_with_hyphens_where_those_are_meant(typed: str, words: list[str]) -> None:
    assert read(typed)[0] == words


def test_options_of_a_group_are_the_commands_own_and_come_from_the_environment_too() -> None:
    options = read("lock n --ttl 2 -- true", VARIABLES)[1]["options"]
    assert (options.store, options.cluster, options.ttl) == ("etcd://d:4", "north", 2.0)
    assert read("services", {"HANSA_PUB": " tcp://a:1, tcp://b:2,, "})[1]["pub"] == ("tcp://a:1", "tcp://b:2")
    # A variable that is empty says nothing.
    tls = read("members", VARIABLES)[1]["tls"]
    assert (tls.tls_cert, tls.tls_key) == ("cert.pem", None)
    assert "tls" not in read("members")[1]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("call", "SERVICE requires an argument."),
        ("call upper", "PAYLOAD requires an argument."),
        ("call upper x y", "Unused words: y."),
        ("call - upper", "Unknown option: -."),
        ("call upper x --count 1.5", "Invalid value for --count: '1.5' is no whole number"),
        ("call upper x --count 0", 'Invalid value "0" for --count. Must be >= 1.'),
        ("call upper x --msg-id 65535", 'Invalid value "65535" for --msg-id. Must be < 65535.'),
        ("call upper x --timeout nan", 'Invalid value "nan" for --timeout. Must be > 0.'),
        ("call upper x --timeout abc", 'Invalid value for --timeout: unable to convert "abc" into float.'),
        ("call upper x --timeout", "--timeout requires an argument."),
        ("call upper x --timeout --json", "--timeout requires an argument."),
        ("call upper x --timeout 1 --timeout 2", "Parameter --timeout specified multiple times."),
        ("call upper x --json=yes", "--json takes no value."),
        ("call upper x --nonsense", "Unknown option: --nonsense."),
        ("call upper x --tim 1", "Unknown option: --tim. Did you mean --timeout?"),
        (
            "publish chat x --mesh ROUTER",
            'Invalid value "ROUTER" for --mesh. Choose from: "router", "pubsub".',
        ),
        (
            "raft approval orders foo --via a:1",
            'Invalid value "foo" for WHO. Choose from: "automatic", "manual".',
        ),
        ("raft status orders", "--via requires an argument."),
    ],
)
def test_what_is_wrong_is_told_by_its_name(typed: str, said: str) -> None:
    with pytest.raises(BadArgument) as refused:
        read(typed)
    assert str(refused.value) == said


def read(typed: str, environment: dict[str, str] | None = None) -> tuple[list[Any], dict[str, Any]]:
    meant = named(typed.split())
    assert meant is not None
    return DECLARED[meant[0]].read(meant[1], environment or {})


# ---- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_describes_everything_that_a_command_takes(name: str) -> None:
    declared = DECLARED[name]
    lines = declared.described(name, 80).splitlines()
    assert lines[0].startswith(f"Usage: hansa {name} [OPTIONS]")
    for slot in (*declared.places, *([declared.rest] if declared.rest else []), *declared.options.values()):
        (line,) = (line for line in lines if line.startswith(f"  {slot.title}  "))
        about = line.removeprefix(f"  {slot.title}").strip(" `")
        assert about[:1].isalpha(), f"{slot.title} is not described"


def test_help_tells_defaults_variables_and_what_is_required() -> None:
    text = " ".join(DECLARED["provide"].described("provide", 60).split())
    assert "--exec CMD What to run for each request, with `sh -c`. [required]" in text
    assert "[env var: HANSA_ROUTER] [default: tcp://127.0.0.1:5551]" in text
    assert "hansa provide shout --exec 'tr a-z A-Z'" in text
    assert "--tls-key FILE The certificate's private key. [env var: HANSA_TLS_KEY]" in text


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


HEAVY = {"grpc", "rich"}
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
        ("call --help", 0, set()),
        ("--help", 0, set()),
    ],
)
def test_a_command_loads_only_what_it_needs(typed: str, status: int, heavy: set[str]) -> None:
    ended, loaded = loaded_by(*typed.split())
    assert (ended, loaded & HEAVY) == (status, heavy)
