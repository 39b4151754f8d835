"""Writes the mirrors of hansa.sync from the asynchronous classes, as `plan` says.

The source is read, never imported, so that the mirrors are the same on every Python and with every module
compiled or not. `python -m mirrors.build` writes them. With `--check` it writes nothing, and ends with 1 when
one is out of date.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mirrors import docstrings
from mirrors.plan import BASES, GENERIC, OWNED, OWNERS, PAGES, RESULTS, STANDS_FOR, Mirrored, Page

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
SYNC = SOURCE / "hansa" / "sync"
HEADER = (
    "# Written by `python -m mirrors.build` from the asynchronous classes: change those, or mirrors/plan.py."
)

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NAME = re.compile(r"(?<![\w.\"'])[A-Za-z_]\w*")
# What a mirror of it would be is not said anywhere.
_UNMIRRORED = frozenset(
    {"AsyncGenerator", "AsyncIterator", "AsyncIterable", "Coroutine", "Awaitable", "Task"}
)
_SHIELDED = re.compile(r"^Callable\[\[.*\], None\]$")


class PlanError(Exception):
    """The plan and the source do not fit each other."""


# ---- reading the source --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Module:
    """One module as text and tree."""

    name: str
    lines: list[bytes]
    tree: ast.Module
    imports: dict[str, str]
    """From which module each imported name is."""

    def segment(self, node: ast.expr) -> str:
        """An expression as it is written, in one line."""
        assert node.end_lineno is not None
        # Columns are counted in bytes. The end is cut first: it may be in the line of the beginning.
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b" ".join(lines).decode().split())

    def definition(self, name: str) -> ast.stmt | None:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                return node
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return node
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                return node
        return None


@cache
def module_of(name: str) -> Module:
    folder = SOURCE / Path(*name.split("."))
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = path.read_bytes()
    tree = ast.parse(text)
    imports = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    return Module(name, text.splitlines(), tree, imports)


def home_of(module: str, name: str) -> str:
    """The module of hansa in which a name of this module is defined; follows what packages pass on."""
    while module.startswith("hansa") and module_of(module).definition(name) is None:
        found = module_of(module).imports.get(name)
        if found is None:
            break
        module = found
    return module


def class_of(module: str, name: str) -> ast.ClassDef:
    node = module_of(module).definition(name)
    if not isinstance(node, ast.ClassDef):
        raise PlanError(f"{module} has no class {name}")
    return node


@dataclass(frozen=True, slots=True)
class Member:
    """A method or property, the module in which it is written, and what its type variables stand for."""

    module: Module
    node: Function
    variables: dict[str, str]

    @property
    def is_property(self) -> bool:
        return any(ast.unparse(each) == "property" for each in self.node.decorator_list)

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.node) or ""

    def text(self, node: ast.expr) -> str:
        return _NAME.sub(lambda match: self.variables.get(match[0], match[0]), self.module.segment(node))

    @property
    def result(self) -> str:
        return self.text(self.node.returns) if self.node.returns is not None else "None"


def members(module: str, name: str, variables: dict[str, str] | None = None) -> dict[str, Member]:
    """All that a class and its ancestors inside hansa define, the ancestors' first."""
    source, node = module_of(module), class_of(module, name)
    found: dict[str, Member] = {}
    for parent in node.bases:
        parent_name, _, given = source.segment(parent).partition("[")
        home = home_of(module, parent_name)
        if not home.startswith("hansa"):
            continue
        generic = next(
            (
                ast.unparse(each)
                for each in class_of(home, parent_name).bases
                if "Generic[" in ast.unparse(each)
            ),
            "",
        )
        names = generic.removeprefix("Generic[").removesuffix("]").split(", ")
        values = given.removesuffix("]").split(", ")
        found |= members(home, parent_name, dict(zip(names, values, strict=True)) if given else {})
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found[each.name] = Member(source, each, variables or {})
    return found


def attributes(module: str, name: str) -> set[str]:
    """What `__init__` of a class or of an ancestor sets."""
    method = members(module, name).get("__init__")
    if method is None:
        return set()
    targets: list[ast.expr] = []
    for node in ast.walk(method.node):
        targets += node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.attr for target in targets if isinstance(target, ast.Attribute)}


# ---- one parameter, one member, one class -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str
    default: str
    is_keyword: bool

    @property
    def declared(self) -> str:
        return f"{self.name}: {self.type}" + (f" = {self.default}" if self.default else "")


@dataclass(slots=True)
class Writer:
    """Writes one module, and remembers what it must import for that."""

    page: Page
    mirrored: dict[tuple[str, str], Mirrored]
    """All mirrors, by the asynchronous class."""
    pages: dict[str, str]
    """In which module of hansa.sync each of them is."""
    imports: set[tuple[str, str]] = field(default_factory=set)

    def write(self) -> str:
        classes = [self._class(mirrored) for mirrored in self.page.classes]
        imports = "\n".join(
            f"from {module} import {name}" for module, name in sorted(self.imports) if module != self._module
        )
        opening = f'"""{self.page.opening}"""\n\n{HEADER}\n\nfrom __future__ import annotations\n\n'
        return formatted(f"{opening}{imports}\n\n\n" + "\n\n".join(classes), f"{self.page.name}.py")

    @property
    def _module(self) -> str:
        return f"hansa.sync.{self.page.name}"

    # -- a class

    def _class(self, mirrored: Mirrored) -> str:
        found = members(mirrored.module, mirrored.source)
        _check(mirrored, found)
        source = ast.get_docstring(class_of(mirrored.module, mirrored.source)) or ""
        doc = docstrings.quoted(mirrored.doc or _told(mirrored, "__doc__", source), 4)
        base = self._by_hand(mirrored.base)
        bases = f"({base}[Async{mirrored.source}])" if base in GENERIC else f"({base})" if base else ""
        lines = [f"class {mirrored.name}{bases}:\n", doc, "\n"]
        if "__init__" not in mirrored.by_hand:
            lines.append(self._init(mirrored, found))
        lines += [self._attribute(mirrored, name) for name in mirrored.attributes]
        for name, member in found.items():
            if not (name.startswith("_") or name in mirrored.by_hand | mirrored.without):
                lines.append(self._member(mirrored, name, member))
        return "".join(lines)

    def _init(self, mirrored: Mirrored, found: dict[str, Member]) -> str:
        alias = f"Async{mirrored.source}"
        self.imports.add((mirrored.module, f"{mirrored.source} as {alias}"))
        body, inner, source = [], "inner", ""
        if mirrored.is_made:
            kind = OWNERS.get(mirrored.owner, "")
            if not kind:
                owner = next(each for each in self.mirrored.values() if each.name.lower() == mirrored.owner)
                kind = owner.name
            self._import_mirrors(kind)
            signature = f"self, {mirrored.owner}: {kind}, inner: {alias}"
        else:
            member = found["__init__"]
            parameters = self._parameters(member, mirrored.without)
            signature = _signature(parameters)
            inner = f"{alias}({self._arguments(member, parameters)})"
            source = member.doc
        if mirrored.base:
            body.append(f"super().__init__({mirrored.base_arguments.replace('{inner}', inner)})")
        body += [f"self.{name} = {name}" for name in mirrored.keeps]
        # A base that is given one of them keeps it.
        if mirrored.owner and not re.search(rf"\b{mirrored.owner}\b", mirrored.base_arguments):
            body.append(f"self._{mirrored.owner} = {mirrored.owner}")
        if "{inner}" not in mirrored.base_arguments:
            body.append(f"self._inner = {inner}")
        lines = f"    def __init__({signature}) -> None:\n"
        if doc := _told(mirrored, "__init__", source):
            lines += docstrings.quoted(doc, 8)
        return lines + "".join(f"        {line}\n" for line in body) + "\n"

    def _attribute(self, mirrored: Mirrored, name: str) -> str:
        attribute = mirrored.attributes[name]
        self._import_names(module_of(mirrored.module), attribute.type)
        lines = f"    @property\n    def {name}(self) -> {attribute.type}:\n"
        return lines + docstrings.quoted(attribute.doc, 8) + f"        return self._inner.{name}\n\n"

    # -- a member

    def _member(self, mirrored: Mirrored, name: str, member: Member) -> str:
        parameters = [] if member.is_property else self._parameters(member)
        result, body = self._body(mirrored, name, member, parameters)
        if name in mirrored.bounded:
            parameters = [Parameter("timeout", "float | None", "None", False)]
        doc = _told(mirrored, name, member.doc)
        if not doc:
            raise PlanError(
                f"{mirrored.name}.{name} has no docstring: write one, or one into mirrors/plan.py"
            )
        if any(_is_callback(each) for each in parameters):
            doc = f"{doc}\n\n{docstrings.CALLBACK}"
        if name in mirrored.anywhere:
            doc = docstrings.with_sentence(doc, docstrings.ANYWHERE)
        if name in mirrored.bounded:
            closes = f"the {mirrored.owner}" if mirrored.owner else "it"
            doc = docstrings.with_sentence(
                doc, f"Raises TimedOut, and AlreadyClosed when {closes} is closed."
            )
        lines = "    @property\n" if member.is_property else ""
        lines += f"    def {name}({_signature(parameters)}) -> {result}:\n"
        return lines + docstrings.quoted(doc, 8) + "".join(f"        {line}\n" for line in body) + "\n"

    def _body(
        self, mirrored: Mirrored, name: str, member: Member, parameters: Sequence[Parameter]
    ) -> tuple[str, list[str]]:
        """The type of the result, and the lines that come to it."""
        owner = f"self._{mirrored.owner}" if mirrored.owner else "self"
        arguments = self._arguments(member, parameters)
        inner = f"self._inner.{name}" if member.is_property else f"self._inner.{name}({arguments})"
        work = f"self._inner.{name}" if not (member.is_property or arguments) else f"lambda: {inner}"
        what = f'f"{name} of {mirrored.what}"' if mirrored.owner else f'"{name}"'
        if "{" not in mirrored.what:
            what = what.removeprefix("f")
        result = member.result
        kind = result.removesuffix(" | None").partition("[")[0]
        returns = "" if result == "None" else "return "
        if kind in _UNMIRRORED:
            raise PlanError(f"{mirrored.name}.{name} gives {result}: write it by hand, or leave it out")
        if name not in mirrored.bodies and kind in RESULTS:
            wrapped = RESULTS[kind]
            self._by_hand(wrapped.made.partition("(")[0])
            result = wrapped.type if "[" in wrapped.type else wrapped.type + result.removeprefix(kind)
            if not isinstance(member.node, ast.AsyncFunctionDef):
                work = "lambda: " + wrapped.made.format(owner=owner, inner=inner)
        self._import_names(member.module, result)
        # What a type variable of an ancestor stands for is a name of the class itself.
        self._import_names(module_of(mirrored.module), result)
        if name in mirrored.bodies:
            return result, [mirrored.bodies[name]]
        if isinstance(member.node, ast.AsyncFunctionDef):
            if name in mirrored.opens:
                return result, [f"self._open({work})"]
            if name in mirrored.closes:
                return result, [f"self._close({work})"]
            if name == "close":
                return result, ["self.__exit__(None, None, None)"]
            if name in mirrored.bounded:
                text = f'f"{mirrored.bounded[name]}"'
                if "{" not in text:
                    text = text.removeprefix("f")
                wait = f"lambda: {self._by_hand('within')}(timeout, {work}, {text})"
                return result, [f"{returns}{owner}._call({wait}, {what})"]
            if kind in OWNED:
                own = f"{kind}({owner}, inner)"
                own = f"None if inner is None else {own}" if result.endswith("| None") else own
                obtain = f"return {self._by_hand('obtained')}({owner}, {work}, lambda inner: {own}, {what})"
                if all(each.name != "timeout" for each in parameters):
                    return result, [obtain]
                outside = f"{self._by_hand('check_outside')}({owner}, self._inner._line, timeout)"
                return result, [outside, obtain]
            call = f"{owner}._call({work}, {what})"
            if kind in RESULTS:
                call = RESULTS[kind].made.format(owner=owner, inner=call)
            return result, [f"{returns}{call}"]
        if name in mirrored.fixed:
            return result, [f"{returns}{inner}"]
        if name in mirrored.anywhere:
            return result, [f"{owner}._check_process()", f"{returns}{inner}"]
        if name in mirrored.once_entered:
            return result, [f"{owner}._check_entered()", f"{returns}{inner}"]
        if name in mirrored.while_open:
            return result, [f"{returns}{owner}._held().run({work})"]
        if kind == "Mapping":
            # It is the loop's, and may change.
            return result, [f"return {owner}._ask(lambda: dict({inner}))"]
        if result == "Callable[[], None]":
            return result, [f"stop = {owner}._ask({work})", f"return lambda: {owner}._ask(stop)"]
        return result, [f"{returns}{owner}._ask({work})"]

    def _parameters(self, member: Member, without: Set[str] = frozenset()) -> list[Parameter]:
        given = member.node.args
        if given.vararg or given.kwarg or given.posonlyargs:
            raise PlanError(f"{member.module.name}: {member.node.name} takes arguments that no rule is for")
        found = []
        plain_defaults: list[ast.expr | None] = [None] * (len(given.args) - len(given.defaults))
        pairs: list[tuple[ast.arg, ast.expr | None, bool]] = [
            (argument, default, False)
            for argument, default in zip(given.args, [*plain_defaults, *given.defaults], strict=True)
        ]
        pairs += [
            (argument, default, True)
            for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ]
        for argument, default, is_keyword in pairs[1:]:
            if argument.arg in without:
                continue
            if argument.annotation is None:
                raise PlanError(f"{member.module.name}: {member.node.name}({argument.arg}) has no type")
            kind = member.text(argument.annotation)
            if kind in STANDS_FOR:
                self._import_mirrors(STANDS_FOR[kind])
                found.append(Parameter(argument.arg, STANDS_FOR[kind], "", is_keyword))
                continue
            value = "" if default is None else _spelled_out(member.module, member.text(default))
            self._import_names(member.module, kind)
            self._import_names(member.module, value)
            found.append(Parameter(argument.arg, kind, value, is_keyword))
        return found

    def _arguments(self, member: Member, parameters: Sequence[Parameter]) -> str:
        """The mirror's arguments as those of what is behind it."""
        given = []
        for each in parameters:
            value = each.name
            if each.type in STANDS_FOR.values():
                value = f"{each.name}._inner"
            elif self._mirror(member.module, each.type.removesuffix(" | None")) is not None:
                value = f"{each.name}._inner"
                if each.type.endswith(" | None"):
                    value = f"None if {each.name} is None else {value}"
            elif _SHIELDED.match(each.type):
                value = f"{self._by_hand('shielded')}({each.name})"
            given.append(f"{each.name}={value}" if each.is_keyword else value)
        return ", ".join(given)

    # -- names

    def _mirror(self, module: Module, name: str) -> Mirrored | None:
        return self.mirrored.get((home_of(module.name, name), name)) if name.isidentifier() else None

    def _import_mirror(self, mirrored: Mirrored) -> None:
        self.imports.add((f"hansa.sync.{self.pages[mirrored.name]}", mirrored.name))

    def _import_mirrors(self, kind: str) -> None:
        """All that are named in a type which the plan gives."""
        for mirrored in self.mirrored.values():
            if mirrored.name in _NAME.findall(kind):
                self._import_mirror(mirrored)

    def _by_hand(self, name: str) -> str:
        # What is made may be a mirror itself.
        if name in BASES:
            self.imports.add((BASES[name], name))
        return name

    def _import_names(self, module: Module, text: str) -> None:
        for name in _NAME.findall(text):
            mirrored = self._mirror(module, name)
            if name in BASES:
                self._by_hand(name)
            elif mirrored is not None:
                self._import_mirror(mirrored)
            elif module.definition(name) is not None:
                self.imports.add((module.name, name))
            elif (source := module.imports.get(name)) is not None:
                self.imports.add((source, name))


def _told(mirrored: Mirrored, name: str, source: str) -> str:
    """A docstring for threads: the plan's own as it is, else that of the source, by rule."""
    if own := mirrored.docs.get(name, ""):
        return own
    told = docstrings.for_threads(source)
    if words := docstrings.foreign_words(told):
        raise PlanError(
            f"{mirrored.name}.{name}: its docstring says {', '.join(words)}, which is nothing to a thread: "
            "write one for threads into mirrors/plan.py"
        )
    return told


def _check(mirrored: Mirrored, found: dict[str, Member]) -> None:
    """Raises PlanError for a name that the asynchronous class has not: the plan would say nothing by it."""
    said = {*mirrored.docs, *mirrored.bounded, *mirrored.bodies}
    for names in (mirrored.by_hand, mirrored.opens, mirrored.closes, mirrored.while_open):
        said |= names
    for names in (mirrored.fixed, mirrored.anywhere, mirrored.once_entered, mirrored.without):
        said |= names
    known = {*found, "__init__"}
    if "__init__" in found:
        known |= {
            argument.arg
            for argument in ast.walk(found["__init__"].node.args)
            if isinstance(argument, ast.arg)
        }
    unknown = [
        *sorted(said - known),
        *sorted({*mirrored.attributes} - attributes(mirrored.module, mirrored.source)),
    ]
    if unknown:
        raise PlanError(f"mirrors/plan.py: {mirrored.module}.{mirrored.name} has no {', '.join(unknown)}")


def _signature(parameters: Sequence[Parameter]) -> str:
    plain = [each.declared for each in parameters if not each.is_keyword]
    keywords = [each.declared for each in parameters if each.is_keyword]
    return ", ".join(["self", *plain, *(["*", *keywords] if keywords else [])])


def _spelled_out(module: Module, value: str) -> str:
    """A default that is private to its module, as what it stands for."""
    node = module.definition(value) if value.startswith("_") else None
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        return module.segment(node.value)
    return value


def _is_callback(parameter: Parameter) -> bool:
    return parameter.type.startswith("Callable[")


# ---- all of them ---------------------------------------------------------------------------------------


def formatted(text: str, name: str) -> str:
    """As ruff formats, with its order of imports."""
    for arguments in (("check", "--select", "I", "--fix", "--quiet"), ("format", "--quiet")):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(SYNC / name), "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, check=True, encoding="utf-8", cwd=ROOT
        ).stdout
    return text


def written() -> Iterator[tuple[Path, str]]:
    """Each module's path, and what should stand in it."""
    every = [(page, mirrored) for page in PAGES for mirrored in page.classes]
    mirrored_classes = {
        (mirrored.module, mirrored.name): mirrored for _, mirrored in every if not mirrored.of
    }
    places = {mirrored.name: page.name for page, mirrored in every}
    for page in PAGES:
        yield SYNC / f"{page.name}.py", Writer(page, mirrored_classes, places).write()


def outdated() -> Iterator[Path]:
    for path, text in written():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path


def main(arguments: Sequence[str]) -> int:
    try:
        if "--check" in arguments:
            stale = [path.relative_to(ROOT) for path in outdated()]
            for path in stale:
                print(f"{path} is out of date: run make fix")
            return 1 if stale else 0
        for path, text in written():
            path.write_text(text, encoding="utf-8")
    except PlanError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
