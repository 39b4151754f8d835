"""Two blocking nodes of a topic mesh, with a registry, on real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from hansa import sync
from tests.support.sync_stage import WITHIN_S

ANY = "tcp://127.0.0.1:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Two nodes that know each other, each with a discovery of its own."""

    registry: sync.Registry
    discovery: sync.Discovery
    left: sync.SpotNode
    right: sync.SpotNode


@contextmanager
def opened(**settings: Any) -> Iterator[Mesh]:
    with ExitStack() as stack:
        registry = stack.enter_context(sync.Registry(ANY, ANY))
        discoveries, nodes = [], []
        for name in ("left", "right"):
            discovery = stack.enter_context(sync.Discovery([str(registry.pub)]))
            node = sync.SpotNode(ANY, [str(registry.router)], discovery=discovery, name=name, **settings)
            stack.enter_context(node)
            node.registered(WITHIN_S)
            discoveries.append(discovery)
            nodes.append(node)
        left, right = nodes
        joined = left.events()
        while left.peers != (right.routing_id,):
            joined.get(WITHIN_S)
        for node in nodes:
            node.in_step(WITHIN_S)
        yield Mesh(registry=registry, discovery=discoveries[0], left=left, right=right)
