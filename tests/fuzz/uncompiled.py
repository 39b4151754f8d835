"""Imports hansa from its sources even where compiled modules stand beside them.

Coverage guides the fuzzer only through Python code. The compiled form is fuzzed by the other engine.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType


class SourceFinder(MetaPathFinder):
    """Finds the source of every module of hansa, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("hansa."):
            return None
        for folder in path or ():
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname, target)
            if spec is not None:
                return spec
        return None


def prefer_sources() -> None:
    """From now on; call it before hansa is imported."""
    sys.meta_path.insert(0, SourceFinder())
