"""Which tests an engine runs: on which event loops, how many random histories, and what needs a heart."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.store.engines import ENGINES

LOOPS = ["asyncio", "uvloop"] if importlib.util.find_spec("uvloop") is not None else ["asyncio"]


def select(config: pytest.Config, items: list[pytest.Item], folder: Path, *, loops_max: int = 2) -> None:
    """Leave out what the engines do not run of the tests of a folder; at most so many loops for each."""
    engines = {"memory"} if config.getoption("--without-servers") else set(ENGINES)
    left_out = [
        item for item in items if item.path.is_relative_to(folder) and not is_run(item, loops_max, engines)
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        kept = set(items).difference(left_out)
        items[:] = [item for item in items if item in kept]


def is_run(item: pytest.Item, loops_max: int, engines: set[str]) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    params: dict[str, Any] = dict(item.callspec.params)
    if params.get("engine") not in ENGINES:
        return True
    if params["engine"] not in engines:
        return False
    engine = ENGINES[params["engine"]]
    loops = [loop for loop in engine.loops if loop in LOOPS] or LOOPS[:1]
    return (
        any(loop in item.callspec.id.split("-") for loop in loops[:loops_max])
        and params.get("seed", 0) < engine.histories_count
        and (engine.has_heart or "heart" not in item.fixturenames)
    )
