"""The registry: keeps the list of who offers which service, and publishes it.

- `server`: the registry as a program uses it.
- `run`: its sockets and its timer, from one start to the next stop.
- `catalogue`: the machine: what the registry knows, and how it answers.
- `entries`: the rule by which registries agree about one key, and the entries of a list by service.
- `synced`: what other registries say. `tombstones`: what was removed.
- `announcer`: when lists are published, and their bytes.
- `stats`: what was counted.
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
