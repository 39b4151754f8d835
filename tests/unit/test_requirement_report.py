"""The report of proved requirements, run on a small project of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import requirement_report
from tests.requirement_report import Result, lay_beside, read_requirements

TESTS = Path(requirement_report.__file__).parent

REQUIREMENTS = """# What it must do
- ABC-01 It adds.
- ABC-02 It subtracts.
- ABC-03 It divides.
"""

SAMPLE = """import pytest

pytestmark = pytest.mark.filterwarnings("ignore")

@pytest.mark.spec("ABC-01")
@pytest.mark.parametrize("n", [1, 2])
def test_it_adds(n):
    assert n + 1 == 1 + n

@pytest.mark.spec("ABC-01", "ABC-02")
def test_it_subtracts():
    assert 1 - 1 == 1

@pytest.fixture
def broken():
    raise OSError("no disk")

@pytest.mark.spec("ABC-02")
def test_with_a_broken_fixture(broken):
    pass

def test_without_a_claim():
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    (tmp_path / "docs" / "reference" / "requirements.md").write_text(REQUIREMENTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = spec(id): proved\n")
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "COLUMNS": "200", "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_tests(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(project, "-m", "pytest", "-p", "requirement_report", "-p", "no:cacheprovider", *arguments)


def run_report(project: Path) -> subprocess.CompletedProcess[str]:
    return run(project, str(TESTS / "requirement_report.py"), str(project))


def test_each_requirement_gets_its_tests_and_their_outcome(project: Path) -> None:
    run_tests(project, "--requirement-results=new")
    shown = run_report(project)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert json.loads((project / "build" / "spec.json").read_text()) == {
        "ABC-01": {
            "text": "It adds.",
            "tests": {
                "test_sample.py::test_it_adds[1]": "passed",
                "test_sample.py::test_it_adds[2]": "passed",
                "test_sample.py::test_it_subtracts": "failed",
            },
        },
        "ABC-02": {
            "text": "It subtracts.",
            "tests": {
                "test_sample.py::test_it_subtracts": "failed",
                "test_sample.py::test_with_a_broken_fixture": "error",
            },
        },
        "ABC-03": {"text": "It divides.", "tests": {}},
    }
    assert "no test" in shown.stdout
    # One row for a function, however many sets of parameters it has.
    assert [line.split() for line in shown.stdout.splitlines() if "test_it_adds" in line] == [
        ["│", "│", "test_sample.py::test_it_adds", "│", "2", "passed", "│"]
    ]
    assert "0 of 3 requirements are proved" in shown.stdout


def test_a_second_run_adds_to_the_first_and_a_new_one_starts_over(project: Path) -> None:
    run_tests(project, "--requirement-results=new", "-k", "adds")
    run_tests(project, "--requirement-results=add", "--requirement-form=uncompiled", "-k", "adds")
    results = json.loads((project / "build" / "spec-results.json").read_text())
    assert sorted(results) == [
        "test_sample.py::test_it_adds[1]",
        "test_sample.py::test_it_adds[1] (uncompiled)",
        "test_sample.py::test_it_adds[2]",
        "test_sample.py::test_it_adds[2] (uncompiled)",
    ]
    run_tests(project, "--requirement-results=new", "-k", "subtracts")
    results = json.loads((project / "build" / "spec-results.json").read_text())
    assert sorted(results) == ["test_sample.py::test_it_subtracts"]


def test_nothing_is_noted_unless_it_is_asked_for(project: Path) -> None:
    run_tests(project)
    assert not (project / "build").exists()


def test_a_test_that_names_an_unknown_id_fails_the_report(project: Path) -> None:
    (project / "test_sample.py").write_text(SAMPLE.replace("ABC-02", "ABC-99"))
    run_tests(project, "--requirement-results=new")
    shown = run_report(project)
    assert shown.returncode == 1
    assert "test_it_subtracts names ABC-99" in shown.stdout


def test_without_results_the_report_says_what_to_do(project: Path) -> None:
    shown = run_report(project)
    assert shown.returncode == 2
    assert "make test" in shown.stdout


def test_the_worst_phase_of_a_test_is_its_outcome() -> None:
    result = Result(ids=["ABC-01"])
    for outcome in ("passed", "failed", "passed"):
        result.add(outcome)
    assert result.outcome == "failed"


def test_an_id_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="ABC-01 stands in the list twice"):
        read_requirements("- ABC-01 It adds.\n- ABC-01 It adds again.\n")


def test_the_list_of_hansa_can_be_read() -> None:
    text = (TESTS.parent / "docs" / "reference" / "requirements.md").read_text(encoding="utf-8")
    requirements = read_requirements(text)
    assert {"DIS-01", "SPT-22", "CRD-15", "ASG-11", "PRT-18", "OPS-08", "SEC-07"} <= set(requirements)
    assert lay_beside(requirements, {"a": Result(ids=["SEC-06"])}) == []
