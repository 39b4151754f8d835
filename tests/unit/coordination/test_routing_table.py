"""The routing table as a value and as JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.coordination.routing_table import RouteEntry, RoutingTable
from hansa.errors import BadArgument, BadRecord

ENTRY = RouteEntry(
    partition_id="p1",
    key_range_start="a",
    key_range_end="m",
    node_id="n1",
    node_address="10.0.0.1:7400",
    node_status=2,
)


@pytest.mark.spec("CRD-04")
def test_the_names_in_the_store_are_those_of_the_specification() -> None:
    assert json.loads(RoutingTable(version=3, entries=(ENTRY,)).encode()) == {
        "version": 3,
        "entries": [
            {
                "partitionId": "p1",
                "keyRangeStart": "a",
                "keyRangeEnd": "m",
                "nodeId": "n1",
                "nodeAddress": "10.0.0.1:7400",
                "nodeStatus": 2,
            }
        ],
    }


def test_a_table_is_read_back_with_its_revision() -> None:
    table = RoutingTable(version=3, entries=(ENTRY, RouteEntry(partition_id="p2")))
    found = RoutingTable.decode(table.encode(), revision=17)
    assert (found, found.revision, table.revision) == (table, 17, 0)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":-1}',
        b'{"version":true}',
        b'{"version":1,"entries":{}}',
        b'{"version":1,"entries":[1]}',
        b'{"version":1,"entries":[{}]}',
        b'{"version":1,"entries":[{"partitionId":""}]}',
        b'{"version":1,"entries":[{"partitionId":"p","nodeStatus":"UP"}]}',
        b'{"version":1,"entries":[{"partitionId":"p","nodeId":null}]}',
        b'{"version":1,"entries":[{"partitionId":"p","keyRangeStart":"b","keyRangeEnd":"a"}]}',
        b'{"version":1,"entries":[{"partitionId":"p"},{"partitionId":"p"}]}',
    ],
)
def test_what_is_no_table_is_refused(value: bytes) -> None:
    with pytest.raises(BadRecord):
        RoutingTable.decode(value)


@given(st.binary(max_size=60) | st.from_regex(rb'\{"version":1,"entries":[a-z":{}\[\]0-9,]{0,40}'))
def test_nothing_but_bad_record_is_raised_for_bytes_that_somebody_wrote(value: bytes) -> None:
    try:
        RoutingTable.decode(value)
    except BadRecord:
        return


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(BadArgument, match="twice"):
        RoutingTable(version=1, entries=(ENTRY, ENTRY))
    with pytest.raises(BadArgument, match="before it begins"):
        RouteEntry(partition_id="p", key_range_start="b", key_range_end="b")
    with pytest.raises(BadArgument, match="UTF-8"):
        RoutingTable(version=1, entries=(RouteEntry(partition_id="\ud800"),)).encode()
