"""All blocking objects, open, with a provider whose handlers do as the msgId says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hansa import sync
from hansa.errors import HandlerFailed
from hansa.services.provider import Request

SERVICE = "payment"
WITHIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """All four objects, open, with a provider whose handlers do as the payload says."""

    registry: sync.Registry
    provider: sync.Provider
    discovery: sync.Discovery
    gateway: sync.Gateway
    release: threading.Event
    """Handlers of "wait" go on when it is set."""
    waiting: threading.Semaphore
    """Released by every handler that waits."""


@contextmanager
def opened(*, in_flight_max: int = 10_000) -> Iterator[Stage]:
    release, waiting = threading.Event(), threading.Semaphore(0)
    with ExitStack() as stack:
        registry = stack.enter_context(sync.Registry("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"))
        provider = sync.Provider(registries=[str(registry.router)])

        @provider.handler()
        def echo(request: Request) -> list[bytes]:
            return [threading.current_thread().name.encode(), *request.parts]

        @provider.handler(1)
        def refuse(request: Request) -> bytes:
            raise HandlerFailed("not enough money", "insufficient-funds")

        @provider.handler(2)
        def wait(request: Request) -> bytes:
            waiting.release()
            release.wait(WITHIN_S)
            return b"waited"

        stack.enter_context(provider)
        stack.callback(release.set)
        provider.register(SERVICE, timeout=WITHIN_S)
        discovery = stack.enter_context(sync.Discovery([str(registry.pub)]))
        discovery.subscribe(SERVICE)
        gateway = stack.enter_context(sync.Gateway(discovery, in_flight_max=in_flight_max))
        gateway.wait_connected(SERVICE, timeout=WITHIN_S)
        yield Stage(
            registry=registry,
            provider=provider,
            discovery=discovery,
            gateway=gateway,
            release=release,
            waiting=waiting,
        )
