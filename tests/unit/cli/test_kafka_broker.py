"""What a broker is told, what it answers, and why it ended."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from hansa.cli.dev_command import settings_of
from hansa.cli.kafka_broker import (
    METADATA_REQUEST,
    KafkaBroker,
    brokers_in,
    new_cluster_id,
    properties,
    reason,
)
from hansa.cli.kafka_jars import KafkaProgram
from hansa.errors import AddressInUse, BadArgument, HansaError, KafkaRefused, KafkaUnavailable

PROGRAM = KafkaProgram(jars=Path("jars"), java="java")


def test_the_properties_make_one_process_broker_and_controller() -> None:
    said = properties(port=9092, controller_port=9093, data=Path("data"))
    assert said["process.roles"] == "broker,controller"
    assert said["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert said["controller.quorum.voters"] == "1@127.0.0.1:9093"
    assert said["log.dirs"] == "data"


def test_a_setting_of_the_caller_stands_instead_of_the_usual_one() -> None:
    own = {"group.initial.rebalance.delay.ms": "100", "a.b": ""}
    said = properties(port=1, controller_port=2, data=Path(), settings=own)
    assert said["group.initial.rebalance.delay.ms"] == "100"
    assert said["a.b"] == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("listeners", "PLAINTEXT://:1", "listeners is given by hansa"),
        ("node.id", "2", "node.id is given by hansa"),
        ("two words", "", "is no setting of a broker"),
        ("a", "one\nlisteners=other", "is no setting of a broker"),
        ("a", "one\\", "is no setting of a broker"),
    ],
)
def test_a_setting_that_is_not_the_callers_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(BadArgument, match=said):
        KafkaBroker(PROGRAM, settings={name: value})


@pytest.mark.parametrize("port", [-1, 65_536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(BadArgument, match="is no port"):
        KafkaBroker(PROGRAM, port=port)


def test_an_id_of_a_cluster_is_never_taken_for_an_option() -> None:
    assert new_cluster_id(b"\xf8" * 16)[0] != "-"
    assert {len(new_cluster_id()) for _ in range(100)} == {22}
    assert new_cluster_id() != new_cluster_id()


def test_the_request_says_how_long_it_is() -> None:
    assert struct.unpack(">i", METADATA_REQUEST[:4]) == (len(METADATA_REQUEST) - 4,)


def answer(*brokers: tuple[str, int]) -> bytes:
    """As a broker writes it: its correlation id, the brokers, and more."""
    told = [
        struct.pack(f">ih{len(host)}sih", number, len(host), host.encode(), port, -1)
        for number, (host, port) in enumerate(brokers, 1)
    ]
    return struct.pack(">ii", 1, len(brokers)) + b"".join(told) + struct.pack(">ii", 1, 0)


def test_the_brokers_of_an_answer_are_read() -> None:
    assert brokers_in(answer()) == []
    assert brokers_in(answer(("127.0.0.1", 9092), ("b", 1))) == [("127.0.0.1", 9092), ("b", 1)]


@pytest.mark.parametrize(
    "answered",
    [b"", b"HTTP/1.1 400", answer(("a", 1))[:12], b"\x7f" * 8 + b"\xff" * 20],
)
def test_what_is_no_answer_is_refused(answered: bytes) -> None:
    with pytest.raises(ValueError, match=r"no answer|without a host|codec"):
        brokers_in(answered)


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("java.net.BindException: Address already in use", AddressInUse, "port 9092 is taken"),
        ("Failed to acquire lock on file .lock in /d", KafkaRefused, "another broker uses folder"),
        ("java.io.IOException: No space left on device", KafkaUnavailable, "the disk of folder is full"),
        ("java.lang.OutOfMemoryError: Java heap space", KafkaUnavailable, "used up its memory"),
        ("something else", KafkaUnavailable, "something else"),
        ("", KafkaUnavailable, "it is empty"),
    ],
)
def test_the_end_of_a_broker_is_told_by_its_log(said: str, kind: type[HansaError], told: str) -> None:
    error = reason(said, port=9092, folder=Path("folder"))
    assert type(error) is kind
    assert told in str(error)
    assert said in str(error)


async def test_a_port_that_is_taken_is_told_before_anything_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(AddressInUse, match=f"port {port} of 127.0.0.1 cannot be used"):
            await KafkaBroker(PROGRAM, port=port).__aenter__()


async def test_a_folder_that_cannot_be_written_is_told_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KafkaRefused, match=r"cannot keep its data .*choose another folder"):
        await KafkaBroker(PROGRAM, folder=tmp_path / "file" / "data").__aenter__()


async def test_a_java_that_cannot_start_kafka_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho no such class >&2\nexit 1\n")
    java.chmod(0o755)
    broker = KafkaBroker(KafkaProgram(jars=tmp_path, java=str(java)))
    with pytest.raises(KafkaRefused, match="no such class"):
        await broker.__aenter__()
    assert broker.pid is None
    assert not broker.folder.exists()


def test_settings_are_read_from_words() -> None:
    assert settings_of(("a.b=1", "c=x=y", "d=")) == {"a.b": "1", "c": "x=y", "d": ""}
    for words, said in ((("a",), "write it as name=value"), (("=1",), "write it"), (("a=1", "a=2"), "twice")):
        with pytest.raises(BadArgument, match=said):
            settings_of(words)
