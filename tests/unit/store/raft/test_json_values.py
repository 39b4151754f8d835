"""Records and messages survive JSON, and nothing else passes as one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadRecord
from hansa.store.raft.group_record import GroupRecord, JoinRecord, JoinState, PeerInfo, decode, encode
from hansa.store.raft.join_messages import JoinAcceptance, JoinAnswer, JoinTicket

TEXT = st.text(max_size=20)
PEERS = st.builds(
    PeerInfo,
    name=TEXT,
    peer_address=TEXT,
    client_address=TEXT,
    join_address=TEXT,
    peer_id=st.integers(0, 2**64 - 1),
    zone=TEXT,
    roles=st.lists(TEXT, max_size=3).map(tuple),
    metadata=st.dictionaries(TEXT, TEXT, max_size=3),
)
RECORDS = st.builds(
    JoinRecord, app=TEXT, peer=PEERS, ticket=TEXT, state=st.sampled_from(JoinState), reason=TEXT
)
PEER = PeerInfo(name="n1", peer_address="h:1", client_address="h:2", join_address="h:3")


@given(RECORDS)
def test_a_request_comes_back_as_it_was(record: JoinRecord) -> None:
    assert decode(JoinRecord, encode(record)) == record


@given(st.builds(GroupRecord, app=TEXT, peers=st.lists(PEERS, max_size=3).map(tuple)))
def test_a_group_comes_back_as_it_was(record: GroupRecord) -> None:
    assert decode(GroupRecord, encode(record)) == record


def test_optional_parts_come_back_as_they_were() -> None:
    acceptance = JoinAcceptance(peer_id=1, initial_cluster={"n1": "h:1"}, snapshot_bytes=2, effective_index=3)
    for answer in (
        JoinAnswer(),
        JoinAnswer(acceptance=acceptance),
        JoinAnswer(ticket=JoinTicket(app="a", name="n", ticket="t", timeout_s=1.5)),
    ):
        assert decode(JoinAnswer, encode(answer)) == answer


def test_a_field_of_a_newer_peer_is_passed_over() -> None:
    fields = {**json.loads(encode(PEER)), "colour": "red"}
    assert decode(PeerInfo, json.dumps(fields).encode()) == PEER


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 1),
        ("name", None),
        ("peer_id", "1"),
        ("peer_id", True),
        ("peer_id", 1.5),
        ("roles", "leader"),
        ("roles", [1]),
        ("metadata", []),
        ("metadata", {"a": 1}),
    ],
)
def test_a_field_of_another_kind_is_refused(field: str, value: object) -> None:
    fields = {**json.loads(encode(PEER)), field: value}
    with pytest.raises(BadRecord, match=field):
        decode(PeerInfo, json.dumps(fields).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"{}", b'{"name":"n1"}', b"\xff", b"[" * 100_000])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(BadRecord):
        decode(PeerInfo, data)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    try:
        decode(GroupRecord, data)
    except BadRecord:
        return
