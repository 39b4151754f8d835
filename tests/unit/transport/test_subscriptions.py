"""Prefix subscriptions against the obvious scan."""

from hypothesis import given
from hypothesis import strategies as st

from hansa.transport.subscriptions import Subscriptions

names = st.text("ab", max_size=3).map(str.encode)
steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "drop"]), st.sampled_from("xyz"), names), max_size=40
)


@given(steps, names)
def test_matching_is_what_a_scan_would_find(changes: list[tuple[str, str, bytes]], topic: bytes) -> None:
    index: Subscriptions[str] = Subscriptions()
    plain: dict[tuple[str, bytes], int] = {}
    for what, who, prefix in changes:
        key = (who, prefix)
        if what == "add":
            index.add(who, prefix)
            plain[key] = plain.get(key, 0) + 1
        elif what == "remove":
            assert index.remove(who, prefix) == (key in plain)
            if key in plain:
                plain[key] -= 1
                if not plain[key]:
                    del plain[key]
        else:
            index.drop(who)
            plain = {k: n for k, n in plain.items() if k[0] != who}
    assert set(index.matching(topic)) == {who for who, prefix in plain if topic.startswith(prefix)}
    for who in "xyz":
        assert index.count(who) == len({prefix for w, prefix in plain if w == who})


def test_a_subscriber_that_matches_twice_is_named_once() -> None:
    index: Subscriptions[str] = Subscriptions()
    index.add("x", b"")
    index.add("x", b"a")
    assert list(index.matching(b"abc")) == ["x"]
