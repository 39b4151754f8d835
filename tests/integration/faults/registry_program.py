"""One registry in a process of its own. The order `stats` makes it tell its counts, entries and memory."""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa import Registry  # noqa: E402
from hansa.runtime.loops import run  # noqa: E402
from tests.integration.faults.orders import orders, rss_kib, tell  # noqa: E402


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--heartbeat-interval", type=float, default=0.5)
    parser.add_argument("--heartbeat-timeout", type=float, default=3.0)
    parser.add_argument("--broadcast-interval", type=float, default=30.0)
    arguments = parser.parse_args()
    registry = Registry(
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:0",
        peers=arguments.peer,
        heartbeat_interval=arguments.heartbeat_interval,
        heartbeat_timeout=arguments.heartbeat_timeout,
        broadcast_interval=arguments.broadcast_interval,
    )
    async with registry:
        tell("ready", pub=str(registry.pub), router=str(registry.router), registry_id=registry.registry_id)
        async for order in orders():
            assert order == "stats", order
            entries = {
                service: {one.endpoint: one.routing_id.hex() for one in providers}
                for service, providers in registry.services.items()
            }
            tell("stats", stats=asdict(registry.stats), entries=entries, rss_kib=rss_kib())


if __name__ == "__main__":
    run(main())
