"""The names of keys."""

import pytest

from hansa.errors import BadArgument
from hansa.keys import Keys, topic_name


def test_all_of_a_cluster_is_below_its_prefix() -> None:
    keys = Keys("docks")
    assert keys.node("crane-1") == b"/hansa/docks/nodes/crane-1"
    assert keys.suspect("crane-1") == b"/hansa/docks/suspects/crane-1"
    assert keys.routing == b"/hansa/docks/routing"
    assert keys.leader("x") == b"/hansa/docks/leader/x/"
    assert keys.lock("x") == b"/hansa/docks/locks/x/"
    assert keys.semaphore("x") == b"/hansa/docks/semaphores/x/"
    assert keys.barrier("x") == b"/hansa/docks/barriers/x/"
    assert keys.blob("a", "b") == b"/hansa/docks/blobs/a/b/"
    assert keys.blob_sweep("a") == b"/hansa/docks/blob-sweep/a"
    assert keys.blob("a", "b").startswith(keys.blobs("a"))
    assert not keys.blob_sweep("a").startswith(keys.blobs("a"))
    assert keys.join_request("app", "crane-1") == b"/hansa/docks/join-requests/app/crane-1"
    assert keys.raft_group("app") == b"/hansa/docks/raft/groups/app"
    assert keys.raft_metadata("app") == b"/hansa/docks/raft/metadata/app"
    assert keys.handover("lock", "x") == b"/hansa/docks/handovers/lock/x"
    topic = topic_name("mesh", "a/b%")
    assert keys.handover("topic", topic) == b"/hansa/docks/handovers/topic/mesh/a%2Fb%25"
    assert keys.line("topic", topic) == keys.topic("mesh", "a/b%")
    assert (keys.line("lock", "x"), keys.line("leader", "x")) == (keys.lock("x"), keys.leader("x"))
    assert keys.handover("lock", "x").startswith(keys.handovers_of("lock"))
    assert keys.handovers_of("lock").startswith(keys.handovers)
    assert keys.node("crane-1").startswith(keys.nodes)
    assert keys.suspect("crane-1").startswith(keys.suspects)
    assert keys.join_request("app", "n").startswith(keys.join_requests("app"))


def test_a_lock_does_not_see_the_keys_of_one_whose_name_begins_like_its_own() -> None:
    assert not Keys().lock("ab").startswith(Keys().lock("a"))


def test_names_may_be_any_text_of_two_hundred_bytes() -> None:
    assert Keys().node("창고 1.b:c") == "/hansa/default/nodes/창고 1.b:c".encode()
    assert Keys().node("n" * 200).endswith(b"n" * 200)


@pytest.mark.parametrize("name", ["", "n" * 201, "é" * 101, "a/b", "/", "a\n", "\0", "\x7f", "\ud800", 7])
def test_bad_names_are_refused_everywhere(name: str) -> None:
    with pytest.raises(BadArgument, match="the name of a cluster"):
        Keys(name)
    keys = Keys()
    for method in (keys.node, keys.suspect, keys.leader, keys.lock, keys.semaphore, keys.barrier):
        with pytest.raises(BadArgument, match="the name of a"):
            method(name)
    for other in (keys.join_requests, keys.raft_group, keys.raft_metadata):
        with pytest.raises(BadArgument, match="the name of a"):
            other(name)
    with pytest.raises(BadArgument, match="the name of a node"):
        keys.join_request("app", name)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("lock", "a/b"), ("lock", ""), ("topic", "mesh"), ("topic", "mesh/"), ("topic", "mesh/a/b"), ("", "x")],
)
def test_what_cannot_name_a_hand_over_is_refused(kind: str, name: str) -> None:
    with pytest.raises(BadArgument):
        Keys().handover(kind, name)


def test_only_some_things_have_a_line() -> None:
    with pytest.raises(BadArgument, match="nobody stands in line for a 'barrier'"):
        Keys().line("barrier", "x")
