"""The registry: who offers which service, kept and told."""

from hansa.messaging.registry.server import Registry
from hansa.messaging.registry.stats import RegistryStats

__all__ = ["Registry", "RegistryStats"]
