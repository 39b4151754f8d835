"""Options of the commands that use a session in a store, in the same words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import getpid
from socket import gethostname
from typing import Annotated, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.registry_options import NO_TLS, TlsOptions
from hansa.coordination.handovers import Handovers
from hansa.coordination.session import Session, SessionKeeper
from hansa.errors import BadArgument
from hansa.runtime.tasks import TaskScope
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
    node
        This process's name in lines, which --move names; else its host and number, HOST:PID.
    """

    store: StoreAddress = STORE
    cluster: ClusterName = "default"
    ttl: Annotated[float, Parameter(metavar="SECONDS", validator=Number(gte=1, lt=1e6))] = 10.0
    node: Annotated[str, Parameter(metavar="NODE")] = ""

    def open(self, tls: TlsOptions = NO_TLS) -> Store:
        """Raises BadArgument and BadEndpoint."""
        return open_shared_store(self.store, tls)

    def session(self, store: Store, name: str) -> Session:
        return Session(store, self.ttl, cluster=self.cluster, node=self.who, name=name)

    def keeper(self, store: Store, name: str) -> SessionKeeper:
        return SessionKeeper(store, ttl=self.ttl, cluster=self.cluster, node=self.who, name=name)

    @property
    def who(self) -> str:
        """The name under which this process stands in lines."""
        return self.node or this_process()


@asynccontextmanager
async def swept(store: Store, cluster: str) -> AsyncIterator[None]:
    """For as long as the block, sweep the hand-overs that ended long ago now and then."""
    tasks = TaskScope("sweeps", _raise)
    tasks.spawn(Handovers(store, cluster=cluster).keep_swept(), "sweeps hand-overs")
    try:
        yield
    finally:
        await tasks.close()


def _raise(error: BaseException) -> None:
    raise error


DEFAULTS: Final = SessionOptions()


def this_process() -> str:
    """The default name of a process in lines: people find the process by host and number."""
    return f"{gethostname()}:{getpid()}"


def open_shared_store(address: str, tls: TlsOptions) -> Store:
    """A store that other processes see, too. Raises BadArgument and BadEndpoint."""
    if address.startswith("memory:"):
        raise BadArgument("memory:// is a store within one process: nobody else is there; give etcd://")
    return open_store(address, environment=tls.environment())
