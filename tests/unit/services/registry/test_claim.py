"""Of several claims to one key everybody picks the same."""

import itertools

import pytest

from hansa.presence.statements import epoch_wall_s, first_epoch
from hansa.services.registry.entries import EntryClaim, newest_by_id, prevailing
from tests.support.registry_desk import ANN, BOB, claim

CARL = b"\x01\x00\x00\x00\x0c"


def said(routing_id: bytes, epoch: int, registry_id: int, *, alive: bool = True) -> EntryClaim:
    return EntryClaim(claim(routing_id, epoch, orphaned=not alive), registry_id, alive)


@pytest.mark.parametrize(
    ("claims", "dead_epoch", "winner"),
    [
        pytest.param([], -1, None, id="nobody claims it"),
        pytest.param([said(ANN, 0, 1)], -1, 0, id="a claim without an epoch is a claim"),
        pytest.param([said(ANN, 5, 1)], 5, None, id="a claim up to the tombstone is dead"),
        pytest.param([said(ANN, 6, 1)], 5, 0, id="a claim after the tombstone lives"),
        pytest.param([said(ANN, 5, 1), said(ANN, 6, 2)], -1, 1, id="a provider that moved is where it went"),
        pytest.param(
            [said(ANN, 5, 1), said(ANN, 6, 2, alive=False)], -1, 1, id="where it went, even if it left there"
        ),
        pytest.param(
            [said(ANN, 5, 2, alive=False), said(ANN, 5, 3)], -1, 1, id="same epoch, the living claim counts"
        ),
        pytest.param([said(ANN, 5, 2), said(ANN, 5, 1)], -1, 1, id="same epoch, the lower registry counts"),
        pytest.param([said(ANN, 6, 1), said(BOB, 5, 2)], -1, 1, id="of two living the first to come stays"),
        pytest.param(
            [said(ANN, 5, 1, alive=False), said(BOB, 6, 2)],
            -1,
            1,
            id="a living one beats an orphan before it",
        ),
        pytest.param(
            [said(ANN, 7, 1, alive=False), said(BOB, 6, 2)], -1, 1, id="a living one beats an orphan after it"
        ),
        pytest.param(
            [said(ANN, 5, 1, alive=False), said(BOB, 6, 2, alive=False)],
            -1,
            1,
            id="of orphans the last to come",
        ),
        pytest.param([said(ANN, 5, 2), said(BOB, 5, 1)], -1, 1, id="of equals the lower registry's"),
        pytest.param(
            [said(ANN, 3, 1), said(ANN, 9, 2, alive=False), said(BOB, 5, 3)],
            -1,
            2,
            id="an older living claim of one that moved and left does not count",
        ),
        pytest.param(
            [said(ANN, 5, 1), said(BOB, 6, 2)], 5, 1, id="the dead first one leaves it to the second"
        ),
    ],
)
def test_which_claim_prevails(claims: list[EntryClaim], dead_epoch: int, winner: int | None) -> None:
    expected = None if winner is None else claims[winner]
    for order in itertools.permutations(claims):
        assert prevailing(newest_by_id(order, dead_epoch)) == expected


def test_the_order_in_which_claims_came_does_not_matter() -> None:
    claims = [
        said(routing_id, epoch, registry_id, alive=alive)
        for registry_id, (routing_id, epoch, alive) in enumerate(
            itertools.product((ANN, BOB, CARL), (1, 2), (True, False))
        )
    ]
    forward = prevailing(newest_by_id(claims, -1))
    assert prevailing(newest_by_id(reversed(claims), -1)) == forward


def test_an_epoch_tells_when_the_claim_was_made() -> None:
    assert epoch_wall_s(first_epoch(1_700_000_000_123)) == 1_700_000_000.123
    assert epoch_wall_s(first_epoch(1_700_000_000_123) + 65_535) == 1_700_000_000.123
    assert epoch_wall_s(0) == 0.0
