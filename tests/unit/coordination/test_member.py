"""What a node tells of itself, as bytes and back."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.coordination.member import SAID, MemberStatus, NodeInfo, NodeRecord
from hansa.coordination.roster import Suspicion
from hansa.errors import BadArgument, BadRecord
from hansa.limits import NODE_RECORD_BYTES_MAX

NODE = NodeInfo(
    id="worker-1",
    host="10.0.0.7",
    port=7400,
    roles=frozenset({"handler", "sink"}),
    zone="east",
    version="1.2",
    metadata={"disk": "ssd"},
    status=MemberStatus.DRAINING,
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="/"), min_size=1, max_size=20
)


@pytest.mark.spec("CRD-05")
def test_a_node_is_written_as_plain_json() -> None:
    assert json.loads(NODE.encode()) == {
        "id": "worker-1",
        "host": "10.0.0.7",
        "port": 7400,
        "roles": ["handler", "sink"],
        "zone": "east",
        "version": "1.2",
        "metadata": {"disk": "ssd"},
        "status": "DRAINING",
    }
    record = NodeRecord(info=NODE, incarnation=7, joined_at=12.5, reason="joined")
    assert json.loads(record.encode()) == json.loads(NODE.encode()) | {
        "incarnation": 7,
        "joinedAt": 12.5,
        "reason": "joined",
    }
    assert NodeRecord.decode(record.encode()) == record


@given(
    st.builds(
        NodeInfo,
        id=NAMES,
        host=TEXTS,
        port=st.integers(0, 65_535),
        roles=st.frozensets(TEXTS, max_size=4),
        zone=TEXTS,
        version=TEXTS,
        metadata=st.dictionaries(TEXTS, TEXTS, max_size=4),
        status=st.sampled_from(MemberStatus),
    )
)
def test_what_was_written_is_read_back(node: NodeInfo) -> None:
    assert NodeInfo.decode(node.encode()) == node


@given(st.binary(max_size=60) | st.from_regex(rb'\{"id":"a",[a-z":{}\[\]0-9,]{0,40}', fullmatch=True))
def test_nothing_but_bad_record_is_raised_for_bytes_that_somebody_wrote(value: bytes) -> None:
    for decode in (NodeInfo.decode, NodeRecord.decode, Suspicion.decode):
        try:
            decode(value)
        except BadRecord:
            continue


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"id":""}',
        b'{"id":"a/b"}',
        b'{"id":7}',
        b'{"id":"a","port":70000}',
        b'{"id":"a","port":true}',
        b'{"id":"a","port":"1"}',
        b'{"id":"a","roles":"x"}',
        b'{"id":"a","roles":[1]}',
        b'{"id":"a","roles":[[]]}',
        b'{"id":"a","metadata":[]}',
        b'{"id":"a","metadata":{"k":1}}',
        b'{"id":"a","status":"UPP"}',
        b'{"id":"a","status":3}',
        b'{"id":"a","host":null}',
        b"[" * 100_000,
    ],
)
def test_a_bad_record_is_refused(value: bytes) -> None:
    with pytest.raises(BadRecord):
        NodeInfo.decode(value)


@pytest.mark.parametrize("field", ['"incarnation":"1"', '"joinedAt":null', '"joinedAt":NaN', '"reason":1'])
def test_a_record_with_a_bad_field_of_its_own_is_refused(field: str) -> None:
    with pytest.raises(BadRecord):
        NodeRecord.decode(b'{"id":"a",' + field.encode() + b"}")


@pytest.mark.parametrize("status", [MemberStatus.SUSPECT, MemberStatus.DOWN])
def test_nobody_says_of_itself_that_it_is_suspected_or_down(status: MemberStatus) -> None:
    with pytest.raises(BadRecord, match="says of itself"):
        NodeRecord.decode(replace(NODE, status=status).encode())
    assert status not in SAID


def test_fields_of_newer_versions_are_ignored_and_missing_ones_have_defaults() -> None:
    assert NodeInfo.decode(b'{"id":"a","moons":3}') == NodeInfo(id="a")


def test_arguments_that_cannot_be_written_are_refused() -> None:
    for wrong in (
        {"id": ""},
        {"id": "a/b"},
        {"port": -1},
        {"host": None},
        {"roles": "worker"},
        {"metadata": {"a": 1}},
    ):
        with pytest.raises(BadArgument):
            NodeInfo(**({"id": "a"} | wrong))
    with pytest.raises(BadArgument, match="at most"):
        NodeInfo(id="a", zone="x" * NODE_RECORD_BYTES_MAX).encode()
    with pytest.raises(BadArgument, match="JSON"):
        NodeInfo(id="a", zone="\ud800").encode()


def test_a_node_is_a_value() -> None:
    metadata = {"a": "1"}
    node = NodeInfo(id="a", metadata=metadata)
    metadata["a"] = "2"
    assert dict(node.metadata) == {"a": "1"}
    assert hash(node) == hash(NodeInfo(id="a"))
    with pytest.raises(TypeError):
        node.metadata["b"] = ""  # type: ignore[index]
    assert NodeInfo(id="a", host="::1", port=7).address == "[::1]:7"
    assert NODE.address == "10.0.0.7:7400"
    assert NodeInfo(id="a").address == ""
