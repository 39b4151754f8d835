"""The registry cluster finds what it is there to find: each test plants one bug, which is caught."""

import dataclasses
from typing import Any

import pytest

from hansa.services.discovery.directory import Directory
from hansa.services.gateway.links import ServiceLink
from hansa.services.gateway.pool import PoolMember
from hansa.services.gateway.switchboard import Switchboard
from hansa.services.gateway.tries import RetryPolicy
from hansa.services.provider.handlers import HandlerRunner
from hansa.services.registry import catalogue
from hansa.services.registry.announcer import Announcer
from hansa.services.registry.catalogue import Holdings
from hansa.services.registry.entries import NEVER, newest_by_id
from hansa.testing.scenarios import RegistryCluster
from tests.support.planted_bugs import first_failure

SEEDS_MAX = 60


def broken_invariant() -> str:
    return first_failure(RegistryCluster, range(SEEDS_MAX)).failure.broken.invariant


def test_a_registry_that_lets_nothing_expire_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holdings, "overdue", lambda self, now: None)
    monkeypatch.setattr(Holdings, "deadline", lambda self: None)
    assert broken_invariant() == "all is well 120 s after the last fault"


def test_a_registry_that_ignores_tombstones_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "newest_by_id", lambda claims, dead_epoch: newest_by_id(claims, NEVER))
    assert broken_invariant() in ("nothing buried is listed", "what was removed does not come back")


def test_a_registry_that_numbers_its_lists_anew_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Announcer.__init__

    def forgetful(self: Announcer, *args: Any, **settings: Any) -> None:
        original(self, *args, **{**settings, "list_seq": 0})

    monkeypatch.setattr(Announcer, "__init__", forgetful)
    assert broken_invariant() == "the numbers of lists grow"


def test_a_gateway_that_takes_what_is_in_doubt_for_unsent_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Switchboard.member_lost

    def hopeful(self: Switchboard, link: ServiceLink, member: PoolMember, event: Any) -> None:
        original(self, link, member, dataclasses.replace(event, unsent_count=member.posted_count))

    monkeypatch.setattr(Switchboard, "member_lost", hopeful)
    assert broken_invariant() in (
        "nothing is carried out twice",
        "what was not started is not carried out",
    )


def test_a_gateway_that_leaves_before_the_replies_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ServiceLink.settled

    def hasty(self: ServiceLink, member: PoolMember) -> None:
        if member.leaving:
            member.in_flight_count = 0
        original(self, member)

    monkeypatch.setattr(ServiceLink, "settled", hasty)
    assert broken_invariant() == "no request fails that has a living provider"


def test_a_discovery_that_applies_older_lists_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Directory.hear

    def repetitive(self: Directory, told: Any, *, source: bytes, now: float) -> Any:
        heard = self.__dict__.setdefault("planted", {}).setdefault(told.registry_id, [])
        heard.append(told)
        return original(self, told if len(heard) % 5 else heard[-3], source=source, now=now)

    monkeypatch.setattr(Directory, "hear", repetitive)
    monkeypatch.setattr(Directory, "_least_seq", lambda self, registry_id, now: 0)
    assert broken_invariant() == "a discovery goes by the newest list"


def test_a_gateway_that_waits_for_providers_that_stand_still_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetryPolicy, "allows_beside", lambda self, tries_count: False)
    assert broken_invariant() == "no idempotent request fails that has a well provider"


def test_a_provider_that_drops_a_reply_and_keeps_the_connection_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HandlerRunner, "_part_from", lambda self, peer: None)
    assert broken_invariant() == "all is well 120 s after the last fault"
