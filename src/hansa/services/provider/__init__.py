"""A process that offers services: it registers them and answers requests.

- `server`: the provider as a program uses it. Registering is `hansa.presence`.
- `handlers`: requests come in, tasks and threads work, replies go out.
- `work`: the machine that decides what runs, what waits and what is refused. `request`: what handlers get.
"""

from hansa.presence.provider_info import ProviderState, Registration
from hansa.services.provider.request import Request
from hansa.services.provider.server import Provider, ProviderStats

__all__ = ["Provider", "ProviderState", "ProviderStats", "Registration", "Request"]
