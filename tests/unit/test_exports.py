"""What hansa exports: loaded on first use, and as its reference pages say; and every link leads somewhere."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import build

ROOT = Path(__file__).resolve().parents[2]


def listed(page: Path) -> list[str]:
    """The names that a reference page describes."""
    return re.findall(r"^## (\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("module", build.public_modules())
def test_exports_are_what_the_reference_page_lists(module: str) -> None:
    exported: list[str] = importlib.import_module(module).__all__
    page = build.PAGES / f"{module}.md"
    assert page.exists(), f"{module} has no page: run make docs"
    assert [name for name in exported if not name.startswith("__")] == listed(page)


@pytest.mark.parametrize("module", build.public_modules())
def test_everything_exported_is_there_and_described(module: str) -> None:
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        assert hasattr(loaded, name)
        found = None if name.startswith("__") else build.find(module, name)
        if found is not None and hasattr(found.node, "name"):
            assert found.doc, f"{module}.{name} has no docstring"


# ---- loaded on first use -----------------------------------------------------------------------


def lazy_modules() -> list[str]:
    """The packages that load what they export on first use."""
    return [name for name in build.public_modules() if "on_first_use(" in ast.unparse(build.tree_of(name))]


def export_problems(module: str) -> list[str]:
    """Where a package's imports for type checkers, its table and its `__all__` differ, as sentences."""
    for_types: dict[str, str] = {}
    table: dict[str, str] = {}
    for node in ast.walk(build.tree_of(module)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for step in node.body:
                assert isinstance(step, ast.ImportFrom)
                for_types.update({alias.name: step.module or "" for alias in step.names})
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "on_first_use":
            for source, names in ast.literal_eval(node.args[1]).items():
                table.update(dict.fromkeys(names.split(), source))
    exported = dict.fromkeys(build.exports(module) or [])
    return [
        f"{name}: imported from {for_types.get(name)}, loaded from {table.get(name)}"
        for name in sorted(for_types.keys() | table.keys())
        if for_types.get(name) != table.get(name)
    ] + [f"{name} is not in all of the three" for name in sorted(exported.keys() ^ for_types.keys())]


def modules_after(program: str) -> set[str]:
    """What is loaded in a process of its own after these lines."""
    report = f"{program}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_top_and_every_large_part_load_on_first_use() -> None:
    services = "services.discovery services.gateway services.provider services.registry"
    parts = f"assignment coordination {services} store store.raft topics transport"
    expected = ["hansa", *(f"hansa.{part}" for part in parts.split())]
    assert lazy_modules() == expected


@pytest.mark.parametrize("module", lazy_modules())
def test_type_checkers_and_the_interpreter_find_the_same_names(module: str) -> None:
    assert export_problems(module) == []


def test_importing_hansa_loads_nothing_of_what_it_exports() -> None:
    loaded = modules_after("import hansa")
    assert {name for name in loaded if name.startswith("hansa")} == {"hansa", "hansa.exports"}
    assert not loaded & {"asyncio", "dataclasses", "grpc", "msgspec", "rich", "ssl"}


def test_a_name_loads_its_part_and_none_beside_it() -> None:
    loaded = modules_after("import hansa; hansa.Lock; from hansa import TimedOut; hansa.errors.Conflict")
    assert {"hansa.coordination.lock", "hansa.errors"} <= loaded
    assert not loaded & {"grpc", "hansa.topics", "hansa.services", "hansa.coordination.members"}


def test_a_star_and_a_listing_have_every_name() -> None:
    star = (
        "from hansa import *; import hansa; assert set(hansa.__all__) <= globals().keys() & set(dir(hansa))"
    )
    assert "hansa.topics.spot" in modules_after(star)


def test_a_name_that_is_not_exported_is_told_as_python_tells_it() -> None:
    hansa = importlib.import_module("hansa")
    with pytest.raises(AttributeError, match=r"^module 'hansa' has no attribute 'Hanse'$"):
        _ = hansa.Hanse
    with pytest.raises(ImportError, match="cannot import name 'Hanse' from 'hansa'"):
        exec("from hansa import Hanse")


def test_the_reference_pages_are_up_to_date() -> None:
    assert list(build.outdated()) == [], "run make docs"


def test_every_link_leads_somewhere() -> None:
    assert build.dead_links(ROOT) == []


# ---- the checks can fail -----------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small hansa with one exported class, one error and one function."""
    files = {
        "src/hansa/__init__.py": '"""The top."""\nfrom hansa.ships import Cog\n__all__ = ["Cog"]\n',
        "src/hansa/ships.py": (
            '"""Ships."""\n'
            "from hansa.hulls import Hull\n"
            '__all__ = ["Cog", "sink"]\n'
            "class Cog(Hull):\n"
            '    """Carries salt."""\n'
            "    mast_count: int = 1\n"
            "    async def sail(self, to: str, *, tons: float = 1.5) -> None:\n"
            '        """Leaves at once."""\n'
            "def sink(ship: Cog) -> None:\n"
            '    """Ends it."""\n'
        ),
        "src/hansa/hulls.py": (
            "class Hull:\n"
            "    def __init__(self, name: str = '') -> None: ...\n"
            "    @property\n"
            "    def length_m(self) -> float: ...\n"
        ),
        "src/hansa/cli/__init__.py": '__all__ = ["not_public"]\n',
        "README.md": "Top\n<!-- bench:transport -->\nold\n<!-- /bench:transport -->\nend\n",
        "docs/benchmarks/results.md": (
            "# Results\n"
            "|  | publish 1->1, 1 KiB | publish 1->1, 64 B |\n| --- | ---: | ---: |\n| cog | 1 | 2 |\n\n"
            "| another | table |\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "SOURCE", tmp_path / "src")
    monkeypatch.setattr(build, "PAGES", tmp_path / "docs" / "reference" / "api")
    monkeypatch.setattr(build, "README", tmp_path / "README.md")
    monkeypatch.setattr(build, "RESULTS", tmp_path / "docs" / "benchmarks" / "results.md")
    build.tree_of.cache_clear()
    yield tmp_path
    build.tree_of.cache_clear()


def test_a_page_says_what_the_source_says(planted: Path) -> None:
    assert build.main([]) == 0
    text = (planted / "docs/reference/api/hansa.ships.md").read_text()
    for part in (
        "class Cog(Hull)\nCog(name: str='')\n    mast_count: int = 1",
        "### Cog.sail\n\n```py\nasync sail(to: str, *, tons: float=1.5) -> None\n```\n\nLeaves at once.",
        "### Cog.length_m\n\n```py\nlength_m: float\n```",
        "## sink\n\n```py\nsink(ship: Cog) -> None\n```\n\nEnds it.",
    ):
        assert part in text
    assert listed(planted / "docs/reference/api/hansa.md") == ["Cog"]
    assert not (planted / "docs/reference/api/hansa.cli.md").exists()


def test_readme_shows_the_last_benchmark_and_nothing_else_changes(planted: Path) -> None:
    assert build.main([]) == 0
    table = "|  | publish 1->1, 64 B |\n| --- | ---: |\n| cog | 2 |\n"
    assert (planted / "README.md").read_text() == (
        f"Top\n<!-- bench:transport -->\n{table}<!-- /bench:transport -->\nend\n"
    )
    assert build.main(["--check"]) == 0
    (planted / "docs/benchmarks/results.md").write_text(table.replace("2", "3"))
    assert build.main(["--check"]) == 1


def test_readme_has_a_table_for_each_of_its_marks(planted: Path) -> None:
    marks = "<!-- bench:gateway -->\nold\n<!-- /bench:gateway -->\n"
    (planted / "README.md").write_text(f"<!-- bench:transport -->\nkept\n<!-- /bench:transport -->\n{marks}")
    (planted / "docs/benchmarks/results.md").write_text(
        "# Results\n| another | table |\n\n## Gateway\n\n"
        "|  | gateway request, 64 B, 1 in flight |\n| --- | ---: |\n| cog | 2 |\n\n| one | more |\n"
    )
    assert build.main([]) == 0
    table = "|  | gateway request, 64 B, 1 in flight |\n| --- | ---: |\n| cog | 2 |\n"
    assert (planted / "README.md").read_text() == (
        "<!-- bench:transport -->\nkept\n<!-- /bench:transport -->\n"
        f"<!-- bench:gateway -->\n{table}<!-- /bench:gateway -->\n"
    )


@pytest.mark.parametrize(
    ("table", "exported", "problem"),
    [
        ('{"hansa.ships": "Cog"}', '["Cog", "sink"]', "sink: imported from hansa.ships, loaded from None"),
        ('{"hansa.ships": "Cog sink Hull"}', '["Cog", "sink"]', "Hull: imported from None"),
        ('{"hansa.hulls": "Cog", "hansa.ships": "sink"}', '["Cog", "sink"]', "loaded from hansa.hulls"),
        ('{"hansa.ships": "Cog sink"}', '["Cog"]', "sink is not in all of the three"),
        ('{"hansa.ships": "Cog sink"}', '["Cog", "sink", "Hull"]', "Hull is not in all of the three"),
    ],
)
def test_a_name_that_only_some_can_find_is_found(
    planted: Path, table: str, exported: str, problem: str
) -> None:
    (planted / "src/hansa/__init__.py").write_text(
        "if TYPE_CHECKING:\n    from hansa.ships import Cog, sink\n"
        f"else:\n    __getattr__, __dir__ = on_first_use(__name__, {table})\n__all__ = {exported}\n"
    )
    (found,) = export_problems("hansa")
    assert problem in found


def test_a_changed_source_makes_its_page_out_of_date(planted: Path) -> None:
    build.main([])
    assert build.main(["--check"]) == 0
    ships = planted / "src/hansa/ships.py"
    ships.write_text(ships.read_text().replace("tons: float", "tonnes: float"))
    build.tree_of.cache_clear()
    assert build.main(["--check"]) == 1
    assert [path.name for path in build.outdated()] == ["hansa.md", "hansa.ships.md"]


def test_a_page_of_a_module_that_is_gone_is_taken_away(planted: Path) -> None:
    build.main([])
    (planted / "src/hansa/ships.py").write_text("class Cog: ...\n")
    build.tree_of.cache_clear()
    assert build.main(["--check"]) == 1
    build.main([])
    assert [path.name for path in sorted(build.PAGES.iterdir())] == ["hansa.md"]


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[a](docs/missing.md)", "leads to no file"),
        ("[a](docs/page.md#no-such-heading)", "leads to no heading"),
        ("[a](#nothing)", "leads to no heading"),
    ],
)
def test_a_dead_link_is_found(tmp_path: Path, link: str, problem: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# A page\n## Its `first` part: one\n")
    (tmp_path / "README.md").write_text(f"# Top\n{link}\n")
    (found,) = build.dead_links(tmp_path)
    assert found.endswith(problem)


def test_a_live_link_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# A page\n## Its `first` part: one\n[up](../README.md#top)\n")
    (tmp_path / "README.md").write_text(
        "# Top\n[a](docs/page.md#its-first-part-one) [b](https://example.org)\n```text\n[x](nowhere)\n```\n"
    )
    assert build.dead_links(tmp_path) == []
