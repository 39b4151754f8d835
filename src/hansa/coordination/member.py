"""A member of a cluster, as one process sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hansa.coordination.node_info import MemberStatus, NodeInfo

__all__ = ["Member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node, how it is, and since when.

    `info` is what it says of itself; `status` is what is seen of it, and `reason` why. `incarnation` tells
    one stay from the next. `since` is the wall time of the last change of status, for display. `lease` is
    what its record hangs on.
    """

    info: NodeInfo
    status: MemberStatus
    incarnation: int
    reason: str = ""
    since: float = 0.0
    lease: int = 0

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def address(self) -> str:
        """`host:port`; empty without a host."""
        return self.info.address

    @property
    def roles(self) -> frozenset[str]:
        return self.info.roles

    @property
    def zone(self) -> str:
        return self.info.zone

    @property
    def version(self) -> str:
        return self.info.version

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.info.metadata

    @property
    def is_here(self) -> bool:
        """Neither down nor left."""
        return self.status.is_here

    def to_object(self) -> dict[str, Any]:
        """As JSON is made of it."""
        return self.info.to_object() | {
            "status": self.status.value,
            "incarnation": self.incarnation,
            "reason": self.reason,
            "since": self.since,
        }
