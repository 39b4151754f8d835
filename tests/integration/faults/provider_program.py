"""One provider in a process of its own: it answers with its name and what was asked.

It tells {"event": "registered", ...} when a registry has accepted it, or {"event": "refused", ...}. SIGTERM
drains it, and it tells how that went. The order `stats` makes it tell its counts and its memory, `where`
which registry has it now.
"""

import argparse
import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa import (  # noqa: E402
    Provider,
    Request,
)
from hansa.cli.stop_signals import stop_signals  # noqa: E402
from hansa.errors import RegistrationRefused  # noqa: E402
from hansa.runtime.loops import run  # noqa: E402
from hansa.services.provider import ProviderState  # noqa: E402
from hansa.transport import Environment, SocketOptions  # noqa: E402
from tests.integration.faults.orders import orders, rss_kib, tell  # noqa: E402


def facts(provider: Provider) -> dict[str, Any]:
    ended = provider.router.stats.ended
    return {"stats": asdict(provider.stats), "ended": ended, "rss_kib": rss_kib()}


async def obey(provider: Provider, service: str) -> None:
    async for order in orders():
        if order == "stats":
            tell("stats", **facts(provider))
        else:
            assert order == "where", order
            is_registered = provider.state(service) is ProviderState.REGISTERED
            tell("where", registry=provider.registry, is_registered=is_registered)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="its routing id, too")
    parser.add_argument("--service", required=True)
    parser.add_argument(
        "--router", action="append", required=True, help="a registry; the first is tried first"
    )
    parser.add_argument("--bind", default="tcp://127.0.0.1:0")
    parser.add_argument("--advertise", help="what to register instead of where it is bound")
    parser.add_argument("--drain-timeout", type=float, default=15.0)
    parser.add_argument("--heartbeat-interval", type=float, default=0.3)
    arguments = parser.parse_args()
    name = arguments.name.encode()
    provider = Provider(
        arguments.bind,
        arguments.router,
        advertise=arguments.advertise,
        routing_id=name,
        heartbeat_interval=arguments.heartbeat_interval,
        environment=Environment(options=SocketOptions(reconnect_s_min=0.05, reconnect_s_max=0.5)),
        name=arguments.name,
    )

    @provider.handler()
    async def answer(request: Request) -> list[bytes]:
        return [name, *request.parts]

    with stop_signals() as stop:
        async with provider:
            try:
                done = await provider.register(arguments.service, timeout=20.0)
            except RegistrationRefused as refused:
                tell("refused", status=refused.status, error=str(refused))
                return
            tell("registered", registry=done.registry, endpoint=done.endpoint)
            obeying = asyncio.ensure_future(obey(provider, arguments.service))
            stopping = asyncio.ensure_future(stop.asked.wait())
            # Told to stop, left alone, or broken.
            await asyncio.wait((obeying, stopping), return_when=asyncio.FIRST_COMPLETED)
            if obeying.done():
                obeying.result()
            obeying.cancel()
            stopping.cancel()
            if stop.asked.is_set():
                is_done = await provider.drain(timeout=arguments.drain_timeout)
                tell("drained", is_done=is_done, **facts(provider))


if __name__ == "__main__":
    run(main())
