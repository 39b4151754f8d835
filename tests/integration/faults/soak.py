"""`make soak`: a million bad messages, live, against a registry, a provider and a node, each a process.

    python tests/integration/faults/soak.py --frames 1000000 [--seed 7]

All the while a good caller calls the good provider, and the node and another one publish to each other.
Afterwards all still serve, what they counted is what was sent, and their memory has not grown beyond a bound.
It prints what it found; an error ends it.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.integration.faults.soaked_mesh import SoakedMesh  # noqa: E402
from tests.support.fault_stage import SERVICE, Program  # noqa: E402

RATE = 50
GROWTH_KIB_MAX = 50 * 1024
# The good provider must be alive for the registry on a slow machine, too, or its endpoint could be claimed.
PATIENCE = ("--heartbeat-interval=4", "--heartbeat-timeout=8")


async def soak(frames_count: int, seed: int) -> dict[str, Any]:
    """A third of the frames for each. The findings, or AssertionError."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        registry = await enter(Program([], "registry_program", *PATIENCE))
        ready = await registry.event("ready")
        provider = await enter(
            Program(
                [], "provider_program", "--name=good", f"--service={SERVICE}", f"--router={ready['router']}"
            )
        )
        endpoint = (await provider.event("registered"))["endpoint"]
        client = await enter(
            Program([], "client_program", f"--pub={ready['pub']}", f"--service={SERVICE}", f"--rate={RATE}")
        )
        await client.event("calling")
        mesh = await SoakedMesh().start(stack)
        before = {
            "registry": await registry.ask("stats", "stats"),
            "provider": await provider.ask("stats", "stats"),
            "node": await mesh.stats(),
        }

        began_at = time.monotonic()
        attackers = [
            await enter(
                Program(
                    [],
                    "attacker_program",
                    f"--kind={kind}",
                    f"--endpoint={target}",
                    f"--frames={frames_count // 3 + 1}",
                    f"--seed={seed + number}",
                    "--claim",
                    SERVICE,
                    endpoint,
                )
            )
            for number, (kind, target) in enumerate(
                [("registry", ready["router"]), ("provider", endpoint), ("node", mesh.endpoint)]
            )
        ]
        sent = await asyncio.gather(*(attacker.event("done") for attacker in attackers))
        seconds = time.monotonic() - began_at

        # They serve: the caller got every answer, and the last of them after the attack.
        goal = (await client.ask("books", "books"))["replied"] + RATE
        while (await client.ask("books", "books"))["replied"] < goal:
            await asyncio.sleep(0.05)
        books = await client.ask("stop", "books")
        assert books["failed"] == {}, books
        assert (books["replied"], books["wrong"]) == (books["sent"], 0), books

        beats_before = (await provider.ask("stats", "stats"))["stats"]["heartbeats_count"]
        after = {
            "registry": await registry.ask("stats", "stats"),
            "provider": await provider.ask("stats", "stats"),
            "node": await mesh.stats(),
        }
        await mesh.close(sent[2])
        assert after["registry"]["stats"]["duplicates_count"] > 0
        assert after["registry"]["entries"][SERVICE][endpoint] == b"good".hex()
        check_registry(sent[0], after["registry"]["stats"], beats_before, after["provider"]["stats"])
        check_provider(sent[1], after["provider"], books["sent"])
        growth = {kind: after[kind]["rss_kib"] - before[kind]["rss_kib"] for kind in after}
        assert max(growth.values()) < GROWTH_KIB_MAX, f"memory grew by {growth} KiB"
        return {
            "frames": sum(one["frames"] for one in sent),
            "connections": sum(one["connections"] for one in sent),
            "expelled": sum(one["expelled"] for one in sent),
            "seconds": round(seconds, 1),
            "growth_kib": growth,
            "calls": books["sent"],
            "slowest_call_s": round(books["slowest_s"], 3),
            "published": mesh.published_count,
            "counts": [one["counts"] for one in sent],
        }


def check_registry(
    sent: dict[str, Any], counted: dict[str, Any], beats_min: int, provider: dict[str, Any]
) -> None:
    """Every message that was sent to the registry is in one of its counts, and no other is."""
    counts = sent["counts"]
    bad = {verdict[4:]: count for verdict, count in counts.items() if verdict.startswith("bad ")}
    assert counted["bad_frames"] == bad, (counted, sent)
    # The good provider registered once, and it beats all the while.
    outcomes = (
        "registered",
        "duplicates",
        "refused",
        "unregistered",
        "weight_updates",
        "unknown_entries",
        "behind",
    )
    requests_count = sum(counted[f"{outcome}_count"] for outcome in outcomes)
    assert requests_count == counts["register"] + counts["change"] + 1, (counted, sent)
    beats = counted["heartbeats_count"] - counts["heartbeat"]
    assert beats_min - 1 <= beats <= provider["heartbeats_count"], (beats, counted, sent)
    assert counted["expelled_count"] == sent["expelled"], (counted, sent)
    # The caller's discovery is the one that may have left by itself.
    ended = Counter(counted["ended"])
    ended.subtract(sent["ended"])
    assert set(+ended) <= {"closed-by-peer"}, (counted, sent)
    assert sum(ended.values()) <= 1, (counted, sent)
    assert not -ended, (counted, sent)


def check_provider(sent: dict[str, Any], told: dict[str, Any], calls_count: int) -> None:
    """Every request is in one of the provider's counts; the caller's are the only others."""
    counts, counted = sent["counts"], told["stats"]
    bad = {verdict[4:]: count for verdict, count in counts.items() if verdict.startswith("bad ")}
    assert counted["bad_frames"] == bad, (counted, sent)
    assert counted["unknown_msg_id_count"] == counts["unknown"], (counted, sent)
    assert counted["requests_count"] == sum(counts.values()) + calls_count, (counted, sent)
    done = ("replied", "failed", "busy", "draining", "expired", "abandoned")
    assert sum(counted[f"{how}_count"] for how in done) == counts["call"] + calls_count, (counted, sent)
    assert counted["failed_count"] == 0, counted
    assert counted["expelled_count"] == sent["expelled"], (counted, sent)
    ended = Counter(told["ended"])
    ended.subtract(sent["ended"])
    assert set(+ended) <= {"closed-by-peer"}, (told, sent)
    assert sum(ended.values()) <= 1, (told, sent)
    assert not -ended, (told, sent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name, value in asyncio.run(soak(arguments.frames, arguments.seed)).items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
