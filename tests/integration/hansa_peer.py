"""One socket of hansa in a process of its own, for tests that kill or stop it.

It echoes every message. It says {"bound": endpoint} or {"connected": endpoint} in a line of JSON first.
"""

import argparse
import asyncio
import json

from hansa.transport import Dealer, Environment, Router, SocketOptions


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("type", choices=["router", "dealer"])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bind")
    where.add_argument("--connect")
    parser.add_argument("--id", default="")
    arguments = parser.parse_args()
    environment = Environment(options=SocketOptions(reconnect_s_min=0.02, reconnect_s_max=0.1))
    kind = Router if arguments.type == "router" else Dealer
    async with kind(arguments.id.encode(), environment=environment) as socket:
        if arguments.bind:
            print(json.dumps({"bound": str(await socket.bind(arguments.bind))}), flush=True)
        else:
            await socket.connect(arguments.connect).up()
            print(json.dumps({"connected": arguments.connect}), flush=True)
        async for peer, parts in socket:
            if isinstance(socket, Router):
                await socket.send(peer, parts)
            else:
                await socket.send(parts)


if __name__ == "__main__":
    asyncio.run(main())
