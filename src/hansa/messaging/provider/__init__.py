"""A process that offers services: it registers them and answers requests."""

from hansa.messaging.provider.request import Request
from hansa.messaging.provider.server import Provider
from hansa.messaging.provider.standing import ProviderState, Registration
from hansa.messaging.provider.stats import ProviderStats

__all__ = ["Provider", "ProviderState", "ProviderStats", "Registration", "Request"]
