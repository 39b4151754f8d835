"""Who stays connected with a node: listed nodes that speak, and others only for a while."""

import pytest

from hansa.ids import routing_id
from hansa.limits import (
    LET_GO_MAX,
    PARTING_S,
    PARTING_S_MAX,
    STRANGER_REST_S,
    STRANGER_S,
    UNLISTED_S_MAX,
)
from hansa.topics.doorkeeper import Doorkeeper
from hansa.topics.effects import MeshTally

X, Y = routing_id(80), routing_id(90)
NOT_LISTED, APART, STRANGE = (
    "not listed as a node of this mesh",
    "this node has unregistered",
    "said nothing that a node says",
)


class Entrance:
    """A doorkeeper, its clock, and how often each peer was heard."""

    def __init__(self) -> None:
        self.now = 100.0
        self.tally = MeshTally()
        self.heard: dict[bytes, int] = {}
        self.hears_registry = True
        self.doorkeeper = Doorkeeper(self.tally, lambda peer: self.heard.get(peer, 0))

    def connect(self, peer: bytes, *, listed: bool = True, speaks: bool = True) -> None:
        if listed:
            self.doorkeeper.list_peer(peer)
        assert self.doorkeeper.welcomes(peer)
        self.heard[peer] = int(speaks)
        self.doorkeeper.connected(peer, now=self.now)

    def after(self, seconds: float) -> dict[bytes, str]:
        """Whom to let go then, and why. Their connections end."""
        self.now += seconds
        gone = self.doorkeeper.tick(now=self.now, hears_registry=self.hears_registry)
        for one in gone:
            self.doorkeeper.disconnected(one.peer)
        return {one.peer: one.reason for one in gone}


@pytest.fixture
def door() -> Entrance:
    return Entrance()


def test_a_listed_node_that_speaks_stays(door: Entrance) -> None:
    door.connect(X)
    assert door.after(1_000.0) == {}
    assert door.doorkeeper.deadline() is None


# -- listed no more


@pytest.mark.spec("SPT-24")
def test_a_node_that_is_listed_no_more_is_let_go_and_not_let_in_until_it_is_listed(door: Entrance) -> None:
    door.connect(X)
    door.doorkeeper.unlist_peer(X, now=door.now)
    assert door.doorkeeper.deadline() == door.now + PARTING_S
    assert door.after(PARTING_S - 0.01) == {}
    assert door.after(0.02) == {X: NOT_LISTED}
    assert not door.doorkeeper.welcomes(X)
    assert door.doorkeeper.turn_away(X) == NOT_LISTED
    assert door.tally.unlisted_count == 2
    door.doorkeeper.list_peer(X)
    assert door.doorkeeper.welcomes(X)


@pytest.mark.spec("SPT-24")
def test_a_node_that_is_listed_again_in_time_has_not_been_missed(door: Entrance) -> None:
    door.connect(X)
    door.doorkeeper.unlist_peer(X, now=door.now)
    door.after(PARTING_S / 2)
    door.doorkeeper.list_peer(X)
    assert door.after(1_000.0) == {}


def test_a_node_that_closes_may_say_its_last_words_but_not_for_ever(door: Entrance) -> None:
    door.connect(X)
    door.doorkeeper.unlist_peer(X, now=door.now)
    began_at = door.now
    gone: dict[bytes, str] = {}
    while not gone:
        door.heard[X] += 1
        gone = door.after(PARTING_S)
    assert gone == {X: NOT_LISTED}
    assert door.now - began_at == PARTING_S_MAX


def test_a_node_that_leaves_by_itself_needs_not_be_let_go(door: Entrance) -> None:
    door.connect(X)
    door.doorkeeper.unlist_peer(X, now=door.now)
    door.doorkeeper.disconnected(X)
    assert door.doorkeeper.deadline() is None
    assert door.after(PARTING_S) == {}


def test_what_was_never_connected_is_only_forgotten(door: Entrance) -> None:
    door.doorkeeper.list_peer(X)
    door.doorkeeper.unlist_peer(X, now=door.now)
    assert door.after(PARTING_S_MAX) == {}
    assert door.doorkeeper.welcomes(X)


# -- not listed yet


@pytest.mark.spec("SPT-24")
def test_a_node_that_dials_before_it_is_listed_stays_for_a_while(door: Entrance) -> None:
    door.connect(X, listed=False)
    assert door.after(UNLISTED_S_MAX - 1.0) == {}
    door.doorkeeper.list_peer(X)
    assert door.after(2 * UNLISTED_S_MAX) == {}


@pytest.mark.spec("SPT-24")
def test_a_node_that_is_never_listed_is_let_go(door: Entrance) -> None:
    door.connect(X, listed=False)
    assert door.after(UNLISTED_S_MAX) == {X: NOT_LISTED}
    assert not door.doorkeeper.welcomes(X)


@pytest.mark.spec("SPT-24")
def test_while_no_registry_is_heard_nobody_is_let_go_for_not_being_listed(door: Entrance) -> None:
    door.connect(X, listed=False)
    door.hears_registry = False
    for _ in range(5):
        assert door.after(UNLISTED_S_MAX) == {}
    door.hears_registry = True
    assert door.after(UNLISTED_S_MAX) == {X: NOT_LISTED}


# -- apart


@pytest.mark.spec("SPT-24")
def test_a_node_that_has_unregistered_lets_go_of_all_and_lets_nobody_in(door: Entrance) -> None:
    door.connect(X)
    door.doorkeeper.list_peer(Y)
    door.doorkeeper.part(now=door.now)
    # What the registries say meanwhile changes nothing.
    door.doorkeeper.list_peer(X)
    assert door.after(PARTING_S) == {X: APART}
    assert not door.doorkeeper.welcomes(Y)
    assert door.doorkeeper.turn_away(Y) == APART
    door.doorkeeper.rejoin()
    assert door.doorkeeper.welcomes(X)
    assert door.doorkeeper.welcomes(Y)


def test_a_node_that_registers_again_in_time_keeps_those_who_are_listed(door: Entrance) -> None:
    door.connect(X)
    door.connect(Y)
    door.doorkeeper.part(now=door.now)
    door.doorkeeper.unlist_peer(Y, now=door.now)
    door.doorkeeper.rejoin()
    assert door.after(PARTING_S) == {Y: NOT_LISTED}


# -- no nodes


@pytest.mark.spec("SPT-23")
def test_a_peer_that_says_nothing_is_let_go_and_tried_again_rarely(door: Entrance) -> None:
    door.connect(X, speaks=False)
    assert door.after(STRANGER_S) == {X: STRANGE}
    assert not door.doorkeeper.welcomes(X)
    assert door.doorkeeper.turn_away(X) == STRANGE
    assert door.tally.strangers_count == 2
    assert door.doorkeeper.deadline() == door.now + STRANGER_REST_S
    assert door.doorkeeper.rested(now=door.now + STRANGER_REST_S - 1.0) == []
    assert door.doorkeeper.rested(now=door.now + STRANGER_REST_S) == [X]
    assert door.doorkeeper.welcomes(X)


def test_whoever_registers_anew_in_its_place_is_tried_at_once(door: Entrance) -> None:
    door.connect(X, speaks=False)
    door.after(STRANGER_S)
    door.doorkeeper.unlist_peer(X, now=door.now)
    door.doorkeeper.list_peer(X)
    assert door.doorkeeper.welcomes(X)


def test_who_was_let_go_is_remembered_and_of_too_many_the_oldest_is_forgotten(door: Entrance) -> None:
    peers = [routing_id(number) for number in range(1, LET_GO_MAX + 2)]
    for peer in peers:
        door.connect(peer)
        door.doorkeeper.unlist_peer(peer, now=door.now)
    assert len(door.after(PARTING_S)) == len(peers)
    assert [door.doorkeeper.welcomes(peer) for peer in (peers[0], peers[1], peers[-1])] == [
        True,
        False,
        False,
    ]
