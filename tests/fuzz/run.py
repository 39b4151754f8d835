"""`make fuzz`: feed the parsers random and mutated input, and stop at the first thing that is wrong.

    python tests/fuzz/run.py --runs 1000000 [--seconds 60] [--targets parser,connection] [--seed 7]
    python tests/fuzz/run.py --replay build/fuzz/parser-....bin

Half of the runs are guided by coverage (atheris, on hansa's sources), half mutate seeds and run on hansa as
it is installed, compiled where it is compiled. Without atheris all of them are of the second kind. Each
target runs in processes of its own. Wrong is: an exception that is not the typed one, a different meaning
of the same bytes whole and bytewise, an input that takes more than 5 s, memory that grows.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from tests.fuzz.campaign import Campaign, replay  # noqa: E402
from tests.fuzz.targets import TARGETS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz hansa's parsers.")
    parser.add_argument("--runs", type=int, default=1_000_000, help="inputs in all (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop each target after this time")
    parser.add_argument("--targets", default=",".join(TARGETS), help="of: %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time (default: one per core)")
    parser.add_argument("--engine", choices=["both", "atheris", "mutation"], default="both")
    parser.add_argument("--replay", type=Path, help="run one saved input again")
    arguments = parser.parse_args()
    if arguments.replay:
        return replay(arguments.replay)
    campaign = Campaign(
        root=ROOT,
        names=arguments.targets.split(","),
        runs=arguments.runs,
        seconds=arguments.seconds,
        seed=arguments.seed,
        jobs=arguments.jobs,
        engine=arguments.engine,
    )
    return campaign.run()


if __name__ == "__main__":
    sys.exit(main())
