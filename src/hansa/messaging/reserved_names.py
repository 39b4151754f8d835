"""Service names that are not for providers."""

from __future__ import annotations

from typing import Final

NODES: Final = "spot-node"
"""The nodes of topic meshes find each other by it, alone or followed by a dot and a cluster's name."""


def is_reserved(service: str) -> bool:
    """Whether only nodes of a mesh register this name: it, and whatever begins with it and a dot."""
    return f"{service}.".startswith(f"{NODES}.")
