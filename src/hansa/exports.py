"""Lazy exports: names that a package loads on first use, so that importing it costs next to nothing.

A package writes its imports for type checkers, and the same again as a table for the interpreter:

if TYPE_CHECKING:
    from hansa.store.memory import MemoryStore
else:
    __getattr__, __dir__ = on_first_use(__name__, {"hansa.store.memory": "MemoryStore"})

Only type checkers see the first half, so they know every name and refuse every other one; a test compares the
two halves with `__all__`.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def on_first_use(
    package: str, names_by_module: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that exports these names, with spaces between them.

    A name is looked up once and then belongs to the package. The package's own modules in the table are
    attributes, too, as if they had been imported with it.
    """
    module_of = {name: module for module, names in names_by_module.items() for name in names.split()}
    inside = f"{package}."
    parts = {
        module.removeprefix(inside).partition(".")[0]
        for module in names_by_module
        if module.startswith(inside)
    }
    namespace = vars(sys.modules[package])

    def load(name: str) -> object:
        if name in module_of:
            namespace[name] = found = getattr(import_module(module_of[name]), name)
            return found
        if name in parts:
            return import_module(inside + name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)

    def listed() -> list[str]:
        return sorted({*namespace, *module_of, *parts})

    return load, listed
