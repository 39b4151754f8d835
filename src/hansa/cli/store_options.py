"""Options of the commands that use a store, in the same words: where it is, a session in it, a group in it.

Commands for sessions should not wait until `hansa.assignment` is loaded, nor help for the stores. So the
functions that need these load them, and this module does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import getpid
from socket import gethostname
from typing import TYPE_CHECKING, Annotated, Final

from hansa.cli.arguments import Number, Parameter, guess
from hansa.cli.registry_options import NO_TLS, TlsOptions
from hansa.coordination.handovers import Handovers
from hansa.coordination.session import Session, SessionKeeper
from hansa.errors import BadArgument, NotThere
from hansa.runtime.tasks import TaskScope
from hansa.store.store import Store

if TYPE_CHECKING:
    from hansa.assignment.assignments import Assignments

STORE: Final = "etcd://127.0.0.1:2379"
StoreAddress = Annotated[str, Parameter(metavar="ADDRESS", env_var="HANSA_STORE")]
ClusterName = Annotated[str, Parameter(metavar="NAME", env_var="HANSA_CLUSTER")]
_NAMED_MAX: Final = 8


def open_shared_store(address: str, tls: TlsOptions) -> Store:
    """A store that other processes see, too. Raises BadArgument and BadEndpoint."""
    if address.startswith("memory:"):
        raise BadArgument("memory:// is a store within one process: nobody else is there; give etcd://")
    from hansa.store.opening import open_store

    return open_store(address, environment=tls.environment())


def this_process() -> str:
    """The default name of a process in lines: people find the process by host and number."""
    return f"{gethostname()}:{getpid()}"


# ---- a session ----------------------------------------------------------------------------------------


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


DEFAULTS: Final = SessionOptions()


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


# ---- a group of partitions ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """Where a group is.

    Parameters
    ----------
    store
        Where the store is: etcd://HOST:PORT, with commas between several.
    cluster
        The cluster whose groups are meant.
    """

    store: StoreAddress = STORE
    cluster: ClusterName = "default"

    def open(self, tls: TlsOptions) -> Store:
        """Raises BadArgument and BadEndpoint."""
        return open_shared_store(self.store, tls)

    def group(self, store: Store, name: str) -> Assignments:
        """The group of this name. Raises BadArgument."""
        from hansa.assignment.assignments import Assignments

        return Assignments(store, name, cluster=self.cluster)


HERE: Final = GroupOptions()


async def no_partition(of: Assignments, partition: str) -> NotThere:
    """The error for a partition that is not defined: which there are, and how one is made."""
    defined = await of.partitions()
    if not defined:
        return await no_group(of)
    return NotThere(
        f"group {of.group!r} has no partition {partition!r}.{guess(partition, defined)}"
        f" `hansa assignments {of.group}` lists those that it has"
    )


async def no_group(of: Assignments) -> NotThere:
    """The error for a group without partitions: which groups there are, and how partitions are made."""
    from hansa.assignment.assignments import all_groups

    others = list(await all_groups(of.store, cluster=of.cluster))
    which = f"these groups have some: {first_of(others)}" if others else "no group has any"
    return NotThere(
        f"group {of.group!r} of cluster {of.cluster!r} has no partitions, {which}.{guess(of.group, others)}"
        f" `hansa assignments define {of.group} --partitions 12` defines some"
    )


def first_of(names: Sequence[str]) -> str:
    """Some names; of very many the first ones."""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
