"""The command line of a member, and what etcd may not read from the environment."""

import pytest

from hansa.errors import BadArgument
from hansa.store.raft.member_measures import Measures, read_measures
from hansa.store.raft.member_settings import (
    MemberSettings,
    RaftTimings,
    arguments,
    environment,
    listening,
    read_listen_host,
)

SETTINGS = MemberSettings(
    program="/bin/etcd",
    name="n1",
    folder="data",
    token="hansa-default-orders",
    peer_address="host-a:2380",
    client_address="host-a:2379",
    initial_cluster={"n1": "host-a:2380", "n2": "host-b:2380"},
    is_new_group=True,
)


def test_the_arguments_say_who_it_is_and_who_the_others_are() -> None:
    line = arguments(SETTINGS)
    assert line[0] == "/bin/etcd"
    assert "--initial-cluster=n1=http://host-a:2380,n2=http://host-b:2380" in line
    assert "--initial-cluster-state=new" in line
    assert "--listen-peer-urls=http://0.0.0.0:2380" in line
    assert "--initial-advertise-peer-urls=http://host-a:2380" in line
    assert "--strict-reconfig-check=true" in line


@pytest.mark.parametrize(
    ("address", "given", "bound"),
    [
        ("host:1", "", "0.0.0.0:1"),
        ("localhost:1", "", "127.0.0.1:1"),
        ("192.0.2.1:1", "", "192.0.2.1:1"),
        ("[::1]:1", "", "[::1]:1"),
        ("192.0.2.1:1", "10.0.0.1", "10.0.0.1:1"),
        ("host:1", "::", "[::]:1"),
    ],
)
def test_it_listens_at_numbers_only(address: str, given: str, bound: str) -> None:
    assert listening(address, given) == bound


@pytest.mark.parametrize(("text", "read"), [("", ""), ("0.0.0.0", "0.0.0.0"), ("[::]", "::"), ("::1", "::1")])
def test_an_ip_to_listen_at_is_read(text: str, read: str) -> None:
    assert read_listen_host(text) == read


@pytest.mark.parametrize("text", ["host-a", "localhost", "10.0.0.1:2380", "*"])
def test_what_etcd_cannot_listen_at_is_refused(text: str) -> None:
    with pytest.raises(BadArgument, match="give an IP of this machine"):
        read_listen_host(text)


def test_etcd_reads_nothing_from_the_environment_of_the_program() -> None:
    env = {"PATH": "/bin", "ETCD_NAME": "other", "ETCD_DATA_DIR": "/x", "ETCD_UNSUPPORTED_ARCH": "arm64"}
    assert environment(env) == {"PATH": "/bin", "ETCD_UNSUPPORTED_ARCH": "arm64"}


@pytest.mark.parametrize(
    ("heartbeat_ms", "election_ms", "snapshot_count"),
    [(5, 1000, 1), (100, 400, 1), (100, 60_000, 1), (100, 1000, 0)],
)
def test_a_rhythm_that_no_group_could_keep_is_refused(
    heartbeat_ms: int, election_ms: int, snapshot_count: int
) -> None:
    with pytest.raises(BadArgument):
        RaftTimings(heartbeat_ms=heartbeat_ms, election_ms=election_ms, snapshot_count=snapshot_count)


def test_measures_are_summed_over_their_labels_and_the_rest_is_passed_over() -> None:
    page = "\n".join(
        [
            "HTTP/1.0 200 OK",
            "# HELP etcd_debugging_snap_save_total_duration_seconds The total latency",
            "etcd_debugging_snap_save_total_duration_seconds_sum 0.25",
            "etcd_debugging_snap_save_total_duration_seconds_count 2",
            'etcd_debugging_snap_save_total_duration_seconds_bucket{le="0.001"} 1',
            'etcd_network_snapshot_receive_total_duration_seconds_sum{From="a"} 1.5',
            'etcd_network_snapshot_receive_total_duration_seconds_sum{From="b"} 0.5',
            'etcd_network_snapshot_receive_total_duration_seconds_count{From="a"} 1',
            "etcd_debugging_snap_save_total_duration_seconds_sum nonsense",
        ]
    )
    assert read_measures(page) == Measures(
        snapshots_count=2, snapshots_s=0.25, received_count=1, received_s=2.0
    )
    assert read_measures("") == Measures()
