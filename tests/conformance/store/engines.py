"""The engines that the suite of stores runs on. Another engine is one more entry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hansa.store.on_memory import MemoryStore
from hansa.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEngine:
    """How to make a store, how short its leases can be, and how to make it answer nobody for a while."""

    make: Callable[[], Store]
    ttl_s_min: float
    # What the two do is the engine's own: they are given a store that `make` made.
    pause: Callable[[Any], None]
    resume: Callable[[Any], None]


ENGINES: dict[str, StoreEngine] = {
    "memory": StoreEngine(
        make=MemoryStore, ttl_s_min=0.05, pause=MemoryStore.pause, resume=MemoryStore.resume
    ),
}
