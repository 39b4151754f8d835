"""The cost curve of the topic mesh's control plane: run as `python -m bench.topic_costs`, or `make costs`.

It counts what real nodes say in the simulator, compares it with the formula, and writes the tables of
docs/explanation/topic-costs.md, the plot and the numbers. Ends with 1 if formula and count differ.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from time import perf_counter
from typing import Final

from bench.machine import installed_version
from bench.topic_costs_formula import Shape
from bench.topic_costs_mesh import Costs, measure
from bench.topic_costs_report import deviations, draw, fill, sections

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "explanation" / "topic-costs.md"
NUMBERS: Final = ROOT / "docs" / "benchmarks" / "topic-costs.json"
PLOT: Final = ROOT / "docs" / "benchmarks" / "topic-costs.svg"

NODES_COUNTS: Final = (10, 100, 1_000, 3_000)
TOPICS_COUNTS: Final = (10, 100, 1_000, 10_000, 100_000)
# Nodes and topics of meshes in which all are connected, for comparison. Every one of them knows every topic.
FULL_MESHES: Final = ((10, 100), (100, 1_000))
# Rounding of rates only: a second is a sixtieth of what was counted.
DEVIATION_MAX: Final = 1e-9


def measured(case: tuple[int, int, bool]) -> tuple[Costs, float]:
    """One mesh, and how long that took."""
    began_s = perf_counter()
    nodes_count, topics_count, is_full = case
    costs = measure(Shape(nodes_count=nodes_count, topics_count=topics_count), is_full=is_full)
    return costs, perf_counter() - began_s


def measure_all(jobs: int) -> list[Costs]:
    """The largest first, so that the last one to end is a short one."""
    cases = [(nodes, topics, False) for nodes in NODES_COUNTS for topics in TOPICS_COUNTS]
    cases = [(*full, True) for full in sorted(FULL_MESHES, reverse=True)] + sorted(cases, reverse=True)
    found = []
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(measured, case) for case in cases]):
            costs, spent_s = done.result()
            found.append(costs)
            shape = costs.shape
            print(
                f"{shape.nodes_count:>5,} nodes {shape.topics_count:>7,} topics"
                f"{', full mesh' if costs.is_full else '':<11} {costs.steady.sent.size_bytes:>10,.1f} B/s"
                f"  off by {max(deviations(costs).values()):.1%}  in {spent_s:.1f} s",
                flush=True,
            )
    return sorted(found, key=lambda one: (one.is_full, one.shape.nodes_count, one.shape.topics_count))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.topic_costs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--again", action="store_true", help="count nothing; write from the stored numbers")
    asked = parser.parse_args(arguments)
    if asked.again:
        costs = [Costs.from_json(one) for one in json.loads(NUMBERS.read_text(encoding="utf-8"))]
    else:
        costs = measure_all(asked.jobs)
        # A line a mesh.
        lines = ",\n".join(json.dumps(one.as_json()) for one in costs)
        NUMBERS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), sections(costs)), encoding="utf-8")
    written = [NUMBERS, PAGE]
    if installed_version("matplotlib"):
        draw(costs, PLOT)
        written.append(PLOT)
    print("wrote " + ", ".join(str(path.relative_to(ROOT)) for path in written))
    return 1 if any(value > DEVIATION_MAX for one in costs for value in deviations(one).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
