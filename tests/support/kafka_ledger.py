"""The ledger of `kafka_peer.py`: which messages count in the sums, by whose word, and whether each once."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field

from hansa.store.store import Store

PREFIX = b"/ledger/"


def ledger_key(partition: str, first: int, who: str) -> bytes:
    return PREFIX + f"{partition}/{first:012d}/{who}".encode()


def ledger_line(first: int, last: int, total: int, node: str, epoch: int) -> bytes:
    return json.dumps({"first": first, "last": last, "sum": total, "node": node, "epoch": epoch}).encode()


@dataclass(slots=True)
class Ledger:
    """What the lines say of each partition."""

    # How often each message counts that does not count once: 0 is lost, 2 is doubled.
    wrong: dict[str, dict[int, int]] = field(default_factory=dict)
    # Lines whose epoch is lower than that of a line with lower offsets.
    out_of_order: list[tuple[str, int, int]] = field(default_factory=list)
    sums: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    lines_count: int = 0
    # Each owner of each partition in the order of its messages.
    owners: dict[str, list[str]] = field(default_factory=dict)

    @property
    def lost_count(self) -> int:
        return sum(1 for counts in self.wrong.values() for count in counts.values() if count == 0)

    @property
    def doubled_count(self) -> int:
        return sum(1 for counts in self.wrong.values() for count in counts.values() if count > 1)


async def read_ledger(store: Store) -> Ledger:
    """Add up all lines."""
    found = Ledger()
    lines: dict[str, list[dict[str, int | str]]] = defaultdict(list)
    for item in (await store.scan(PREFIX)).items:
        partition = item.key.removeprefix(PREFIX).decode().split("/")[0]
        lines[partition].append(json.loads(item.value))
        found.lines_count += 1
    for partition, each in lines.items():
        counts: dict[int, int] = defaultdict(int)
        for line in each:
            for offset in range(int(line["first"]), int(line["last"]) + 1):
                counts[offset] += 1
        end = max(counts) + 1
        wrong = {offset: counts.get(offset, 0) for offset in range(end) if counts.get(offset, 0) != 1}
        if wrong:
            found.wrong[partition] = wrong
        found.ends[partition] = end
        found.sums[partition] = sum(int(line["sum"]) for line in each)
        epoch, owners = 0, []
        for line in each:
            if int(line["epoch"]) < epoch:
                found.out_of_order.append((partition, int(line["first"]), int(line["epoch"])))
            if int(line["epoch"]) != epoch:
                owners.append(str(line["node"]))
            epoch = max(epoch, int(line["epoch"]))
        found.owners[partition] = owners
    return found
