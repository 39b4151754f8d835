"""One provider of a service, as registries and discoveries show it to the program."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """Who provides a service and where. `registered_at` is in wall seconds; 0.0 when nobody said."""

    service: str
    endpoint: str
    routing_id: bytes
    weight: int
    registered_at: float
