"""A process that offers services: it registers them and answers requests.

- `server`: the provider as a program uses it. Registering is `hansa.presence`.
- `handlers`: requests come in, tasks and threads work, replies go out.
- `work`: the machine that decides what runs, what waits and what is refused. `request`: what handlers get.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.presence.provider_info import ProviderState, Registration
    from hansa.services.provider.request import Request
    from hansa.services.provider.server import Provider, ProviderStats
    from hansa.wire.business import TraceContext
    from hansa.wire.registry import AckStatus
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.presence.provider_info": "ProviderState Registration",
            "hansa.services.provider.request": "Request",
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
