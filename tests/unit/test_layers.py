"""Imports go only downward, and modules that decide do not touch the world."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"

# From the ground up. A part imports parts of lower rows and itself, nothing beside and nothing above it.
# The four parts of `services` are parts like all others.
ROWS: tuple[frozenset[str], ...] = tuple(
    frozenset(row.split())
    for row in (
        "errors exports",
        "limits clock chance installed",
        "ids endpoint config keys",
        "wire runtime observe security",
        "transport control",
        "store",
        "coordination",
        "presence",
        "services services.registry services.discovery services.provider services.gateway topics",
        "assignment",
        "partition",
        "join",
        "__init__",
        "sync",
        "demo",
        "cli dashboard",
        "testing",
    )
)
# A gateway and a node of topics are given a discovery.
BESIDE = frozenset({("services.gateway", "services.discovery"), ("topics", "services.discovery")})
# Everything may be tested; nothing that ships may need the test kit.
UNIMPORTABLE = frozenset({"testing", "cli", "dashboard"})

WORLD = frozenset(
    {"asyncio", "concurrent", "grpc", "multiprocessing", "os", "random", "secrets", "select", "selectors"}
    | {"signal", "socket", "ssl", "subprocess", "threading", "time", "uvloop", "zmq"}
)
# A module whose opening says so is pure, and all of `wire` is.
SAYS_PURE = re.compile(r"\bPure\b")
PURE_PACKAGES = frozenset({"wire"})


def layer_problems(source: Path) -> list[str]:
    """Every import against the rows, as a sentence."""
    problems = []
    for path in modules(source):
        part = part_of(path.relative_to(source / "hansa"))
        row = row_of(part)
        if row is None:
            problems.append(f"{path.relative_to(source)}: {part} stands in no row")
            continue
        for name, line in imports(path, source):
            if name.split(".")[0] != "hansa":
                continue
            other = part_of(Path(*name.split(".")[1:])) if "." in name else "__init__"
            other_row = row_of(other)
            if other == part or (part, other) in BESIDE:
                continue
            if other_row is None or other_row >= row or other in UNIMPORTABLE:
                problems.append(f"{path.relative_to(source)}:{line}: {part} imports {name}")
    return problems


def purity_problems(source: Path) -> list[str]:
    """Every import of the world by a module that says it is pure, as a sentence."""
    return [
        f"{path.relative_to(source)}:{line}: a pure module imports {name}"
        for path in modules(source)
        if is_pure(path, source)
        for name, line in imports(path, source, for_types=False)
        if name.split(".")[0] in WORLD
    ]


def is_pure(path: Path, source: Path) -> bool:
    opening = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return part_of(path.relative_to(source / "hansa")) in PURE_PACKAGES or bool(SAYS_PURE.search(opening))


def modules(source: Path) -> list[Path]:
    return sorted(path for path in (source / "hansa").rglob("*.py"))


def part_of(inside: Path) -> str:
    """The part that a module of hansa belongs to: its package, or the module itself on the ground floor."""
    parts = [part.removesuffix(".py") for part in inside.parts if part != "__init__.py"]
    if not parts:
        return "__init__"
    return ".".join(parts[:2]) if parts[0] == "services" else parts[0]


def row_of(part: str) -> int | None:
    return next((number for number, row in enumerate(ROWS) if part in row), None)


def imports(path: Path, source: Path, *, for_types: bool = True) -> Iterator[tuple[str, int]]:
    """Every absolute module name that a file imports, with its line; also those inside functions."""
    package = path.relative_to(source).parts[:-1]
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not for_types:
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*base, node.module] if node.module else base)
            if module == "hansa":
                # A name that is no part is one that hansa itself exports.
                for alias in node.names:
                    yield f"hansa.{alias.name}" if row_of(alias.name) is not None else "hansa", node.lineno
            else:
                yield module, node.lineno
        todo += ast.iter_child_nodes(node)


def test_imports_go_only_downward() -> None:
    assert layer_problems(SOURCE) == []


def test_pure_modules_do_not_touch_the_world() -> None:
    assert purity_problems(SOURCE) == []


def test_every_floor_has_pure_modules() -> None:
    """A machine whose opening stops saying that it is pure would be held to nothing."""
    pure = {part_of(path.relative_to(SOURCE / "hansa")) for path in modules(SOURCE) if is_pure(path, SOURCE)}
    assert pure >= {"wire", "runtime", "transport", "store", "coordination", "presence", "topics"}
    assert pure >= {f"services.{part}" for part in ("registry", "discovery", "provider", "gateway")}


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A small hansa that keeps all rules."""
    files = {
        "errors.py": "",
        "clock.py": "import time\nfrom hansa.errors import HansaError\n",
        "wire/frames.py": "from hansa import errors\nimport struct\n",
        "transport/link.py": '"""One connection. Pure."""\nimport struct\n',
        "transport/network.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio\n",
        "transport/router_socket.py": "import asyncio\nfrom . import network\nfrom ..wire import frames\n",
        "services/gateway/client.py": "import asyncio\nimport hansa.services.discovery.client\n",
        "testing/loop.py": "import asyncio\nfrom hansa.transport.router_dealer import Router\n",
    }
    for name, text in files.items():
        path = tmp_path / "hansa" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_tree_that_keeps_the_rules_has_no_problems(planted: Path) -> None:
    assert layer_problems(planted) == []
    assert purity_problems(planted) == []


@pytest.mark.parametrize(
    ("file", "line", "problem"),
    [
        ("wire/frames.py", "from hansa.transport import Router", "wire imports hansa.transport"),
        (
            "wire/frames.py",
            "def f():\n    import hansa.transport.network",
            "wire imports hansa.transport.network",
        ),
        ("wire/frames.py", "from ..transport import network", "wire imports hansa.transport"),
        ("wire/frames.py", "from hansa import transport", "wire imports hansa.transport"),
        ("wire/frames.py", "from hansa.observe import counter", "wire imports hansa.observe"),
        ("errors.py", "import hansa.ids", "errors imports hansa.ids"),
        ("transport/network.py", "from hansa.testing import loop", "transport imports hansa.testing"),
        ("transport/network.py", "import hansa", "transport imports hansa"),
        ("testing/loop.py", "import hansa.cli.program", "testing imports hansa.cli.program"),
        (
            "services/gateway/calls.py",
            "import hansa.topics.node",
            "services.gateway imports hansa.topics.node",
        ),
        ("topics/node.py", "import hansa.services.gateway", "topics imports hansa.services.gateway"),
        ("gadgets/screw.py", "", "gadgets stands in no row"),
    ],
)
def test_an_import_against_the_rows_is_found(planted: Path, file: str, line: str, problem: str) -> None:
    plant(planted, file, line)
    (found,) = layer_problems(planted)
    assert found.endswith(problem)


@pytest.mark.parametrize(
    ("file", "line", "name"),
    [
        ("wire/frames.py", "import asyncio", "asyncio"),
        ("wire/frames.py", "from os import path", "os"),
        ("wire/frames.py", "def f():\n    import socket", "socket"),
        ("transport/link.py", "import ssl", "ssl"),
        ("transport/link.py", "def f():\n    import random", "random"),
        ("wire/clock.py", "import time", "time"),
        ("wire/socket_frames.py", "import concurrent.futures", "concurrent.futures"),
    ],
)
def test_a_pure_module_that_touches_the_world_is_found(
    planted: Path, file: str, line: str, name: str
) -> None:
    plant(planted, file, line)
    (found,) = purity_problems(planted)
    assert found.endswith(f"a pure module imports {name}")


def plant(source: Path, file: str, line: str) -> None:
    path = source / "hansa" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}{line}\n")
