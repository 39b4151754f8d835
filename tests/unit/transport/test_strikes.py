"""Who sends nonsense has a number of chances, each peer its own."""

import pytest

from hansa.errors import BadFrame, LimitExceeded
from hansa.limits import STRIKES_MAX
from hansa.transport.admission import Strikes

ANN, BOB = b"ann", b"bob"


def test_the_last_chance_is_the_one_that_expels() -> None:
    strikes = Strikes()
    assert [strikes.strike(ANN, BadFrame("short")) for _ in range(STRIKES_MAX)] == [
        *[False] * (STRIKES_MAX - 1),
        True,
    ]
    assert strikes.expelled_count == 1


def test_each_peer_has_its_own_chances() -> None:
    strikes = Strikes(strikes_max=2)
    assert [strikes.strike(peer, BadFrame("short")) for peer in (ANN, BOB, ANN, BOB)] == [
        False,
        False,
        True,
        True,
    ]
    assert strikes.expelled_count == 2


@pytest.mark.parametrize("is_expelled", [True, False])
def test_who_comes_again_starts_anew(is_expelled: bool) -> None:
    strikes = Strikes(strikes_max=3)
    for _ in range(3 if is_expelled else 2):
        strikes.strike(ANN, BadFrame("short"))
    if not is_expelled:
        strikes.forget(ANN)
    assert [strikes.strike(ANN, BadFrame("short")) for _ in range(3)] == [False, False, True]


def test_forgetting_a_stranger_does_no_harm() -> None:
    strikes = Strikes(strikes_max=1)
    strikes.forget(BOB)
    assert strikes.strike(ANN, BadFrame("short"))


def test_reasons_are_counted_over_all_peers_and_for_ever() -> None:
    strikes = Strikes(strikes_max=2)
    strikes.strike(ANN, BadFrame("short"))
    strikes.strike(BOB, BadFrame("a list is told at a PUB", "misplaced"))
    strikes.strike(BOB, LimitExceeded("70 MiB"))
    strikes.forget(ANN)
    assert strikes.by_reason == {"bad-frame": 1, "misplaced": 1, "limit-exceeded": 1}
