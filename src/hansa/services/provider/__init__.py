"""The provider: a process that registers services and answers requests.

In the order in which a request goes through them:

- `server`: the provider as a program uses it, and its socket. Registering is `hansa.presence`.
- `handlers`: takes requests from the socket, runs handlers in tasks and threads, and sends the replies.
- `work`: the machine that decides which requests run, wait or are refused.
- `request`: what a handler is given and what it may return.
"""

from hansa.presence.provider_info import ProviderState, Registration
from hansa.services.provider.request import Request
from hansa.services.provider.server import Provider, ProviderStats

__all__ = ["Provider", "ProviderState", "ProviderStats", "Registration", "Request"]
