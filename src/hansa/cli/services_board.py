"""The services and their providers as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from rich.table import Table
from rich.text import Text

from hansa.cli.log_lines import visible
from hansa.cli.registry_news import facts
from hansa.ids import format_id
from hansa.messaging.provider_info import ProviderInfo

Services: TypeAlias = Mapping[str, tuple[ProviderInfo, ...]]


def as_table(services: Services) -> Table:
    """A row per provider; the name of a service stands once."""
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
                since(provider),
                end_section=number == len(providers) - 1,
            )
    return table


def since(provider: ProviderInfo) -> str:
    """When it registered, in local time."""
    if not provider.registered_at:
        return "-"
    try:
        moment = datetime.fromtimestamp(provider.registered_at)
    except (OverflowError, OSError, ValueError):  # A registry's clock may say anything.
        return "?"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def as_object(services: Services, registries: Sequence[int]) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "registries": list(registries),
        "services": {service: [facts(one) for one in providers] for service, providers in services.items()},
    }


def summary(services: Services, registries: Sequence[int]) -> str:
    """All of it in one sentence."""
    providers_count = sum(map(len, services.values()))
    told_by = f"registr{'y' if len(registries) == 1 else 'ies'} {', '.join(map(str, registries)) or 'none'}"
    return f"{_counted(len(services), 'service')}, {_counted(providers_count, 'provider')}; heard: {told_by}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
