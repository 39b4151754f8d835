"""What a user installs: built as pip builds it, from the sources alone, and installed beside nothing else."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import hansa
from tests.support.build_hook import load_build_hook
from tests.support.doc_examples import ROOT, play, scenes_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
SUFFIX = EXTENSION_SUFFIXES[0]
CAN_COMPILE = load_build_hook().why_not() is None
# Everything that `make` and git leave in a clone.
LEFT_OUT = (".*", "__pycache__", "build", "dist", "*.so", "*.pyd")
# The compiler and the package index take their time on a busy machine.
BUILD_S_MAX = 600
# Neither asks for a pure build nor shows programs another hansa.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("HANSA_PURE", "PYTHONPATH")}
# Most of what a build installs for itself is never imported.
ENVIRONMENT["PIP_NO_COMPILE"] = "1"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(
        command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def pip(*arguments: str | Path) -> str:
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as content:
        return sorted(content.namelist())


def metadata_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as content:
        return content.read(f"hansa-{hansa.__version__}.dist-info/METADATA").decode()


# One test, since a build for each would be compiled for each.
@pytest.mark.timeout(2 * BUILD_S_MAX)
def test_a_wheel_from_clean_sources_is_compiled_and_runs_readme_where_nothing_else_is(tmp_path: Path) -> None:
    tree, wheels = tmp_path / "hansa", tmp_path / "wheels"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
    compile_quickly(tree / "hatch_build.py")
    pip("wheel", "--no-deps", "--wheel-dir", wheels, tree)
    (wheel,) = wheels.iterdir()
    check_wheel(wheel)

    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", cwd=tree)
    (archive,) = (tree / "dist").iterdir()
    with tarfile.open(archive) as content:
        content.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    # What was compiled is found by what it was compiled from: these sources must be the same.
    shutil.copytree(tree / "build", unpacked / "build")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path / "again", unpacked)
    (again,) = (tmp_path / "again").iterdir()
    assert (again.name, names_in(again)) == (wheel.name, names_in(wheel))
    assert metadata_of(again) == metadata_of(wheel)

    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    pinned = ROOT / "requirements" / "runtime.txt"
    pip("--python", python, "install", "--no-compile", "--constraint", pinned, wheel)
    said = run(environment / "bin" / "hansa", "--version")
    assert said.startswith(
        f"{hansa.__version__} (compiled; " if CAN_COMPILE else f"{hansa.__version__} (not"
    ), said
    program = "import hansa, json; print(json.dumps([hansa.__file__, *hansa.build_info().compiled]))"
    file, *compiled = json.loads(run(python, "-c", program))
    assert Path(file).is_relative_to(environment)
    assert compiled == (sorted(source[4:-3].replace("/", ".") for source in MODULES) if CAN_COMPILE else [])
    for scene in scenes_of(ROOT / "README.md"):
        (folder := tmp_path / "examples" / scene.name).mkdir(parents=True)
        play(scene, folder, python)


def compile_quickly(hook: Path) -> None:
    """Nobody measures this wheel: the C compiler need not optimize, which is two fifths of the work."""
    text = hook.read_text()
    assert text.count('opt_level="3"') == 1
    hook.write_text(text.replace('opt_level="3"', 'opt_level="0"'))


def check_wheel(wheel: Path) -> None:
    names = names_in(wheel)
    assert {name.split("/")[0] for name in names} == {"hansa", f"hansa-{hansa.__version__}.dist-info"}
    is_pure = wheel.name.endswith("-none-any.whl")
    assert is_pure != CAN_COMPILE, f"{wheel.name} is not compiled: {reason_in(wheel)}"
    wanted = [f"hansa/hot__mypyc{SUFFIX}", *(source[4:-3] + SUFFIX for source in MODULES)]
    assert [name for name in names if name.endswith(SUFFIX)] == (sorted(wanted) if CAN_COMPILE else [])
    facts = message_from_string(metadata_of(wheel))
    home = PROJECT["project"]["urls"]["Source"]
    assert f"Source, {home}" in (facts.get_all("Project-URL") or [])
    assert facts.get_all("Provides-Extra") == list(PROJECT["project"]["optional-dependencies"])
    readme = facts.get_payload()
    assert f"]({home}/blob/main/docs/tutorial/first-service.md)" in str(readme)
    assert "](docs/" not in str(readme)


def reason_in(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as content:
        return content.read("hansa/uncompiled.txt").decode()
