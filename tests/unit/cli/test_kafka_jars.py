"""Which Java and which Maven fetch and run Kafka, and what is said when they do not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hansa.cli import kafka_jars
from hansa.cli.kafka_jars import (
    VERSION,
    KafkaProgram,
    cache_folder,
    check_java,
    failure,
    fetched_jars,
    find_java,
    find_maven,
    get_kafka,
    log_tail,
    maven_errors,
)
from hansa.errors import KafkaRefused, KafkaUnavailable

SCRIPT_S_MAX = 30.0
# As mvn: it copies into `jars` of where it stands.
COPIES = "mkdir jars; touch " + " ".join(f"jars/{name}" for name in kafka_jars._JARS_NEEDED)


def program(folder: Path, name: str, script: str) -> Path:
    """A program that does what a shell script says."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the PATH, ahead of all others, with a Java that is new enough."""
    folder = tmp_path / "bin"
    program(folder, "java", "echo 'openjdk version \"17.0.15\"' >&2")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.defpath}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.mark.parametrize(
    "printed", ['openjdk version "17.0.15" 2025-04-15', 'java version "21"', 'openjdk version "25-ea" 2025']
)
def test_a_java_that_is_new_enough_is_taken(printed: str) -> None:
    check_java(printed, "java")


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ('java version "1.8.0_452"', "is Java 8, and Kafka .* needs 17 or newer; install"),
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ("command not found", "does not say which Java it is, but 'command not found'"),
        ("", "does not say which Java it is"),
    ],
)
def test_another_java_is_refused_with_what_to_install(printed: str, said: str) -> None:
    with pytest.raises(KafkaRefused, match=said):
        check_java(printed, "java")


async def test_the_java_of_java_home_comes_before_the_one_on_the_path(programs: Path, tmp_path: Path) -> None:
    old = program(tmp_path / "old" / "bin", "java", "echo 'openjdk version \"11\"' >&2")
    assert await find_java() == str(programs / "java")
    with pytest.raises(KafkaRefused, match="is Java 11"):
        await find_java({**os.environ, "JAVA_HOME": str(old.parents[1])})


async def test_a_machine_without_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(KafkaRefused, match=r"no java on the PATH; install one .*openjdk-17"):
        await find_java({"PATH": str(tmp_path)})
    with pytest.raises(KafkaRefused, match="no java in JAVA_HOME=/nowhere"):
        await find_java({"PATH": os.defpath, "JAVA_HOME": "/nowhere"})


def test_a_machine_without_maven_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(KafkaRefused, match=r"no mvn on the PATH; install it .*apt install maven"):
        find_maven({"PATH": str(tmp_path)})


async def test_maven_is_not_needed_once_kafka_is_fetched(programs: Path, tmp_path: Path) -> None:
    (tmp_path / f"kafka-{VERSION}").mkdir()
    found = await get_kafka(tmp_path)
    assert found.command("kafka.Kafka", "a", options=["-Xmx1g"]) == [
        *(str(programs / "java"), "-Xmx1g", "-cp", f"{tmp_path}/kafka-{VERSION}/*", "kafka.Kafka", "a")
    ]


async def test_what_was_fetched_is_moved_into_place_whole(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", COPIES)
    found = await get_kafka(tmp_path / "cache")
    assert found == KafkaProgram(
        jars=tmp_path / "cache" / f"kafka-{VERSION}", java=str(programs / "java"), version=VERSION
    )
    assert {path.name for path in found.jars.iterdir()} == set(kafka_jars._JARS_NEEDED)
    assert not (tmp_path / "cache" / "part").exists()


async def test_a_fetch_that_was_broken_off_is_not_taken_for_whole(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", f"mkdir jars; touch jars/{kafka_jars._JARS_NEEDED[0]}; touch ../begun; sleep 60")
    fetch = asyncio.create_task(get_kafka(tmp_path))
    while not (tmp_path / "begun").exists():
        await asyncio.sleep(0.01)
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    assert fetched_jars(tmp_path) is None
    # And the next one goes on.
    program(programs, "mvn", COPIES)
    assert await get_kafka(tmp_path)


async def test_a_fetch_that_lacks_a_jar_is_not_taken_for_whole(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", "mkdir jars; touch jars/other.jar")
    with pytest.raises(KafkaUnavailable, match=r"whole \(kafka_2\.13-.* are missing\)"):
        await get_kafka(tmp_path)
    assert fetched_jars(tmp_path) is None


async def test_a_fetch_that_fails_tells_the_last_words_of_maven(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", "echo '[INFO] hm'; echo '[ERROR] Unknown host'; echo '[ERROR] Help 1'; exit 1")
    with pytest.raises(KafkaUnavailable, match=r"is there a network\?.* Its last words: Unknown host$"):
        await get_kafka(tmp_path)


async def test_two_who_need_kafka_at_once_fetch_it_once(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", f"echo 1 >> ../count; sleep 0.3; {COPIES}")
    progress: list[int] = []
    one, two = await asyncio.gather(get_kafka(tmp_path, progress.append), get_kafka(tmp_path))
    assert one == two
    assert (tmp_path / "count").read_text() == "1\n"
    assert progress


async def test_a_folder_that_cannot_be_written_is_refused(programs: Path, tmp_path: Path) -> None:
    program(programs, "mvn", COPIES)
    (tmp_path / "file").touch()
    with pytest.raises(KafkaRefused, match=r"cannot be kept in .*choose another folder"):
        await get_kafka(tmp_path / "file" / "cache")


def test_a_fetch_that_takes_too_long_says_that_it_goes_on_later() -> None:
    assert "within 900 s, and was ended; try again, it goes on" in failure(None, ["a.jar"], "")


def test_the_reason_of_maven_is_its_first_line_of_an_error() -> None:
    assert maven_errors("[ERROR] \n[ERROR] no route\n[ERROR] To see the full stack") == "no route"
    assert maven_errors("sh: not found\n") == "sh: not found"
    assert maven_errors("") == "(it said nothing)"


def test_the_cache_is_where_the_user_keeps_caches(tmp_path: Path) -> None:
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "hansa" / "kafka"
    assert cache_folder({"XDG_CACHE_HOME": "not/absolute"}) == Path.home() / ".cache" / "hansa" / "kafka"
    assert cache_folder({}) == Path.home() / ".cache" / "hansa" / "kafka"


def test_the_end_of_a_log_is_told_without_stacks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n" + "x" * 9000 + "\nERROR no\n\tat kafka.Kafka\n\nlast\n")
    assert log_tail(log).splitlines()[-2:] == ["ERROR no", "last"]
    assert "first" not in log_tail(log)
    assert "cannot be read" in log_tail(tmp_path / "none")
