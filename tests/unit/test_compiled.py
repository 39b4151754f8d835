"""The hot modules work in both forms, and the compiled one is used where it can be built."""

import importlib
import os
import platform
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
from tests.support.build_hook import ROOT, load_build_hook

WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
SOURCES: list[str] = WHEEL["hooks"]["custom"]["modules"]
NAMES = [source.removeprefix("src/").removesuffix(".py").replace("/", ".") for source in SOURCES]
RUNS_UNCOMPILED = Path(hansa.__file__).resolve().is_relative_to(ROOT / "build" / "pure")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return load_build_hook()


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


def test_a_wheel_that_is_not_compiled_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # tests/integration/test_packages.py has the one that is.
    monkeypatch.setenv("HANSA_PURE", "1")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(ROOT)], timeout=120, check=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        assert not [name for name in content.namelist() if name.endswith(tuple(EXTENSION_SUFFIXES))]
        content.extractall(tmp_path / "installed")
    program = "import hansa; print(hansa.build_info().is_compiled, hansa.build_info())"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    assert said.stdout == f"False {hansa.__version__} (not compiled: HANSA_PURE is set; {python})\n"


def test_build_info_names_the_modules_that_run_compiled(build: ModuleType) -> None:
    is_compiled = build.why_not() is None and not RUNS_UNCOMPILED
    info = hansa.build_info()
    assert info.compiled == (tuple(sorted(NAMES)) if is_compiled else ())
    assert info.is_compiled == is_compiled
    assert str(info).startswith(f"{hansa.__version__} ({'' if is_compiled else 'not '}compiled; ")


def test_links_of_readme_lead_to_the_projects_home_and_code_stays_as_it_is(build: ModuleType) -> None:
    page = """[a](docs/a.md#b), [c](#c) and [d](https://d.example/).
```python
handlers[name](request)
```
| [e](LICENSE) |
"""
    assert build.with_full_links(page, "https://home.example") == (
        page.replace("docs/a.md#b", "https://home.example/blob/main/docs/a.md#b").replace(
            "LICENSE", "https://home.example/blob/main/LICENSE"
        )
    )


def test_the_environment_can_ask_for_a_pure_build(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSA_PURE", "1")
    assert build.why_not() == "HANSA_PURE is set"


def test_without_a_compiler_the_build_says_so_and_goes_on(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HANSA_PURE", raising=False)
    monkeypatch.setenv("CC", "a-compiler-that-nobody-has")
    reason = "no C compiler (a-compiler-that-nobody-has) was found"
    assert build.compile_modules(ROOT, SOURCES) == ({}, reason)
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"hansa: the hot modules stay uncompiled: {reason}"


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
