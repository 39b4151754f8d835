"""A raft group for people."""

from dataclasses import replace

import pytest
from rich.console import Console

from hansa.cli.raft_board import as_table, size, store_address, summary, told
from hansa.store.raft.group_record import PeerInfo
from hansa.store.raft.member_log import readable
from hansa.store.raft.raft_events import CatchingUp, GroupStatus, LeaderChanged, PeerStatus

PEER = PeerInfo(name="n1", peer_address="h:1", client_address="h:2", join_address="h:3")
HEALTHY = PeerStatus(
    peer=PEER,
    role="leader",
    is_voter=True,
    is_healthy=True,
    term=2,
    applied_index=24,
    db_bytes=24_576,
    version="3.4.23",
)


def group(*peers: PeerStatus) -> GroupStatus:
    return GroupStatus(app="orders", cluster="default", leader="n1", term=2, record_version=3, peers=peers)


def test_a_table_fits_a_terminal_of_eighty_columns_and_shows_no_markup() -> None:
    odd = replace(HEALTHY, peer=replace(PEER, name="n[2]", zone="\x1b[31m"), is_healthy=False, db_bytes=0)
    console = Console(width=80, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(as_table(group(HEALTHY, odd)))
    shown = capture.get()
    assert "24.0 KiB" in shown
    assert "3.4.23" in shown
    assert "n[2]" in shown
    assert "\x1b[31m" not in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("healthy", "away", "words"),
    [
        (3, 0, "3 of 3 voters healthy, 1 more may fail"),
        (2, 1, "2 of 3 voters healthy, 0 more may fail"),
        (1, 2, "1 of 3 voters healthy, no quorum"),
        (4, 0, "4 of 4 voters healthy, 1 more may fail"),
    ],
)
def test_the_summary_says_how_much_more_may_fail(healthy: int, away: int, words: str) -> None:
    learner = replace(HEALTHY, is_voter=False, role="learner")
    peers = [HEALTHY] * healthy + [replace(HEALTHY, is_healthy=False)] * away
    assert words in summary(group(*peers, learner))


def test_the_address_of_the_store_names_the_voters_that_can_be_asked() -> None:
    other = replace(HEALTHY, peer=replace(PEER, name="n2", join_address="h:4"))
    unstarted = replace(HEALTHY, peer=replace(PEER, name="", join_address=""))
    learner = replace(HEALTHY, peer=replace(PEER, name="n4", join_address="h:5"), is_voter=False)
    assert store_address(group(HEALTHY, other, unstarted, learner)) == "raft://h:3,h:4/orders"
    assert store_address(group(unstarted)) == ""


def test_sizes_are_for_people() -> None:
    assert [size(n) for n in (12, 24_576, 5 * 1024**2, 3 * 1024**3)] == [
        "12 B",
        "24.0 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]


def test_an_event_has_a_name_a_sentence_and_its_facts() -> None:
    assert told(LeaderChanged(leader="n1", term=4)) == (
        "leader-changed",
        "n1 leads, term 4",
        {"leader": "n1", "term": 4},
    )
    assert told(LeaderChanged(leader="", term=4))[1] == "no leader is known, term 4"


def test_catching_up_ends_at_its_end() -> None:
    assert told(CatchingUp(applied_index=7, target_index=20))[1] == "caught up to 7 of 20"
    assert told(CatchingUp(applied_index=22, target_index=20))[1] == "caught up to 20 of 20"


def test_the_end_of_a_log_is_readable() -> None:
    tail = "\n".join(
        [
            'use","stacktrace":"go.etcd.io/etcd"}',
            '{"level":"warn","ts":"2026","msg":"failed to start","error":"address already in use"}',
            '{"level":"warn","ts":"2027","msg":"failed to start","error":"address already in use"}',
            "plain words",
            '{"level":"fatal","msg":"discovery failed","stacktrace":"main.main"}',
        ]
    )
    assert readable(tail) == (
        "warn: failed to start: address already in use; plain words; fatal: discovery failed"
    )
    assert readable("") == "(it said nothing)"
