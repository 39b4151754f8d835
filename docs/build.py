"""Writes the reference pages from the source and README's tables from the benchmark, and checks every link.

A page is made for every module that declares `__all__` on the ground floor, and for every package that
does. The source is read, never imported, so that the pages are the same on every Python and with every
module compiled or not. `python docs/build.py --check` writes nothing and ends with 1 when a page is out
of date or a link leads nowhere.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PAGES = ROOT / "docs" / "reference" / "api"
NOT_PUBLIC = ("hansa.cli",)
README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "benchmarks" / "results.md"
TRANSPORT_CASES = (
    "request/reply, 64 B, 1 in flight",
    "request/reply, 64 B, 100 in flight",
    "publish 1->1, 64 B",
    "publish 1->4, 64 B",
    "request/reply, 64 KiB, 100 in flight",
    "publish 1->1, 64 KiB",
)
GATEWAY_CASES = ("gateway request, 64 B, 1 in flight", "gateway request, 64 B, 100 in flight")
TOPIC_CASES = (
    "topic 1->1, 64 B",
    "topic 1->4, 64 B",
    "routed topic 1->1, 64 B",
    "two topics, there and back, 64 B",
)
STORE_CASES = (
    "put, 64 B, 1 in flight",
    "put, 64 B, 100 in flight",
    "get, 64 B, 1 in flight",
    "get, 64 B, 100 in flight",
    "lock and release",
    "a change told to 1,000 watches, 64 B",
)
LOCAL_CASES = ("topic to 10 spots, 64 B", "topic to 100 spots, 64 B", "topic to 1,000 spots, 64 B")

_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
Function = ast.FunctionDef | ast.AsyncFunctionDef


# ---- reading the source ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A definition and the module that it stands in."""

    module: str
    node: Definition

    @property
    def doc(self) -> str:
        if isinstance(self.node, ast.Assign | ast.AnnAssign):
            return ""
        return ast.get_docstring(self.node) or ""


@cache
def tree_of(module: str) -> ast.Module:
    folder = SOURCE / Path(*module.split("."))
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def exports(module: str) -> list[str] | None:
    """The module's `__all__`, or None when it declares none."""
    for node in tree_of(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def public_modules() -> list[str]:
    """Every package, and every module of the ground floor, that declares what it exports."""
    packages = [path.parent for path in (SOURCE / "hansa").rglob("__init__.py")]
    floor = [path.with_suffix("") for path in (SOURCE / "hansa").glob("*.py") if path.name != "__init__.py"]
    names = [".".join(path.relative_to(SOURCE).parts) for path in [*packages, *floor]]
    return sorted(name for name in names if not name.startswith(NOT_PUBLIC) and exports(name) is not None)


def find(module: str, name: str) -> Found | None:
    """Where a name of this module is defined, following imports inside hansa."""
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hansa"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find(node.module, alias.name)
    for node in tree_of(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return Found(module, node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return Found(module, node)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return Found(module, node)
    return None


def family(found: Found) -> Iterator[tuple[str, ast.ClassDef]]:
    """A class and those of its ancestors that hansa defines, nearest first."""
    assert isinstance(found.node, ast.ClassDef)
    yield found.module, found.node
    for parent in found.node.bases:
        name = ast.unparse(parent).split("[")[0]
        ancestor = find(found.module, name)
        if ancestor is not None and isinstance(ancestor.node, ast.ClassDef):
            yield from family(ancestor)


def members(found: Found) -> dict[str, Function]:
    """Public methods and properties by name, inherited ones too."""
    methods: dict[str, Function] = {}
    for _, node in family(found):
        for step in node.body:
            if isinstance(step, ast.FunctionDef | ast.AsyncFunctionDef) and not step.name.startswith("_"):
                methods.setdefault(step.name, step)
    return methods


def fields(found: Found) -> list[str]:
    """Public fields of a class as they are declared: of values, named tuples, enumerations and errors."""
    lines: dict[str, str] = {}
    for _, node in family(found):
        for step in node.body:
            if isinstance(step, ast.Assign | ast.AnnAssign):
                target = step.targets[0] if isinstance(step, ast.Assign) else step.target
                if not ast.unparse(target).startswith("_"):
                    lines.setdefault(ast.unparse(target), ast.unparse(step))
    return list(lines.values())


def constructor(found: Found) -> Function | None:
    for _, node in family(found):
        for step in node.body:
            if isinstance(step, ast.FunctionDef) and step.name == "__init__":
                return step
    return None


# ---- writing a page ----------------------------------------------------------------------------


def page(module: str) -> str:
    names = exports(module) or []
    things = {name: find(module, name) for name in names if not name.startswith("__")}
    lines = [
        "<!-- Written by `make docs` from the source: change the docstrings, not this page. -->",
        "",
        f"# {module}",
        "",
        ast.get_docstring(tree_of(module)) or "",
        "",
        "| name | |",
        "|---|---|",
    ]
    for name, found in things.items():
        summary = found.doc.split("\n\n")[0].replace("\n", " ").replace("|", "\\|") if found else ""
        lines.append(f"| [`{name}`](#{name.lower()}) | {summary} |")
    for name, found in things.items():
        lines += ["", f"## {name}", ""]
        if found is not None:
            lines += [*describe(name, found)]
    return "\n".join(lines).rstrip() + "\n"


def describe(name: str, found: Found) -> Iterator[str]:
    node = found.node
    if isinstance(node, ast.ClassDef):
        yield from code(class_header(node, constructor(found)), *(f"    {line}" for line in fields(found)))
        yield found.doc
        for method_name, method in members(found).items():
            yield from ["", f"### {name}.{method_name}", ""]
            yield from code(signature(method))
            yield ast.get_docstring(method) or ""
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from code(signature(node))
        yield found.doc
    else:
        yield from code(ast.unparse(node))


def code(*lines: str) -> list[str]:
    return ["```py", *lines, "```", ""]


def class_header(node: ast.ClassDef, init: Function | None) -> str:
    parents = ", ".join(ast.unparse(parent) for parent in node.bases)
    header = f"class {node.name}({parents})" if parents else f"class {node.name}"
    if init is None:
        return header
    return f"{header}\n{node.name}({arguments(init)})"


def signature(function: Function) -> str:
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    if "property" in decorators or "cached_property" in decorators:
        return f"{function.name}: {ast.unparse(function.returns)}" if function.returns else function.name
    mark = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    note = "  # class method" if "classmethod" in decorators else ""
    return f"{mark}{function.name}({arguments(function)}){returns}{note}"


def arguments(function: Function) -> str:
    text = ast.unparse(function.args)
    return re.sub(r"^(self|cls)(, /)?(, |$)", "", text)


# ---- links -------------------------------------------------------------------------------------


def dead_links(root: Path) -> list[str]:
    """Every relative link in README, CONTRIBUTING, CHANGELOG and docs that leads to no file or heading."""
    problems = []
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        text = _FENCE.sub("", path.read_text(encoding="utf-8"))
        for match in _LINK.finditer(text):
            target, _, anchor = match["target"].partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            goal = (path.parent / target).resolve() if target else path
            if not goal.exists():
                problems.append(f"{path.relative_to(root)}: {match['target']} leads to no file")
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal):
                problems.append(f"{path.relative_to(root)}: {match['target']} leads to no heading")
    return problems


def anchors(path: Path) -> set[str]:
    """The names that headings get: lower case, without punctuation, spaces as dashes."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


# ---- README's numbers --------------------------------------------------------------------------


def readme() -> str:
    """README with the tables between its marks taken from the last benchmark: the two never differ."""
    text = README.read_text(encoding="utf-8")
    if not RESULTS.exists():
        return text
    # What was measured by itself since the last whole run stands in a folder beside it.
    pages = [RESULTS, *sorted(RESULTS.parent.glob("*/results.md"))]
    results = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    marks = (
        ("transport", TRANSPORT_CASES),
        ("gateway", GATEWAY_CASES),
        ("topics", TOPIC_CASES),
        ("local", LOCAL_CASES),
        ("store", STORE_CASES),
    )
    for mark, cases in marks:
        before, begin, rest = text.partition(f"<!-- bench:{mark} -->\n")
        _, end, after = rest.partition(f"<!-- /bench:{mark} -->")
        table = chosen_columns(results, cases)
        # A run of other cases alone says nothing about these.
        if begin and end and table:
            text = "\n".join([before + begin + table[0], *table[1:], end + after])
    return text


def chosen_columns(results: str, cases: Sequence[str]) -> list[str]:
    """The first table of the results with any of these cases as a column, and only those columns."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        for line in results.splitlines()
    ]
    for start, heads in enumerate(rows):
        chosen = [heads.index(case) for case in cases if case in heads]
        if chosen:
            table = itertools.takewhile(lambda row: row, rows[start:])
            return ["| " + " | ".join(row[column] for column in (0, *chosen)) + " |" for row in table]
    return []


# ---- the command -------------------------------------------------------------------------------


def outdated() -> dict[Path, str | None]:
    """Pages whose text is not what the source says, with the right text; None for one too many."""
    wanted = {PAGES / f"{module}.md": page(module) for module in public_modules()}
    right: dict[Path, str | None] = {
        path: text for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text
    }
    right.update({path: None for path in PAGES.glob("*.md") if path not in wanted})
    if (text := readme()) != README.read_text(encoding="utf-8"):
        right[README] = text
    return right


def main(options: Sequence[str]) -> int:
    pages = outdated()
    check = "--check" in options
    for path, text in pages.items():
        print(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}")
        if check:
            continue
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    dead = dead_links(ROOT)
    print("\n".join(dead) if dead else "every link leads somewhere")
    return 1 if dead or (check and pages) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
