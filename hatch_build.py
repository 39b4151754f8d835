"""Builds hansa: compiles its hot modules with mypyc, and writes README for readers who are somewhere else.

Without a C compiler it builds pure. Tools that install packages hide what a build says, so a wheel that was
not compiled carries the reason, and `hansa --version` tells it.

The list of modules stands in pyproject.toml. They are compiled together, so that calls from one to another
are C calls (a published message costs 240 instead of 360 ns), into one library inside `hansa` and a thin
extension module for each. What was compiled is kept under build/compiled, named by a hash of everything that
went in (the sources, the hansa modules they import, this file, mypy, Python), so nothing is compiled twice.
An editable install puts the extension modules next to their sources; a wheel carries them and names its
platform.

Types are checked by `make check`, not here. A build has none of hansa's dependencies beside it, and perhaps a
newer mypy: what is wrong with other modules then must not keep these from being compiled.

`HANSA_PURE=1` builds without compiling. `python hatch_build.py` brings the working tree up to date.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

COMPILE_S_MAX = 600
LIBRARY = "hansa.hot"
SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX")
# In a wheel that was not compiled; `hansa.build_info` reads it.
REASON = "hansa/uncompiled.txt"
# Code is passed over as it is; what stays are links to files of the project.
_LINKS = re.compile(r"^```.*?^```$|(?<=\]\()(?![a-z]+:|#)[^)\s]+(?=\))", re.MULTILINE | re.DOTALL)


class ReadmeElsewhere(MetadataHookInterface):
    """README as a package index shows it: its links lead to the project's home."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = with_full_links(text, metadata["urls"]["Source"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_full_links(text: str, home: str) -> str:
    """The same page, readable anywhere: links to files of the project lead to them at its home."""
    return _LINKS.sub(lambda found: found[0] if "`" in found[0] else f"{home}/blob/main/{found[0]}", text)


class CompileHotModules(BuildHookInterface[Any]):
    """The hook that hatchling runs for every wheel and every editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        modules = self.config["modules"]
        if version == "editable":
            compile_in_place(root, modules)
            return
        extensions, reason = compile_modules(root, modules)
        for target, extension in extensions.items():
            build_data["force_include"][str(extension)] = str(target.relative_to("src"))
        if reason is None:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        else:
            note = root / "build" / "uncompiled.txt"
            note.parent.mkdir(exist_ok=True)
            note.write_text(reason, encoding="utf-8")
            build_data["force_include"][str(note)] = REASON


def compile_in_place(root: Path, modules: Sequence[str]) -> None:
    """Put the extension modules next to their sources; take away those that no longer belong there."""
    built, _ = compile_modules(root, modules)
    for old in (root / "src").rglob(f"*{SUFFIX}"):
        if old.relative_to(root) not in built:
            old.unlink()
    for target, extension in built.items():
        if not (root / target).exists() or (root / target).read_bytes() != extension.read_bytes():
            # A new file, never new content in the old one: a running process may have that mapped.
            fresh = root / target.with_name(target.name + ".new")
            shutil.copyfile(extension, fresh)
            fresh.replace(root / target)


def compile_modules(root: Path, modules: Sequence[str]) -> tuple[dict[Path, Path], str | None]:
    """Where each extension module belongs, and where it is now; or why there are none, told in a line too."""
    reason = why_not()
    folder = cache_folder(root, modules)
    built = {target: folder / target.name for target in targets(modules)}
    if reason is None and not all(extension.exists() for extension in built.values()):
        say(f"compiling {len(modules)} modules")
        reason = compile_all(root, modules, list(built.values()))
    if reason is not None:
        say(f"the hot modules stay uncompiled: {reason}")
        return {}, reason
    return built, None


def why_not() -> str | None:
    """Why nothing can be compiled here, or None."""
    if os.environ.get("HANSA_PURE", "") not in ("", "0"):
        return "HANSA_PURE is set"
    if sys.implementation.name != "cpython":
        return f"mypyc compiles for CPython, this is {sys.implementation.name}"
    if find_spec("mypyc") is None or find_spec("setuptools") is None:
        return "mypyc is not installed"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if os.name == "posix" and shutil.which(compiler[0]) is None:
        return f"no C compiler ({compiler[0]}) was found"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's C headers are not installed"
    return None


def targets(modules: Sequence[str]) -> list[Path]:
    """Where extension modules stand in the working tree: one for each source, and the library they share."""
    library = Path("src", *LIBRARY.split(".")).with_name(f"{LIBRARY.rpartition('.')[2]}__mypyc{SUFFIX}")
    return [library, *(Path(source).with_suffix(SUFFIX) for source in modules)]


def cache_folder(root: Path, modules: Sequence[str]) -> Path:
    """The folder that holds the compiled form of these sources as they are now."""
    digest = hashlib.sha256()
    for stamp in (importlib.metadata.version("mypy") if find_spec("mypy") else "", SUFFIX, sys.version):
        digest.update(stamp.encode() + b"\0")
    for path in [Path(__file__), *imported_sources(root, [root / source for source in modules])]:
        digest.update(path.read_bytes() + b"\0")
    return root / "build" / "compiled" / digest.hexdigest()[:16]


def imported_sources(root: Path, starts: Sequence[Path]) -> list[Path]:
    """The sources and each hansa module they import, directly or not: mypyc copies constants from them."""
    found: set[Path] = set()
    open_paths = list(starts)
    while open_paths:
        path = open_paths.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_bytes())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                module = root / "src" / Path(*name.split("."))
                candidates = (module.with_suffix(".py"), module / "__init__.py")
                open_paths += [candidate for candidate in candidates if candidate.exists()]
    return sorted(found)


def compile_all(root: Path, modules: Sequence[str], extensions: Sequence[Path]) -> str | None:
    """Compile in a process of its own (mypyc ends its process on errors); what went wrong, or None."""
    folder = extensions[0].parent
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(Path(__file__).resolve()), "--compile", str(work.resolve()), *modules]
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the compiler took longer than {COMPILE_S_MAX} s"
    made = {path.name: path for path in (work / "lib").rglob("*") if path.is_file()}
    if done.returncode or sorted(made) != sorted(extension.name for extension in extensions):
        log = folder / "log.txt"
        log.write_text(done.stdout + done.stderr)
        errors = [line for line in log.read_text().splitlines() if "error" in line.lower()]
        return errors[0] if errors else f"see {log.relative_to(root)}"
    for extension in extensions:
        made[extension.name].replace(extension)
    shutil.rmtree(work)
    return None


def run_mypyc(work: str, modules: Sequence[str]) -> None:
    """Inside the process of its own: translate the modules to C and build them below `work`."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    extensions = mypycify(
        ["--config-file=", "--follow-imports=silent", f"--cache-dir={work}/mypy", *modules],
        group_name=LIBRARY,
        opt_level="3",
        debug_level="0",
        target_dir=f"{work}/c",
    )
    if os.name == "posix":
        # Calls inside the library go straight to their function, which also begins at a cache line: without
        # these a published message costs 260 instead of 235 ns (`make bench`, case topic).
        for extension in extensions:
            extension.extra_compile_args += ["-fvisibility=hidden", "-falign-functions=64"]
    distribution = Distribution({"name": "hansa", "ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib, command.build_temp = f"{work}/lib", f"{work}/temp"
    distribution.run_command("build_ext")


def say(line: str) -> None:
    print(f"hansa: {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--compile"]:
        run_mypyc(arguments[1], arguments[2:])
        return
    root = Path(__file__).resolve().parent
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    compile_in_place(root, wheel["hooks"]["custom"]["modules"])


if __name__ == "__main__":
    main(sys.argv[1:])
