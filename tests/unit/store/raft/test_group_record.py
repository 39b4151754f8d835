"""Names, addresses and the record of a group."""

from dataclasses import replace

import pytest

from hansa.errors import BadArgument, BadEndpoint
from hansa.store.raft.group_record import (
    Approval,
    Charter,
    GroupRecord,
    PeerInfo,
    RaftKeys,
    check_name,
    check_peer,
    decode,
    encode,
    read_address,
    read_founders,
)

PEER = PeerInfo(name="n1", peer_address="host:1", client_address="host:2", join_address="host:3")


def test_a_record_has_each_peer_once_and_counts_its_changes() -> None:
    record = GroupRecord(app="orders").with_peer(PEER).with_peer(replace(PEER, name="n0"))
    moved = record.with_peer(replace(PEER, zone="north"))
    assert [peer.name for peer in moved.peers] == ["n0", "n1"]
    assert moved.peer("n1") == replace(PEER, zone="north")
    assert moved.version == 3
    assert moved.without_peer("n1").peer("n1") is None
    assert moved.without_peer("n1").version == 4


def test_keys_stand_where_the_cluster_expects_them() -> None:
    keys = RaftKeys("default", "orders")
    assert keys.group == b"/hansa/default/raft/groups/orders"
    assert keys.metadata == b"/hansa/default/raft/metadata/orders"
    assert keys.request("n4") == b"/hansa/default/join-requests/orders/n4"


@pytest.mark.spec("CRD-16")
def test_what_holds_for_a_group_is_kept_through_every_change_of_its_peers() -> None:
    charter = Charter(resource_group="north", approval=Approval.MANUAL)
    begun = charter.begun(GroupRecord(app="orders").with_peer(PEER), "c0")
    assert begun.version == 1
    for record in (begun.with_peer(replace(PEER, name="n2")), begun.without_peer("n1")):
        assert (record.group_id, record.resource_group, record.approval) == ("c0", "north", Approval.MANUAL)
        assert decode(GroupRecord, encode(record)) == record
    other = begun.with_approval(Approval.AUTOMATIC)
    assert (other.version, other.approval, other.peers) == (2, Approval.AUTOMATIC, begun.peers)
    assert Charter().begun(GroupRecord(app="orders"), "c0").approval is Approval.AUTOMATIC


def test_a_record_of_an_earlier_version_of_hansa_can_be_read() -> None:
    record = decode(GroupRecord, b'{"app":"orders","peers":[],"version":3}')
    assert (record.version, record.group_id, record.approval) == (3, "", Approval.AUTOMATIC)


def test_the_founders_are_known_to_each_other() -> None:
    assert read_founders("n1", {"n1": "host:0"}) == {"n1": "host:0"}
    with pytest.raises(BadArgument, match="n9 is not among the peers n1"):
        read_founders("n9", {"n1": "host:1"})
    with pytest.raises(BadArgument, match="two peers have one peer address"):
        read_founders("n1", {"n1": "host:1", "n2": "host:1"})
    with pytest.raises(BadArgument, match="at most 7"):
        read_founders("n1", {f"n{n}": f"host:{n}" for n in range(1, 9)})
    with pytest.raises(BadEndpoint):
        read_founders("n1", {"n1": "host:0", "n2": "host:1"})


@pytest.mark.parametrize("name", ["", "a/b", "-x", ".x", "a b", "a\n", "n,1", "n=1", "x" * 65, "é"])
def test_a_name_that_would_break_a_key_or_an_argument_is_refused(name: str) -> None:
    with pytest.raises(BadArgument):
        check_name("peer", name)


@pytest.mark.parametrize("text", ["host", "host:0", "*:1", "0.0.0.0:1", ":1", "host:99999", "a b:1"])
def test_an_address_that_nobody_can_dial_is_refused(text: str) -> None:
    with pytest.raises(BadEndpoint):
        read_address("the peer address", text)


def test_an_address_has_one_spelling() -> None:
    assert read_address("x", "HOST:1") == read_address("x", "tcp://host:1") == "host:1"
    assert read_address("x", "[::1]:1") == "[::1]:1"
    assert read_address("x", "host:0", any_port=True) == "host:0"


def test_a_peer_has_three_addresses_and_little_to_say() -> None:
    assert check_peer(PEER) is PEER
    with pytest.raises(BadArgument, match="not three"):
        check_peer(replace(PEER, client_address="host:1"))
    with pytest.raises(BadArgument, match="more than"):
        check_peer(replace(PEER, metadata={"note": "x" * 20_000}))
