"""Options of the commands that hang on a session in a store, in the same words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.registry_options import NO_TLS, TlsFiles
from hansa.coordination.session import Session
from hansa.errors import BadArgument
from hansa.store.opening import open_store
from hansa.store.store import Store

STORE: Final = "etcd://127.0.0.1:2379"
StoreAddress = Annotated[str, Parameter(metavar="ADDRESS", env_var="HANSA_STORE")]
ClusterName = Annotated[str, Parameter(metavar="NAME", env_var="HANSA_CLUSTER")]


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Where the store is, and how long a lease in it lives.

    Parameters
    ----------
    store
        Where the store is: etcd://HOST:PORT, with commas between several.
    cluster
        The cluster whose names are meant: others have locks and elections of their own.
    ttl
        After so many seconds without a sign of life somebody else may have it.
    """

    store: StoreAddress = STORE
    cluster: ClusterName = "default"
    ttl: Annotated[float, Parameter(metavar="SECONDS", validator=Number(gte=1, lt=1e6))] = 10.0

    def open(self, tls: TlsFiles = NO_TLS) -> Store:
        """Raises BadArgument and BadEndpoint."""
        return open_shared_store(self.store, tls)

    def session(self, store: Store, name: str) -> Session:
        return Session(store, self.ttl, cluster=self.cluster, name=name)


DEFAULTS: Final = SessionOptions()


def open_shared_store(address: str, tls: TlsFiles) -> Store:
    """A store that other processes see, too. Raises BadArgument and BadEndpoint."""
    if address.startswith("memory:"):
        raise BadArgument("memory:// is a store within one process: nobody else is there; give etcd://")
    return open_store(address, tls=tls.environment().tls)
