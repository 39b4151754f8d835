"""Options of the commands for groups of partitions, and their errors for missing groups and partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hansa.assignment.assignments import Assignments, all_groups
from hansa.cli.arguments import guess
from hansa.cli.registry_options import TlsOptions
from hansa.cli.session_options import STORE, ClusterName, StoreAddress, open_shared_store
from hansa.errors import NotThere
from hansa.store.store import Store

NAMED_MAX: Final = 8


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
    others = list(await all_groups(of.store, cluster=of.cluster))
    which = f"these groups have some: {named(others)}" if others else "no group has any"
    return NotThere(
        f"group {of.group!r} of cluster {of.cluster!r} has no partitions, {which}.{guess(of.group, others)}"
        f" `hansa assignments define {of.group} --partitions 12` defines some"
    )


def named(names: list[str]) -> str:
    """Some names; of very many the first ones."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
