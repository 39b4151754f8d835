"""Counting connections at a door."""

from hansa.transport.admission import Door
from hansa.transport.events import CloseReason


def test_the_unknown_and_all_together_are_bounded_separately() -> None:
    door = Door(connections_max=3, handshaking_max=2)
    assert door.enter() is None
    assert door.enter() is None
    assert door.enter() is CloseReason.TOO_MANY_HANDSHAKING
    door.admitted()
    assert door.enter() is None
    door.admitted()
    assert door.enter() is CloseReason.TOO_MANY_CONNECTIONS
    door.left(was_admitted=True)
    assert door.enter() is None
    door.left(was_admitted=False)
    assert door.enter() is None
