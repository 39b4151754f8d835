"""The house rules that a program can check."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINES_MAX = 750
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "base", "misc", "tools", "stuff"})
# Code that is run, or objects that are made, from bytes that somebody sent.
UNSAFE_MODULES = frozenset({"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"})
UNSAFE_CALLS = frozenset({"eval", "exec"})
# A task without a parent outlives the block that started it, and its exception is nobody's.
PARENTLESS = frozenset({"create_task", "ensure_future"})
# Where a task is started and kept by hand, with the reason: a path under the root, and why.
TASK_PLACES = {
    "src/hansa/runtime/tasks.py": "keeps a socket's tasks and ends them with it",
    "src/hansa/services/provider/handlers.py": "keeps a provider's handlers, without a callback each",
}
# Names that two classes of `src` share, with the reason: everywhere else one name means one thing.
SHARED_NAMES = {
    "Call": "a gateway's, on its way; a checker's, in a history: each is what its users call it",
    "Message": "of a socket, and of a topic: the two that users receive",
    "Move": "a topic's, as the wire says it; a partition's, in a plan that people read",
    "Outcome": "of a store's commit and of a simulation, both public; of a step in another thread",
    "Subscribe": "ZMTP's command, and the topic mesh's: both are called so in their specifications",
}
# What threads use is called as what it mirrors.
MIRRORS = "src/hansa/sync"
# Folders that exist on one person's machine only.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:root|home|work|Users)/\w")


# ---- the rules: each takes a file's tree and yields what is wrong ------------------------------


def parentless_tasks(tree: ast.AST) -> Iterator[str]:
    """Tasks are started in a TaskGroup; what asyncio and the loop start has no parent."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            for alias in node.names:
                if alias.name in PARENTLESS:
                    yield f"{node.lineno}: imports asyncio.{alias.name}"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in PARENTLESS
        ):
            owner = ast.unparse(node.func.value)
            if owner == "asyncio" or "loop" in owner.rpartition(".")[2]:
                yield f"{node.lineno}: {owner}.{node.func.attr}() starts a task without a parent"


def unsafe_decoding(tree: ast.AST) -> Iterator[str]:
    """Nothing from the wire or the disk is ever unpickled or evaluated."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] in UNSAFE_MODULES:
                yield f"{node.lineno}: imports {name}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
            yield f"{node.lineno}: calls {node.func.id}()"


def swallowed_exceptions(tree: ast.AST) -> Iterator[str]:
    """An `except` that catches everything does something with it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = "everything" if node.type is None else ast.unparse(node.type)
        idle = all(isinstance(step, ast.Pass | ast.Continue) or is_text(step) for step in node.body)
        if idle and any(word in caught for word in ("everything", "Exception", "CancelledError")):
            yield f"{node.lineno}: catches {caught} and does nothing with it"


def reasonless_skips(tree: ast.AST) -> Iterator[str]:
    """A test that does not run says why."""
    decorated = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    kinds = ("skip", "skipif", "xfail", "importorskip")
    for node in ast.walk(tree):
        decorators = node.decorator_list if isinstance(node, decorated) else []
        for decorator in decorators:
            if isinstance(decorator, ast.Attribute) and decorator.attr in ("skip", "xfail"):
                yield f"{decorator.lineno}: {decorator.attr} without a reason"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            kind, owner = node.func.attr, ast.unparse(node.func.value)
            if kind not in kinds or owner not in (
                "pytest",
                "pytest.mark",
            ):
                continue
            given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            if kind in ("skip", "xfail"):
                given += node.args
            if not any(is_sentence(value) for value in given):
                yield f"{node.lineno}: {kind} without a reason"


def is_text(step: ast.stmt) -> bool:
    return isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)


def is_sentence(value: ast.expr) -> bool:
    return not isinstance(value, ast.Constant) or (
        isinstance(value.value, str) and len(value.value.split()) > 1
    )


# ---- applied to the tree -----------------------------------------------------------------------


def broken(rule: Callable[[ast.AST], Iterator[str]], files: list[Path], root: Path) -> list[str]:
    return [
        f"{path.relative_to(root).as_posix()}:{problem}"
        for path in files
        for problem in rule(ast.parse(path.read_text(encoding="utf-8")))
    ]


def too_long(files: list[Path], root: Path) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    return [
        f"{path.relative_to(root)}: {count} lines" for path, count in lengths.items() if count > LINES_MAX
    ]


def badly_named(source: Path, dependencies: frozenset[str]) -> list[str]:
    """Modules with a name that says nothing, or that belongs to somebody else."""
    problems = []
    for path in sorted([*source.rglob("*.py"), *(folder for folder in source.rglob("*") if folder.is_dir())]):
        name = path.stem
        if name.startswith("__") or path == source / "hansa":
            continue
        if name in VAGUE_NAMES:
            problems.append(f"{path.relative_to(source)}: {name} says nothing about what is inside")
        if name in sys.stdlib_module_names or name in dependencies:
            problems.append(f"{path.relative_to(source)}: {name} is the name of another module")
    return problems


def shared_names(files: list[Path], root: Path) -> dict[str, list[str]]:
    """Names of more than one class, with their files; without mirrors, and messages that are generated."""
    places: dict[str, list[str]] = {}
    for path in files:
        place = path.relative_to(root).as_posix()
        if not place.startswith(MIRRORS):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def machine_paths(files: list[Path], root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: {match.group()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in MACHINE_PATH.finditer(line)
    ]


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def text_files() -> list[Path]:
    kinds = (".py", ".md", ".toml", ".txt", ".json", ".svg", ".sh")
    folders = [ROOT / name for name in ("src", "tests", "bench", "docs", "requirements")]
    inner = [path for folder in folders for path in folder.rglob("*") if path.suffix in kinds]
    return sorted([*inner, *(path for path in ROOT.iterdir() if path.suffix in kinds), ROOT / "Makefile"])


def dependency_names() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    return frozenset(re.split(r"[^\w.-]", line)[0].lower().replace("-", "_") for line in lines) | {
        "zmq",
        "grpc",
    }


def test_no_file_is_longer_than_a_reader_wants() -> None:
    assert too_long(python_files("src", "tests", "bench", "docs"), ROOT) == []


def test_every_module_has_a_name_of_its_own() -> None:
    assert badly_named(ROOT / "src", dependency_names()) == []


def test_every_task_has_a_parent() -> None:
    files = [path for path in python_files("src") if path.relative_to(ROOT).as_posix() not in TASK_PLACES]
    assert broken(parentless_tasks, files, ROOT) == []


def test_every_named_exception_to_the_task_rule_is_still_needed() -> None:
    for place in TASK_PLACES:
        assert broken(parentless_tasks, [ROOT / place], ROOT) != [], f"{place} needs no exception"


def test_a_class_has_a_name_of_its_own_or_a_reason_to_share_it() -> None:
    shared = shared_names(python_files("src"), ROOT)
    unexplained = {name: places for name, places in shared.items() if name not in SHARED_NAMES}
    assert unexplained == {}, "rename the less public one, or say in SHARED_NAMES why both"


def test_every_shared_name_is_still_shared() -> None:
    assert SHARED_NAMES.keys() - shared_names(python_files("src"), ROOT).keys() == set()


@pytest.mark.spec("SEC-06")
def test_nothing_is_unpickled_or_evaluated() -> None:
    assert broken(unsafe_decoding, python_files("src"), ROOT) == []


def test_no_exception_is_swallowed() -> None:
    assert broken(swallowed_exceptions, python_files("src", "bench"), ROOT) == []


def test_every_test_that_does_not_run_says_why() -> None:
    assert broken(reasonless_skips, python_files("tests"), ROOT) == []


def test_no_file_names_a_folder_of_one_machine() -> None:
    assert machine_paths(text_files(), ROOT) == []


# ---- the rules can fail ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(f())",
        "asyncio.ensure_future(f())",
        "asyncio.get_running_loop().create_task(f())",
        "self._loop.create_task(f())",
        "from asyncio import create_task",
    ],
)
def test_a_task_without_a_parent_is_found(line: str) -> None:
    assert len(list(parentless_tasks(ast.parse(line)))) == 1


def test_a_task_of_a_group_is_no_problem() -> None:
    assert list(parentless_tasks(ast.parse("group.create_task(f(), name='reader')"))) == []


@pytest.mark.parametrize(
    "line", ["import pickle", "from marshal import loads", "import dill.source", "eval(text)", "exec(x)"]
)
def test_unsafe_decoding_is_found(line: str) -> None:
    assert len(list(unsafe_decoding(ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "handler",
    [
        "except Exception:\n  pass",
        "except:\n  pass",
        "except BaseException:\n  '''why'''",
        "except (A, CancelledError):\n  pass",
    ],
)
def test_a_swallowed_exception_is_found(handler: str) -> None:
    assert len(list(swallowed_exceptions(ast.parse(f"try:\n  f()\n{handler}\n")))) == 1


@pytest.mark.parametrize("handler", ["except KeyError:\n  pass", "except Exception as e:\n  tell(e)"])
def test_a_handled_exception_is_no_problem(handler: str) -> None:
    assert list(swallowed_exceptions(ast.parse(f"try:\n  f()\n{handler}\n"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.skip\ndef test(): ...",
        "@pytest.mark.skip()\ndef test(): ...",
        "@pytest.mark.xfail\ndef test(): ...",
        "@pytest.mark.skipif(windows)\ndef test(): ...",
        "pytest.skip()",
        "pytest.skip('')",
        "pytest.importorskip('zmq')",
    ],
)
def test_a_skip_without_a_reason_is_found(text: str) -> None:
    assert len(list(reasonless_skips(ast.parse(text)))) == 1


def test_a_skip_with_a_reason_is_no_problem() -> None:
    text = "@pytest.mark.skipif(windows, reason='Windows has no Unix sockets')\ndef test(): ..."
    assert list(reasonless_skips(ast.parse(text))) == []


def test_a_long_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("x = 1\n" * (LINES_MAX + 1))
    (tmp_path / "fits.py").write_text("x = 1\n" * LINES_MAX)
    assert too_long(sorted(tmp_path.iterdir()), tmp_path) == [f"long.py: {LINES_MAX + 1} lines"]


def test_bad_names_are_found(tmp_path: Path) -> None:
    for name in ("hansa/utils.py", "hansa/wire/socket.py", "hansa/rich/fine.py", "hansa/cli/__main__.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [problem.split(":")[0] for problem in badly_named(tmp_path, frozenset({"rich"}))] == [
        "hansa/rich",
        "hansa/utils.py",
        "hansa/wire/socket.py",
    ]


def test_a_name_of_two_classes_is_found(tmp_path: Path) -> None:
    for name in ("src/hansa/a.py", "src/hansa/b.py", "src/hansa/sync/a.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("class Peer: ...\nclass _Peer: ...\n")
    (tmp_path / "src/hansa/b.py").write_text("class Peer: ...\ndef make():\n  class Inner: ...\n")
    found = shared_names(sorted(tmp_path.rglob("*.py")), tmp_path)
    assert found == {"Peer": ["src/hansa/a.py", "src/hansa/b.py"]}


def test_a_folder_of_one_machine_is_found(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    note.write_text(
        "\n".join(
            ["see " + "/" + "home/ada/hansa", "tcp://host/path", "ipc:///run/hansa.sock", "docs/home/x"]
        )
    )
    assert len(machine_paths([note], tmp_path)) == 1
