"""Every command of `hansa`: its words, the function behind it, and under which heading help lists it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

SERVICES: Final = "Services"
TOPICS: Final = "Topics"
COORDINATION: Final = "Locks, leaders and members"
STORES: Final = "Stores"

# By name, so that only the command that is asked for is loaded. In the order in which help lists them.
COMMANDS: Final = {
    "demo": ("hansa.cli.demo_command:demo", None),
    "registry": ("hansa.cli.registry_command:registry", SERVICES),
    "provide": ("hansa.cli.provide_command:provide", SERVICES),
    "services": ("hansa.cli.services_command:services", SERVICES),
    "call": ("hansa.cli.call_command:call", SERVICES),
    "topics": ("hansa.cli.topics_command:topics", TOPICS),
    "publish": ("hansa.cli.publish_command:publish", TOPICS),
    "subscribe": ("hansa.cli.subscribe_command:subscribe", TOPICS),
    "lock": ("hansa.cli.lock_command:lock", COORDINATION),
    "lead": ("hansa.cli.lead_command:lead", COORDINATION),
    "members": ("hansa.cli.members_command:members", COORDINATION),
    "store": ("hansa.cli.store_command:store", STORES),
    "raft start": ("hansa.cli.raft_command:start", None),
    "raft join": ("hansa.cli.raft_command:join", None),
    "raft leave": ("hansa.cli.raft_command:leave", None),
    "raft approve": ("hansa.cli.raft_command:approve", None),
    "raft refuse": ("hansa.cli.raft_command:refuse", None),
    "raft approval": ("hansa.cli.raft_command:approval", None),
    "raft status": ("hansa.cli.raft_command:status", None),
}
# Commands of commands, with what they have in common; help lists them last.
FAMILIES: Final = {
    "raft": (
        "Raft groups: a store that several machines keep together, without an etcd of your own to run.",
        STORES,
    )
}


def load(name: str) -> Callable[..., int]:
    """The function of a command."""
    module, _, function = COMMANDS[name][0].partition(":")
    found: Callable[..., int] = getattr(import_module(module), function)
    return found


def named(typed: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The command that the first words name, and the words behind its name."""
    for count in (1, 2):
        name = " ".join(typed[:count])
        if name in COMMANDS:
            return name, typed[count:]
    return None
