"""The registry: who offers which service, kept and told.

- `server`: the registry as a program uses it. `run`: its sockets and its timer, from a start to a stop.
- `catalogue`: what it knows and how it decides. `entries`: who is behind a name, and entries by service.
- `synced`, `tombstones`: what other registries say, and what was removed.
- `announcer`: when lists are told, and their bytes. `stats`: what was counted.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.services.registry.server import Registry
    from hansa.services.registry.stats import RegistryStats
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.services.registry.server": "Registry",
            "hansa.services.registry.stats": "RegistryStats",
        },
    )

__all__ = [
    "Registry",
    "RegistryStats",
]
