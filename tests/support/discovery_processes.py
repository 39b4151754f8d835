"""Registries and providers in processes of their own, to be killed."""

import sys
from typing import Any, Self

from tests.support.peer_process import PeerProcess

ANY = "tcp://127.0.0.1:0"


class Told(PeerProcess):
    """A process that tells events as JSON, an object a line."""

    async def event(self, name: str, **wanted: Any) -> dict[str, Any]:
        """The next event of this name with these facts; others before it are passed over."""
        while True:
            heard = await self.hear()
            if heard.get("event") == name and all(heard.get(key) == value for key, value in wanted.items()):
                return heard


class RegistryProcess(Told):
    """`hansa registry`. After `ready` its endpoints are known, and starting another one there is possible."""

    def __init__(
        self,
        pub: str = ANY,
        router: str = ANY,
        *,
        peers: tuple[str, ...] = (),
        registry_id: int | None = None,
        **seconds: float,
    ) -> None:
        super().__init__("")
        self.pub, self.router, self.registry_id = pub, router, registry_id
        self._peers, self._seconds = peers, seconds
        self._command = [sys.executable, "-m", "hansa.cli", "registry", "--json"]
        self._command += [f"--pub={pub}", f"--router={router}", *(f"--peer={peer}" for peer in peers)]
        self._command += [f"--{name.replace('_', '-')}={value}" for name, value in seconds.items()]
        if registry_id is not None:
            self._command.append(f"--id={registry_id}")

    async def ready(self) -> Self:
        ready = await self.event("ready")
        self.pub, self.router, self.registry_id = ready["pub"], ready["router"], ready["registry_id"]
        return self

    def again(self) -> "RegistryProcess":
        """The same registry, to be started once more at the same endpoints and under the same id."""
        return RegistryProcess(
            self.pub, self.router, peers=self._peers, registry_id=self.registry_id, **self._seconds
        )


class ProviderProcess(Told):
    """provider_program.py: a provider of hansa's that tells with which registry it is registered."""

    def __init__(self, name: str, *routers: str, service: str, **settings: object) -> None:
        arguments = [f"--name={name}", f"--service={service}", *(f"--router={router}" for router in routers)]
        arguments += [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
        super().__init__("discovery/provider_program.py", *arguments)
        self.name = name
        self.endpoint = ""

    async def registered(self, **wanted: Any) -> dict[str, Any]:
        """The next time that a registry has accepted it."""
        told = await self.event("registered", **wanted)
        self.endpoint = told["endpoint"]
        return told
