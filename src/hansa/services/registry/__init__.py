"""The registry: keeps the list of services and their providers, and publishes it.

- `server`: the registry as a program uses it; its sockets and its timer, from one start to the next stop.
- `catalogue`: the machine: what the registry knows, and how it answers.
- `entries`: the rule by which registries agree about one key, the entries of a list, and tombstones.
- `synced`: the lists of other registries.
- `announcer`: when lists are published, and their bytes.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.services.registry.server import Registry, RegistryStats
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.services.registry.server": "Registry RegistryStats",
        },
    )

__all__ = [
    "Registry",
    "RegistryStats",
]
