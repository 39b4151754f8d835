"""One provider in a process of its own, for tests that kill it or its registries.

It answers with its name and what was asked. In lines of JSON it says {"event": "registered", ...} each time
a registry has accepted it, the first time and again.
"""

import argparse
import asyncio
import json

from hansa import Provider, Request
from hansa.transport import Environment, SocketOptions

LOOK_S = 0.01


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="its routing id, too")
    parser.add_argument("--service", required=True)
    parser.add_argument(
        "--router", action="append", required=True, help="a registry; the first is tried first"
    )
    parser.add_argument("--heartbeat-interval", type=float, default=0.1)
    arguments = parser.parse_args()
    name, service = arguments.name.encode(), arguments.service
    provider = Provider(
        "tcp://127.0.0.1:0",
        arguments.router,
        routing_id=name,
        heartbeat_interval=arguments.heartbeat_interval,
        environment=Environment(options=SocketOptions(reconnect_s_min=0.02, reconnect_s_max=0.1)),
        name=arguments.name,
    )

    @provider.handler()
    async def answer(request: Request) -> list[bytes]:
        return [name, *request.parts]

    async with provider:
        await provider.register(service, timeout=20.0)
        told_count = 0
        while True:
            stats, registration = provider.stats, provider.registration(service)
            count = stats.registrations_count + stats.reregistrations_count
            if count != told_count and registration is not None:
                told_count = count
                facts = {"registry": registration.registry, "endpoint": registration.endpoint, "count": count}
                print(json.dumps({"event": "registered", **facts}), flush=True)
            await asyncio.sleep(LOOK_S)


if __name__ == "__main__":
    asyncio.run(main())
