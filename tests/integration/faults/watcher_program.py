"""Watches each registry of a cluster alone, with a discovery of its own, and remembers what each has told.

The order `read` makes it ask every registry anew, through discoveries that know nothing yet, and tell their
lists (null where nobody answers). `events` makes it tell what was added and removed until now: the number of
the registry, `added` or `removed`, the routing id, and when, by the machine's monotonic clock.
"""

import argparse
import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa import Discovery  # noqa: E402
from hansa.runtime.loops import run  # noqa: E402
from hansa.services.discovery import (  # noqa: E402
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
)
from hansa.transport import Environment, SocketOptions  # noqa: E402
from tests.integration.faults.orders import orders, tell  # noqa: E402

OPTIONS = SocketOptions(reconnect_s_min=0.05, reconnect_s_max=0.5, linger=0)
LIST_S_MAX = 3.0
LOOK_S = 0.005

Listed = dict[str, list[tuple[str, str, int]]]


async def read(pub: str) -> Listed | None:
    """What one registry lists now: by service endpoints, routing ids and weights."""
    discovery = Discovery([pub], environment=Environment(options=OPTIONS))
    discovery.subscribe_all()
    async with discovery:
        try:
            async with asyncio.timeout(LIST_S_MAX):
                while not discovery.lists_heard:
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return None
        return {
            service: sorted((one.endpoint, one.routing_id.decode(), one.weight) for one in providers)
            for service, providers in sorted(discovery.services.items())
        }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pub", action="append", required=True)
    pubs = parser.parse_args().pub
    remembered: list[tuple[int, str, str, float]] = []

    def remember(number: int, event: DiscoveryEvent) -> None:
        if isinstance(event, ProviderAdded | ProviderRemoved):
            what = "added" if isinstance(event, ProviderAdded) else "removed"
            remembered.append((number, what, event.provider.routing_id.decode(), time.monotonic()))

    async with AsyncExitStack() as stack:
        for number, pub in enumerate(pubs):
            discovery = Discovery([pub], environment=Environment(options=OPTIONS))
            discovery.subscribe_all()
            discovery.listen(lambda event, number=number: remember(number, event))  # type: ignore[misc]
            await stack.enter_async_context(discovery)
        tell("watching")
        async for order in orders():
            if order == "read":
                tell("lists", lists=await asyncio.gather(*map(read, pubs)))
            else:
                assert order == "events", order
                tell("events", events=remembered)


if __name__ == "__main__":
    run(main())
