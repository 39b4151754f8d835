"""Who gets which id."""

from hansa.chance import Chance
from hansa.limits import ID_BINDINGS_MAX
from hansa.transport.admission import Admission, Admitted, NotAdmitted
from hansa.transport.events import CloseReason


def admission(*, takeover: bool = False) -> Admission:
    return Admission(takeover=takeover, chance=Chance.seeded(1))


def test_a_peer_keeps_the_id_it_gives() -> None:
    assert admission().admit(b"a", node="", taken=()) == Admitted(peer=b"a")


def test_anonymous_peers_get_ids_of_their_own() -> None:
    door, taken = admission(), set[bytes]()
    for _ in range(100):
        verdict = door.admit(b"", node="", taken=taken)
        assert isinstance(verdict, Admitted)
        assert verdict.peer not in taken
        taken.add(verdict.peer)


def test_an_id_in_use_is_refused_or_taken_over_as_asked() -> None:
    refused = admission().admit(b"a", node="", taken={b"a"})
    assert isinstance(refused, NotAdmitted)
    assert refused.reason is CloseReason.ID_IN_USE
    assert admission(takeover=True).admit(b"a", node="", taken={b"a"}) == Admitted(peer=b"a")


def test_an_id_belongs_to_the_certificate_that_used_it_first_even_after_it_left() -> None:
    door = admission(takeover=True)
    assert isinstance(door.admit(b"a", node="DNS:one", taken=()), Admitted)
    for node in ("DNS:two", ""):
        verdict = door.admit(b"a", node=node, taken=())
        assert isinstance(verdict, NotAdmitted)
        assert verdict.reason is CloseReason.ID_NOT_ALLOWED
    assert isinstance(door.admit(b"a", node="DNS:one", taken={b"a"}), Admitted)
    assert isinstance(door.admit(b"b", node="DNS:two", taken=()), Admitted)


def test_bindings_are_bounded_and_a_connected_id_is_never_forgotten() -> None:
    door = admission()
    door.admit(b"first", node="DNS:one", taken={b"other"})
    for n in range(ID_BINDINGS_MAX + 10):
        door.admit(b"%d" % n, node="DNS:crowd", taken={b"first"})
    assert isinstance(door.admit(b"first", node="DNS:two", taken=()), NotAdmitted)
    assert isinstance(door.admit(b"0", node="DNS:two", taken=()), Admitted)
