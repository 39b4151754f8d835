"""Whom a peer must not even ask to join, and how its request is answered."""

from dataclasses import replace

import pytest

from hansa.store.raft.group_record import Approval, Charter, JoinRecord, JoinState, PeerInfo
from hansa.store.raft.join_messages import AwaitAsk, misfit, verdict
from hansa.store.raft.raft_events import GroupStatus, PeerStatus

HERE = PeerInfo(
    name="n2", peer_address="127.0.0.1:1", client_address="127.0.0.1:2", join_address="127.0.0.1:3"
)
RECORD = JoinRecord(app="orders", peer=replace(HERE, peer_id=5), ticket="t1")
ASK = AwaitAsk(app="orders", name="n2", ticket="t1", wait_s=1.0)


def group_at(*peer_addresses: str, cluster: str = "default") -> GroupStatus:
    peers = [replace(HERE, name=f"n{number}", peer_address=at) for number, at in enumerate(peer_addresses)]
    return GroupStatus(
        app="orders",
        cluster=cluster,
        leader="n0",
        term=2,
        record_version=1,
        peers=tuple(PeerStatus(peer=one, role="follower", is_voter=True, is_healthy=True) for one in peers),
    )


def test_a_peer_of_another_cluster_would_keep_its_records_where_nobody_looks() -> None:
    assert misfit(group_at("127.0.0.1:9"), HERE, "default", Charter()) == ""
    assert "of the cluster 'blue', not of 'default'" in misfit(
        group_at(cluster="blue"), HERE, "default", Charter()
    )


@pytest.mark.parametrize("others", ["host-a:2380", "192.0.2.1:2380", "[fd00::2]:2380"])
def test_a_group_on_other_machines_cannot_reach_this_one_at_loopback(others: str) -> None:
    assert f"the peers at {others} cannot reach it" in misfit(group_at(others), HERE, "default", Charter())
    assert misfit(group_at(others), replace(HERE, peer_address="host-b:2380"), "default", Charter()) == ""


@pytest.mark.parametrize("others", ["127.0.0.1:9", "localhost:9", "[::1]:9"])
def test_a_group_on_this_machine_can(others: str) -> None:
    assert misfit(group_at(others), HERE, "default", Charter()) == ""


@pytest.mark.spec("CRD-16")
def test_a_peer_that_was_given_other_settings_than_the_groups_does_not_ask() -> None:
    group = replace(group_at("127.0.0.1:9"), resource_group="north", approval=Approval.MANUAL)
    for same in (Charter(), Charter(resource_group="north"), Charter(approval=Approval.MANUAL)):
        assert misfit(group, HERE, "default", same) == ""
    south = misfit(group, HERE, "default", Charter(resource_group="south"))
    assert south == "the group has the resource group 'north', not 'south'"
    alone = misfit(group, HERE, "default", Charter(approval=Approval.AUTOMATIC))
    assert alone == "the group has the approval 'manual', not 'automatic'"


def test_a_request_is_answered_by_how_far_it_is() -> None:
    for state in (JoinState.REQUESTED, JoinState.APPROVED, JoinState.ADDING):
        assert verdict(replace(RECORD, state=state), ASK).is_pending
    waiting = verdict(replace(RECORD, state=JoinState.PENDING), ASK)
    assert (waiting.is_pending, waiting.text) == (True, "n2 waits for a person's approval")
    accepted = verdict(replace(RECORD, state=JoinState.SYNCING), ASK).acceptance
    assert accepted is not None
    assert accepted.peer_id == 5
    no = verdict(replace(RECORD, state=JoinState.REFUSED, code="full", reason="no room"), ASK)
    assert (no.code, no.text) == ("full", "no room")
    assert verdict(None, ASK).code == "expired"
    assert verdict(replace(RECORD, ticket="t2"), ASK).code == "expired"
