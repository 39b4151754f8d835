"""A copy of hansa's source without its extension modules, so that the same run measures both."""

import functools
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PURE = ROOT / "build" / "pure"


@functools.cache
def pure_source() -> Path:
    """The folder for PYTHONPATH, `build/pure`; made anew once a run, for a stale copy measures the past."""
    shutil.rmtree(PURE, ignore_errors=True)
    compiled = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__")
    shutil.copytree(ROOT / "src" / "hansa", PURE / "hansa", ignore=compiled)
    return PURE
