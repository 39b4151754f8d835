"""The hot modules work in both forms, and the compiled one is used where it can be built."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

import hansa

ROOT = Path(__file__).resolve().parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
SOURCES: list[str] = WHEEL["hooks"]["custom"]["modules"]
NAMES = [source.removeprefix("src/").removesuffix(".py").replace("/", ".") for source in SOURCES]
RUNS_UNCOMPILED = Path(hansa.__file__).resolve().is_relative_to(ROOT / "build" / "pure")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    """The build hook, as the package's build loads it."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def where(folder: Path, name: str) -> Path:
    """The file that a module is imported from, in a process that finds hansa in this folder."""
    program = f"import {name} as module; print(module.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return Path(done.stdout.strip())


@pytest.mark.parametrize("name", NAMES)
def test_the_compiled_form_is_imported_where_it_can_be_built(build: ModuleType, name: str) -> None:
    file = where(ROOT / "src", name)
    if build.why_not() is None:
        assert file.name.endswith(tuple(EXTENSION_SUFFIXES)), f"{name} is not compiled: run make setup"
    else:
        assert file.suffix == ".py"


def test_the_compiled_form_is_made_from_the_present_sources(build: ModuleType) -> None:
    if build.why_not() is None:
        folder: Path = build.cache_folder(ROOT, SOURCES)
        for target in build.targets(SOURCES):
            assert (folder / target.name).exists(), "a source changed since it was compiled: run make setup"
            assert (ROOT / target).read_bytes() == (folder / target.name).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_without_extension_modules_is_imported_uncompiled(tmp_path: Path, name: str) -> None:
    compiled = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT / "src" / "hansa", tmp_path / "hansa", ignore=compiled)
    assert where(tmp_path, name).suffix == ".py"


@pytest.mark.parametrize("name", NAMES)
def test_this_run_tests_the_form_that_it_says(build: ModuleType, name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert file.endswith(".py") == (RUNS_UNCOMPILED or build.why_not() is not None)


@pytest.mark.parametrize("pure", [False, True])
def test_a_wheel_carries_what_was_compiled_and_no_second_package(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pure: bool
) -> None:
    monkeypatch.setenv("HANSA_PURE", "1" if pure else "")
    compiled = build.why_not() is None
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(ROOT)], timeout=120, check=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
    assert {name.split("/")[0] for name in names} == {"hansa", f"hansa-{hansa.__version__}.dist-info"}
    carried = sorted(name for name in names if name.endswith(tuple(EXTENSION_SUFFIXES)))
    wanted = sorted(target.relative_to("src").as_posix() for target in build.targets(SOURCES))
    assert carried == (wanted if compiled else [])
    assert wheel.name.endswith("-none-any.whl") != compiled


def test_the_environment_can_ask_for_a_pure_build(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSA_PURE", "1")
    assert build.why_not() == "HANSA_PURE is set"


def test_without_a_compiler_the_build_says_so_and_goes_on(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HANSA_PURE", raising=False)
    monkeypatch.setenv("CC", "a-compiler-that-nobody-has")
    assert build.compile_modules(ROOT, SOURCES) == {}
    (line,) = capfd.readouterr().err.splitlines()
    assert "no C compiler (a-compiler-that-nobody-has) was found" in line


def test_a_changed_import_asks_for_a_new_compilation(build: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "src" / "hansa"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "limits.py").write_text("PARTS_MAX = 3\n")
    (package / "frames.py").write_text("from hansa.limits import PARTS_MAX\n")
    (package / "spot.py").write_text("")
    sources = ["src/hansa/frames.py"]
    before = build.cache_folder(tmp_path, sources)
    (package / "spot.py").write_text("not imported\n")
    assert build.cache_folder(tmp_path, sources) == before
    (package / "limits.py").write_text("PARTS_MAX = 4\n")
    assert build.cache_folder(tmp_path, sources) != before
