"""Members of an etcd group that come and go keep their numbers; the one that answers is kept."""

from hansa.chance import Chance
from hansa.store.etcd.access import EtcdAccess
from hansa.store.etcd.rotation import Rotation


def test_a_member_keeps_its_number_and_gets_it_again() -> None:
    access = EtcdAccess(endpoints=("a:1", "b:1"))
    assert access.members == (0, 1)
    access.use(["b:1", "c:1"])
    assert [access.endpoints[member] for member in access.members] == ["b:1", "c:1"]
    assert access.members == (1, 2)
    access.use(["a:1", "d:1"])
    assert access.members == (0, 3)
    assert access.endpoints == ("a:1", "b:1", "c:1", "d:1")


def test_the_one_that_answers_is_kept_while_it_is_a_member() -> None:
    for seed in range(20):
        rotation = Rotation(3, Chance.seeded(seed))
        kept = rotation.current
        rotation.use((kept, 7))
        assert rotation.current == kept
        rotation.failed(kept)
        assert rotation.current == 7
        rotation.failed(7)
        assert rotation.current == kept


def test_clients_go_to_different_ones_of_the_new_members() -> None:
    found = set()
    for seed in range(30):
        rotation = Rotation(2, Chance.seeded(seed))
        rotation.use((4, 6, 9))
        # One that is no member any more fails late.
        rotation.failed(0)
        found.add(rotation.current)
    assert found == {4, 6, 9}
