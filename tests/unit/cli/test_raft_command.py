"""A raft group for people."""

from dataclasses import asdict, replace

import pytest
from rich.console import Console

from hansa.cli.raft_command import (
    as_table,
    beginnings,
    figures,
    requests_table,
    store_address,
    summary,
    told,
)
from hansa.store.raft.group_record import Approval, Bootstrap, JoinState, PeerInfo
from hansa.store.raft.member_process import readable
from hansa.store.raft.raft_events import (
    ApprovalAwaited,
    CatchingUp,
    GroupStatus,
    JoinApproved,
    LeaderChanged,
    PeerStatus,
    RaftStats,
    RequestStatus,
)

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


@pytest.mark.spec("CRD-16")
def test_requests_are_shown_with_when_they_were_made_and_who_decides() -> None:
    waiting = RequestStatus(
        peer=replace(PEER, name="n4", zone="north", roles=("spare",)),
        state=JoinState.PENDING,
        requested_at=1_700_000_000.0,
    )
    refused = replace(waiting, state=JoinState.REFUSED, code="refused", reason="no\x1b[31m room")
    console = Console(width=100)
    with console.capture() as capture:
        console.print(requests_table(replace(group(), requests=(waiting, refused))))
    shown = capture.get()
    assert "2023-11-14 22:13:20Z" in shown
    assert "waits for approval" in shown
    assert "spare" in shown
    assert "\x1b[31m" not in shown
    assert asdict(replace(group(), requests=(waiting,)))["requests"][0]["state"] == "pending"


@pytest.mark.spec("CRD-16")
def test_what_holds_for_the_group_is_one_sentence() -> None:
    assert beginnings(group()) == "group (not begun yet); approval automatic"
    began = Bootstrap(
        app="orders",
        group_id="c0",
        founders={"n2": "h:2", "n1": "h:1"},
        began_by="n1",
        began_at=1_700_000_000.0,
        etcd_version="3.4.23",
    )
    status = replace(
        group(), group_id="c0", resource_group="north", approval=Approval.MANUAL, bootstrap=began
    )
    assert beginnings(status) == (
        "group c0; resource group north; approval manual; begun 2023-11-14 22:13:20Z by n1 with n1, n2"
    )


@pytest.mark.spec("CRD-16")
def test_the_figures_of_the_peer_that_was_asked_are_one_sentence() -> None:
    stats = RaftStats(
        leader_changes_count=3,
        restarts_count=1,
        joins_accepted_count=2,
        join_accept_s=41.26,
        joins_approved_count=1,
        join_approval_s=40.0,
        joins_refused_count=3,
        refusals={"refused": 1, "full": 2},
        snapshots_count=4,
        snapshot_s=0.012,
        snapshot_bytes=24_576,
        snapshots_received_count=1,
        snapshot_received_s=1.5,
        join_sync_s=2.34,
        join_snapshot_bytes=20_480,
    )
    assert figures(replace(group(), asked="n1", stats=stats)) == (
        "n1 counted: leader changes 3, etcd restarts 1; joins 2 accepted (the last after 41.3 s), 1 approved "
        "(the last after 40.0 s), 3 refused (full 2, refused 1), 0 expired; snapshots written 4 (the last "
        "24.0 KiB in 0.012 s); received 1 (the last 1.500 s); joined itself with 20.0 KiB in 2.3 s"
    )
    assert figures(replace(group(), asked="n1")) == (
        "n1 counted: leader changes 0, etcd restarts 0; joins 0 accepted, 0 refused, 0 expired; "
        "snapshots written 0; received 0"
    )
    assert asdict(replace(group(), stats=stats))["stats"]["refusals"] == {"refused": 1, "full": 2}


def test_an_event_has_a_name_a_sentence_and_its_facts() -> None:
    assert told(LeaderChanged(leader="n1", term=4)) == (
        "leader-changed",
        "n1 leads, term 4",
        {"leader": "n1", "term": 4},
    )
    assert told(LeaderChanged(leader="", term=4))[1] == "no leader is known, term 4"
    awaited = told(ApprovalAwaited(name="n4", timeout_s=600.0))
    assert awaited[:2] == ("approval-awaited", "n4 waits for a person's approval, at most 600 s")
    approved = told(JoinApproved(name="n4", approval_s=40.0))
    assert approved[:2] == ("join-approved", "n4 was approved after 40.0 s")


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
