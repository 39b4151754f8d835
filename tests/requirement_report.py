"""Which test proves which requirement, and how it went.

As a pytest plugin it notes, for every test that carries `@pytest.mark.spec("DIS-07")`, the ids and the
outcome in build/spec-results.json. As a command (`make spec`) it lays those results beside
docs/reference/requirements.md, prints a table, and writes build/spec.json:

    {"DIS-07": {"text": "...", "tests": {"tests/unit/test_x.py::test_y": "passed"}}}

It ends with 1 when a test names an id that does not exist, and with 2 when there are no results.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

REQUIREMENTS = Path("docs", "reference", "requirements.md")
RESULTS = Path("build", "spec-results.json")
REPORT = Path("build", "spec.json")
# Where there is no terminal there is no width to fit.
PLAIN_WIDTH = 160

_LINE = re.compile(r"^- (?P<id>[A-Z]{3}-\d{2,}) (?P<text>.+)$")
_PARAMETERS = re.compile(r"\[.*\]")
_STYLES = {"passed": "green", "failed": "red", "error": "red", "skipped": "yellow"}
# A test has up to three phases; the worst of them is its outcome.
_BADNESS = ("passed", "skipped", "failed", "error")


@dataclass(slots=True)
class Result:
    """What one test claims to prove, and how it went."""

    ids: list[str]
    outcome: str = "passed"

    def add(self, outcome: str) -> None:
        self.outcome = max(self.outcome, outcome, key=_BADNESS.index)


# ---- the plugin --------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("requirements")
    group.addoption(
        "--requirement-results",
        choices=["new", "add"],
        default=None,
        help="note which requirements the tests prove: in a new file, or added to what is there",
    )
    group.addoption(
        "--requirement-form", default="", help="a word that tells this run's tests from those before"
    )


def pytest_configure(config: pytest.Config) -> None:
    mode = config.getoption("--requirement-results")
    if mode is not None:
        recorder = RequirementRecorder(
            config.rootpath / RESULTS, mode, config.getoption("--requirement-form")
        )
        config.pluginmanager.register(recorder, "requirement-recorder")


class RequirementRecorder:
    """Collects the results of one run and writes them at its end."""

    def __init__(self, path: Path, mode: str, form: str) -> None:
        self._path = path
        self._form = form
        self._results = load_results(path) if mode == "add" else {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            # Properties travel with the report, so this also works when the tests run elsewhere.
            item.user_properties += [("spec", id) for id in spec_ids(item)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ids = [str(value) for name, value in report.user_properties if name == "spec"]
        if not ids:
            return
        outcome = "error" if report.failed and report.when != "call" else report.outcome
        name = f"{report.nodeid} ({self._form})" if self._form else report.nodeid
        if report.when == "setup":
            self._results[name] = Result(ids=ids)
        self._results[name].add(outcome)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return  # A worker of a parallel run: the reports go to the process that started it.
        self._path.parent.mkdir(parents=True, exist_ok=True)
        plain = {name: {"ids": r.ids, "outcome": r.outcome} for name, r in sorted(self._results.items())}
        self._path.write_text(json.dumps(plain, indent=1) + "\n")


def spec_ids(item: pytest.Item) -> Iterator[str]:
    """Every id that the test's own marks, its class's and its module's name."""
    for mark in item.iter_markers("spec"):
        if not mark.args or not all(isinstance(id, str) for id in mark.args):
            raise pytest.UsageError(f'{item.nodeid}: write @pytest.mark.spec("ID")')
        yield from mark.args


def load_results(path: Path) -> dict[str, Result]:
    if not path.exists():
        return {}
    return {name: Result(**plain) for name, plain in json.loads(path.read_text()).items()}


# ---- the command -------------------------------------------------------------------------------


@dataclass(slots=True)
class Requirement:
    """One line of the list, with the tests that prove it."""

    text: str
    tests: dict[str, str] = field(default_factory=dict)


def read_requirements(text: str) -> dict[str, Requirement]:
    """The list's lines by id, in the list's order. Raises ValueError when an id stands there twice."""
    found: dict[str, Requirement] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if match["id"] in found:
            raise ValueError(f"{match['id']} stands in the list twice")
        found[match["id"]] = Requirement(match["text"])
    return found


def lay_beside(requirements: dict[str, Requirement], results: dict[str, Result]) -> list[str]:
    """Give every requirement its tests; what is wrong comes back as sentences."""
    problems = []
    for name, result in results.items():
        for id in result.ids:
            if id in requirements:
                requirements[id].tests[name] = result.outcome
            else:
                problems.append(f"{name} names {id}, which is not in {REQUIREMENTS.as_posix()}")
    return problems


def as_table(requirements: dict[str, Requirement]) -> Table:
    table = Table("id", "requirement and its tests", "outcome", title="Requirements", show_lines=False)
    for id, requirement in requirements.items():
        style = "bold" if requirement.tests else "dim"
        table.add_row(id, requirement.text, "" if requirement.tests else "no test", style=style)
        for name, outcomes in by_function(requirement.tests).items():
            worst = max(outcomes, key=_BADNESS.index)
            counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
            table.add_row("", f"  {name}", counts, style=_STYLES.get(worst, ""))
    return table


def by_function(tests: dict[str, str]) -> dict[str, Counter[str]]:
    """The outcomes of each test function: a row for every set of its parameters would bury the others."""
    found: dict[str, Counter[str]] = {}
    for name, outcome in tests.items():
        found.setdefault(_PARAMETERS.sub("", name), Counter())[outcome] += 1
    return found


def main(arguments: Sequence[str] = ()) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[1]
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    if not (root / RESULTS).exists():
        console.print("There are no results yet: run `make test` first.")
        return 2
    requirements = read_requirements((root / REQUIREMENTS).read_text(encoding="utf-8"))
    problems = lay_beside(requirements, load_results(root / RESULTS))
    plain = {id: {"text": r.text, "tests": r.tests} for id, r in requirements.items()}
    (root / REPORT).write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    console.print(as_table(requirements))
    proved = sum(bool(r.tests) and set(r.tests.values()) == {"passed"} for r in requirements.values())
    console.print(f"{proved} of {len(requirements)} requirements are proved by tests that passed.")
    for problem in problems:
        console.print(problem, style="red")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
