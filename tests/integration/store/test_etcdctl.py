"""The unmodified etcdctl works on `hansa store`, and says the same there as it says on etcd."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd_program import etcd_program
from tests.support.etcd_servers import EtcdGroup
from tests.support.store_process import StoreProcess

RUN_S_MAX = 30.0
# More than any test here makes.
REVISIONS_MAX = 10_000


class Etcdctl:
    """etcdctl on one server. What differs between any two servers, ids above all, is made the same."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._program = str(etcd_program().etcdctl)
        self.lease = ""
        # A store of hansa's begins at the date, and etcd at 1: revisions are told, and asked for, from there.
        self._begin = 0
        told = re.search(r'"revision":(\d+)', self.run("get", "nothing", "-w", "json")[1])
        assert told is not None
        self._begin = int(told[1]) - 1

    def run(self, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """A command: its status, its output, and the last line of its complaint."""
        done = subprocess.run(
            self._command(arguments),
            input=given,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        granted = re.match(r"lease ([0-9a-f]+) granted", done.stdout)
        if granted:
            self.lease = granted[1]
        complaint = done.stderr.strip().splitlines()[-1:]
        return done.returncode, self._alike(done.stdout), self._alike("".join(complaint))

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "ETCDCTL_API": "3"},
        )

    def lines(self, count: int, *arguments: str) -> list[str]:
        """The first lines that a command which does not end by itself writes."""
        process = self.begin(*arguments)
        try:
            return read_lines(process, count)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=RUN_S_MAX)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        words = [self.lease if word == "LEASE" else word for word in arguments]
        if words[0] == "compaction":
            words[1] = str(self._begin + int(words[1]))
        words = [
            re.sub(r"(?<=--rev=)\d+", lambda found: str(self._begin + int(found[0])), word) for word in words
        ]
        return [self._program, f"--endpoints={self._address}", *words]

    def _alike(self, text: str) -> str:
        if self.lease:
            text = text.replace(self.lease, "LEASE")
        # What is left of a lease is a matter of the moment.
        text = re.sub(r"remaining\(\d+s\)", "remaining(...)", text)
        text = re.sub(r'"(cluster_id|member_id|raft_term)":\d+,?', "", text)
        text = re.sub(r'"(ClusterID|MemberID|RaftTerm)" : \d+', "", text)
        text = re.sub(r"\d+", self._from_begin, text)
        return text.replace(self._address, "ADDRESS")

    def _from_begin(self, found: re.Match[str]) -> str:
        number = int(found[0])
        is_revision = self._begin and 0 <= number - self._begin < REVISIONS_MAX
        return str(number - self._begin) if is_revision else found[0]


def read_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Etcdctl, Etcdctl]]:
    """On a new store of hansa's, and on a new etcd."""
    with StoreProcess(tmp_path / "data") as store, EtcdGroup(1) as group:
        yield Etcdctl(store.address), Etcdctl(group.endpoints[0].removeprefix("http://"))


SCRIPT: tuple[tuple[str, ...], ...] = (
    ("get", "nothing"),
    ("put", "a/1", "one"),
    ("put", "a/2", "two"),
    ("put", "b", "three", "--prev-kv"),
    ("put", "b", "four", "--prev-kv"),
    ("put", "b", "--ignore-value"),
    ("put", "nothing", "--ignore-value"),
    ("put", "", "x"),
    ("get", "b"),
    ("get", "b", "--rev=4"),
    ("get", "b", "--rev=99"),
    ("get", "--prefix", "a/"),
    ("get", "a", "b"),
    ("get", "--from-key", "a/2"),
    ("get", "--prefix", "", "--keys-only"),
    ("get", "--prefix", "", "--limit=2", "-w", "json"),
    ("get", "--prefix", "", "--order=DESCEND", "--sort-by=MODIFY"),
    ("get", "--prefix", "", "--order=ASCEND", "--sort-by=VALUE", "--print-value-only"),
    ("get", "--prefix", "", "--sort-by=VERSION", "-w", "json"),
    ("get", "--prefix", "a/", "-w", "fields"),
    ("del", "a/1", "--prev-kv"),
    ("del", "a/1"),
    ("put", "a/3", "x"),
    ("del", "--prefix", "a/", "--prev-kv", "-w", "json"),
    ("put", "k", "x", "--lease=1234"),
    ("lease", "grant", "100"),
    ("put", "hung/1", "x", "--lease=LEASE"),
    ("put", "hung/2", "y", "--lease=LEASE"),
    ("put", "hung/2", "z", "--ignore-lease", "--prev-kv", "-w", "json"),
    ("get", "hung/2", "-w", "json"),
    ("lease", "timetolive", "LEASE", "--keys"),
    ("lease", "timetolive", "LEASE"),
    ("lease", "timetolive", "abcd"),
    ("lease", "list"),
    ("lease", "keep-alive", "--once", "LEASE"),
    ("lease", "keep-alive", "--once", "abcd"),
    ("lease", "revoke", "LEASE"),
    ("lease", "revoke", "LEASE"),
    ("get", "--prefix", "hung/"),
    ("lease", "grant", "99999999999"),
    ("compaction", "6"),
    ("compaction", "6"),
    ("compaction", "999"),
    ("get", "b", "--rev=5"),
    ("get", "b", "--rev=6"),
    ("get", "b", "--rev=7", "-w", "json"),
)

# Conditions, then what to do if they hold, then what else; an empty line ends each.
TRANSACTIONS = (
    'value("b") = "four"\n\nput t "yes"\nget b\ndel t\n\nput t "no"\n\n',
    'value("b") = "four"\n\nput t "yes"\nget b\n\nput t "no"\n\n',
    'version("t") = "0"\ncreate("b") > "0"\n\nget t\n\nget b\nput else "1"\ndel b\n\n',
    'mod("t") > "1"\nvalue("t") < "z"\nlease("t") = "0"\n\ndel --prefix ""\n\nget t\n\n',
    "\nput same 1\nput same 2\n\n\n",
    "\n\n\n",
)


@pytest.mark.spec("CRD-01")
def test_etcdctl_says_the_same_on_hansa_store_as_on_etcd(both: tuple[Etcdctl, Etcdctl]) -> None:
    ours, theirs = both
    for command in SCRIPT:
        assert ours.run(*command) == theirs.run(*command), command
    for transaction in TRANSACTIONS:
        assert ours.run("txn", given=transaction) == theirs.run("txn", given=transaction), transaction
    everything = ("get", "--prefix", "", "-w", "json")
    assert ours.run(*everything) == theirs.run(*everything)


@pytest.mark.spec("CRD-01")
def test_etcdctl_watches_hansa_store_as_it_watches_etcd(both: tuple[Etcdctl, Etcdctl]) -> None:
    for etcdctl in both:
        etcdctl.run("put", "k/1", "old")
        etcdctl.run("put", "k/1", "new")
        etcdctl.run("txn", given='\nput k/2 "both"\nput k/3 "at once"\n\n\n')
        etcdctl.run("del", "k/1")
        etcdctl.run("compaction", "3")
    ours, theirs = both
    for count, command in (
        (12, ("watch", "--rev=3", "--prefix", "k/")),
        (11, ("watch", "--rev=4", "--prefix", "k/", "--prev-kv")),
        (6, ("watch", "--rev=3", "k/1")),
        (9, ("watch", "--rev=3", "k/1", "k/3")),
        (1, ("watch", "--rev=3", "k/", "--prefix", "-w", "json")),
    ):
        found = ours.lines(count, *command)
        expected = theirs.lines(count, *command)
        assert list(map(ours._alike, found)) == list(map(theirs._alike, expected)), command
    # From a revision that is forgotten: etcdctl ends, and says why.
    forgotten = ("watch", "--rev=2", "k/1")
    status, out, complaint = ours.run(*forgotten)
    assert (status, out, complaint) == theirs.run(*forgotten)
    assert status != 0
    assert "watch is canceled by the server" in complaint


@pytest.mark.spec("CRD-09")
def test_etcdctl_locks_and_elects_on_hansa_store(both: tuple[Etcdctl, Etcdctl]) -> None:
    for etcdctl in both:
        assert etcdctl.run("lock", "docks", "--", "echo", "mine")[:2] == (0, "mine\n")
        processes = [holder := etcdctl.begin("lock", "docks")]
        try:
            (key,) = read_lines(holder, 1)
            assert key.startswith("docks/")
            processes.append(waiting := etcdctl.begin("lock", "docks", "--", "echo", "at last"))
            while (found := etcdctl.run("get", "--prefix", "docks/", "--keys-only")[1]).count("docks/") < 2:
                assert waiting.poll() is None, found
            assert waiting.poll() is None
            holder.send_signal(signal.SIGINT)
            assert read_lines(waiting, 1) == ["at last"]
            processes.append(leader := etcdctl.begin("elect", "harbour", "anna"))
            key, value = read_lines(leader, 2)
            assert (key.partition("/")[0], value) == ("harbour", "anna")
            assert etcdctl.lines(2, "elect", "-l", "harbour") == [key, "anna"]
        finally:
            for process in processes:
                process.kill()
                process.communicate(timeout=RUN_S_MAX)


def test_etcdctl_asks_hansa_store_who_and_how_it_is(tmp_path: Path) -> None:
    with StoreProcess(tmp_path / "data", "--no-fsync") as store:
        etcdctl = Etcdctl(store.address)
        etcdctl.run("put", "k", "v")
        status, out, _ = etcdctl.run("member", "list")
        assert status == 0
        member, *facts = out.strip().split(", ")
        assert facts == ["started", "hansa", "", "http://ADDRESS", "false"]
        status, out, _ = etcdctl.run("endpoint", "status")
        assert out.split(", ")[:3] == ["ADDRESS", member, "3.4.0"]
        assert etcdctl.run("endpoint", "health")[0] == 0
        assert etcdctl.run("defrag")[0] == 0
        assert "unimplemented" in etcdctl.run("user", "list")[2].lower()
        assert store.stop()[0] == 0
    assert list((tmp_path / "data").glob("snapshot-*.snap"))
