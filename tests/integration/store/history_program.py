"""Clients of a store in a process of their own; when told to end, they hand over their history.

    python tests/integration/store/history_program.py --store etcd://... --name p1 --out history.jsonl

Says `{"event": "ready"}` once the store has answered, and `{"event": "done"}` when the history is written.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.chance import Chance  # noqa: E402
from hansa.store.opening import open_store  # noqa: E402
from hansa.testing import Call  # noqa: E402
from tests.support.store_history import Clients, as_line  # noqa: E402


async def play(address: str, name: str, seed: str) -> list[Call]:
    async with open_store(address) as store, Clients(store, name, Chance.seeded(seed)) as clients:
        print(json.dumps({"event": "ready"}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    return clients.calls


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", default="")
    given = parser.parse_args()
    calls = asyncio.run(play(given.store, given.name, given.seed or given.name))
    given.out.write_text("".join(f"{as_line(call)}\n" for call in calls))
    print(json.dumps({"event": "done"}), flush=True)
