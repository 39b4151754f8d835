"""The provider: a process that registers services and answers requests.

In the order in which a request goes through them:

- `server`: the provider as a program uses it, and its socket. Registering is `hansa.presence`.
- `handlers`: takes requests from the socket, runs handlers in tasks and threads, and sends the replies.
- `work`: the requests and replies of handlers, and which requests run, wait or are refused.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.presence.provider_info import ProviderState, Registration
    from hansa.services.provider.server import Provider, ProviderStats
    from hansa.services.provider.work import Request
    from hansa.wire.business import TraceContext
    from hansa.wire.registry import AckStatus
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.presence.provider_info": "ProviderState Registration",
            "hansa.services.provider.work": "Request",
            "hansa.services.provider.server": "Provider ProviderStats",
            "hansa.wire.business": "TraceContext",
            "hansa.wire.registry": "AckStatus",
        },
    )

__all__ = [
    "AckStatus",
    "Provider",
    "ProviderState",
    "ProviderStats",
    "Registration",
    "Request",
    "TraceContext",
]
