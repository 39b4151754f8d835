"""`hansa services`: the services and their providers, once or as they change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from hansa.cli.log_lines import LogLines, counted, moment_of, visible
from hansa.cli.registry_options import NO_TLS, PUB, ROUTER, SECONDS, AsJson, Pubs, Routers, TlsOptions
from hansa.cli.standard_streams import console
from hansa.cli.stop_signals import StopRequest, stop_signals
from hansa.errors import TimedOut
from hansa.ids import format_id
from hansa.presence.provider_info import ProviderInfo
from hansa.runtime.loops import run
from hansa.services.discovery import (
    Discovery,
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceUnavailable,
    WeightChanged,
)

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

Services: TypeAlias = Mapping[str, tuple[ProviderInfo, ...]]


def as_table(services: Services) -> Table:
    """A row per provider; the name of a service is shown once."""
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=False)
    for title in ("service", "provider", "routing id"):
        table.add_column(title, overflow="fold")
    table.add_column("weight", justify="right")
    table.add_column("since")
    for service, providers in services.items():
        for number, provider in enumerate(providers):
            table.add_row(
                # Text and not str: what a peer wrote is never markup.
                Text("" if number else visible(service), "bold"),
                Text(visible(provider.endpoint)),
                Text(format_id(provider.routing_id)),
                str(provider.weight),
                moment_of(provider.registered_at) or "-",
                end_section=number == len(providers) - 1,
            )
    return table


def tell_change(log: LogLines, event: DiscoveryEvent) -> None:
    """One change of the list of providers, as a line."""
    match event:
        case ProviderAdded(provider=provider):
            log.tell(
                "provider-added", f"{_name(provider)} added, weight {provider.weight}", **facts(provider)
            )
        case ProviderRemoved(provider=provider):
            log.tell("provider-removed", f"{_name(provider)} removed", **facts(provider))
        case WeightChanged(provider=provider, weight_before=before):
            sentence = f"{_name(provider)} has weight {provider.weight}, before {before}"
            log.tell("weight-changed", sentence, **facts(provider), weight_before=before)
        case ServiceAvailable(service=service):
            log.tell("service-available", f"{service} is available", service=service)
        case ServiceUnavailable(service=service):
            log.tell("service-unavailable", f"{service} is not available any more", service=service)


def _name(provider: ProviderInfo) -> str:
    return f"{provider.service} at {provider.endpoint} ({format_id(provider.routing_id)})"


def facts(provider: ProviderInfo) -> dict[str, object]:
    """A provider as JSON; the routing id as text for people."""
    return {
        "service": provider.service,
        "endpoint": provider.endpoint,
        "routing_id": format_id(provider.routing_id),
        "weight": provider.weight,
        "registered_at": provider.registered_at or None,
    }


def as_object(services: Services, registries: Sequence[int]) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "registries": list(registries),
        "services": {service: [facts(one) for one in providers] for service, providers in services.items()},
    }


def summary(services: Services, registries: Sequence[int]) -> str:
    """A summary in one sentence."""
    providers_count = sum(map(len, services.values()))
    told_by = f"registr{'y' if len(registries) == 1 else 'ies'} {', '.join(map(str, registries)) or 'none'}"
    return f"{counted(len(services), 'service')}, {counted(providers_count, 'provider')}; heard: {told_by}"


LOOK_INTERVAL_S: Final = 0.01
DRAW_INTERVAL_S: Final = 0.25
# After the first registry answered, the others get this long to send their lists.
OTHERS_S_MAX: Final = 0.3


def services(
    *,
    pub: Pubs = (PUB,),
    router: Routers = (ROUTER,),
    watch: bool = False,
    timeout: Annotated[float, SECONDS] = 3.0,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Show who provides what.

    Examples:

        hansa services
        hansa services --watch
        hansa services --pub tcp://host-a:5550 --pub tcp://host-b:5550 --json

    Parameters
    ----------
    router
        Not needed here; accepted, so that the same options fit every command.
    watch
        Go on and show every change, until Ctrl-C.
    timeout
        How long to wait for the first registry to answer.
    as_json
        One JSON object for programs; with --watch an object a line for each change.
    """
    discovery = Discovery(pub, environment=tls.environment())
    run(show(discovery, pub, watch=watch, timeout_s=timeout, as_json=as_json))


async def show(
    discovery: Discovery, pubs: tuple[str, ...], *, watch: bool, timeout_s: float, as_json: bool
) -> None:
    """Connect, wait for a list, and show it. Raises TimedOut when no registry answers."""
    discovery.subscribe_all()
    with stop_signals() as stop:
        if watch and (as_json or not console().is_terminal):
            await _tell_changes(discovery, pubs, stop, timeout_s=timeout_s, as_json=as_json)
            return
        async with discovery:
            await _hear(discovery, pubs, stop, timeout_s=timeout_s)
            if stop.asked.is_set():
                return
            if watch:
                await _draw(discovery, console(), stop)
            elif as_json:
                print(json.dumps(as_object(discovery.services, discovery.registries_heard)), flush=True)
            else:
                console().print(_screen(discovery))


async def _hear(discovery: Discovery, pubs: tuple[str, ...], stop: StopRequest, *, timeout_s: float) -> None:
    """Wait for every registry, or for one and a moment longer. Raises TimedOut when none answers."""
    loop = asyncio.get_running_loop()
    end_at = loop.time() + timeout_s
    while not stop.asked.is_set() and len(discovery.registries_heard) < len(set(pubs)):
        if loop.time() >= end_at:
            if discovery.registries_heard:
                return
            raise TimedOut(
                f"nothing was heard within {timeout_s:g} s: {discovery.situation} (`hansa registry` runs one)"
            )
        if discovery.registries_heard:
            end_at = min(end_at, loop.time() + OTHERS_S_MAX)
        # A list without any service is no event, so this polls.
        await asyncio.sleep(LOOK_INTERVAL_S)


def _screen(discovery: Discovery) -> Group | Text:
    from rich.console import Group
    from rich.text import Text

    found = discovery.services
    last = Text(summary(found, discovery.registries_heard))
    return Group(as_table(found), last) if found else last


async def _draw(discovery: Discovery, to: Console, stop: StopRequest) -> None:
    """A live table, for a terminal."""
    from rich.live import Live

    with Live(_screen(discovery), console=to, auto_refresh=False) as live:
        while not await stop.within(DRAW_INTERVAL_S):
            live.update(_screen(discovery), refresh=True)


async def _tell_changes(
    discovery: Discovery, pubs: tuple[str, ...], stop: StopRequest, *, timeout_s: float, as_json: bool
) -> None:
    """A line per change; the providers at the beginning are told as added."""
    loop = asyncio.get_running_loop()
    with LogLines(as_json=as_json, on_broken=lambda: loop.call_soon_threadsafe(stop.ask)) as log:
        discovery.listen(lambda event: tell_change(log, event))
        async with discovery:
            await _hear(discovery, pubs, stop, timeout_s=timeout_s)
            heard = discovery.registries_heard
            log.tell("ready", f"watching: {summary(discovery.services, heard)}", registries=list(heard))
            await stop.asked.wait()
