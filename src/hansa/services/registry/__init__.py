"""The registry: keeps the list of who offers which service, and publishes it.

- `server`: the registry as a program uses it.
- `run`: its sockets and its timer, from one start to the next stop.
- `catalogue`: the machine: what the registry knows, and how it answers.
- `entries`: the rule by which registries agree about one key, and the entries of a list by service.
- `synced`: what other registries say. `tombstones`: what was removed.
- `announcer`: when lists are published, and their bytes.
- `stats`: what was counted.
"""

from hansa.services.registry.server import Registry
from hansa.services.registry.stats import RegistryStats

__all__ = ["Registry", "RegistryStats"]
