"""What a PUB offers those who keep their messages in wire form: who subscribed, to all, to one."""

import asyncio
from typing import Any

import pytest

from hansa.errors import AlreadyClosed
from hansa.transport import Connected, Disconnected, Pub
from hansa.wire.frames import encode
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane, quick
from tests.support.raw_peer import RawPeer
from tests.support.recorder import Recorder


class Asked:
    """Use it as `on_subscription`: keeps what was asked for, and lets a test wait for it."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes, bool]] = []
        self._changed = asyncio.Event()

    def __call__(self, peer: bytes, prefix: bytes, wanted: bool) -> None:
        self.seen.append((peer, prefix, wanted))
        self._changed.set()

    async def count(self, count: int) -> list[tuple[bytes, bytes, bool]]:
        while len(self.seen) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.seen


def wire(*parts: bytes) -> list[bytes]:
    """A message in wire form, in one piece."""
    pieces: list[bytes] = []
    encode(list(parts), pieces)
    return [b"".join(pieces)]


async def subscriber(lane: Lane, pub: Pub, *prefixes: bytes, endpoint: object = None) -> RawPeer:
    """A raw SUB at the publisher, whose subscriptions have taken effect."""
    raw = await lane.dial_raw(str(endpoint or await pub.bind(lane.endpoint())))
    await raw.shake_hands(b"SUB")
    wanted = b"".join(zmtp.command(b"SUBSCRIBE", prefix) for prefix in prefixes)
    raw.send(wanted + zmtp.ping(context=b"sync"))
    while await raw.read_command() != (b"PONG", b"sync"):
        pass
    return raw


# ---- who subscribed --------------------------------------------------------------------------------------


async def test_a_publisher_is_told_who_wants_what_and_who_no_longer(lane: Lane) -> None:
    asked, seen = Asked(), Recorder()
    async with lane.pub(on_subscription=asked, on_event=seen) as pub, lane.sub() as sub:
        sub.subscribe(b"early")
        sub.connect(str(await pub.bind(lane.endpoint())))
        peer = (await seen.wait(Connected)).peer
        await asked.count(1)
        sub.subscribe(b"")
        sub.unsubscribe(b"early")
        assert await asked.count(3) == [(peer, b"early", True), (peer, b"", True), (peer, b"early", False)]


@pytest.mark.parametrize("minor", [0, 1])
async def test_every_form_of_subscription_is_told(lane: Lane, minor: int) -> None:
    asked = Asked()
    async with lane.pub(on_subscription=asked) as pub:
        raw = await lane.dial_raw(await pub.bind(lane.endpoint()))
        await raw.shake_hands(b"SUB", minor=minor)
        if minor:
            raw.send(zmtp.command(b"SUBSCRIBE", b"a") + zmtp.command(b"CANCEL", b"a"))
        else:
            raw.send(zmtp.message(b"\x01a") + zmtp.message(b"\x00a"))
        assert [one[1:] for one in await asked.count(2)] == [(b"a", True), (b"a", False)]


async def test_it_is_told_after_it_took_effect_and_can_answer_the_newcomer_alone(lane: Lane) -> None:
    reached: list[tuple[int, bool]] = []

    def greet(peer: bytes, prefix: bytes, wanted: bool) -> None:
        reached.append((pub.post([prefix, b"to all"]), pub.post_wire_to(peer, wire(prefix, b"to you"))))

    async with lane.pub(on_subscription=greet) as pub:
        endpoint = await pub.bind(lane.endpoint())
        first = await subscriber(lane, pub, b"a", endpoint=endpoint)
        second = await subscriber(lane, pub, b"a", endpoint=endpoint)
        assert reached == [(1, True), (2, True)]
        pub.post([b"a", b"end"])
        assert [await first.read_message() for _ in range(4)] == [
            [b"a", b"to all"],
            [b"a", b"to you"],
            [b"a", b"to all"],
            [b"a", b"end"],
        ]
        assert [(await second.read_message())[1] for _ in range(3)] == [b"to all", b"to you", b"end"]


async def test_a_subscription_that_is_refused_is_not_told(lane: Lane) -> None:
    asked, seen = Asked(), Recorder()
    options = quick(subscriptions_max=2)
    async with lane.pub(on_subscription=asked, on_event=seen, options=options) as pub:
        raw = await lane.dial_raw(await pub.bind(lane.endpoint()))
        await raw.shake_hands(b"SUB")
        raw.send(b"".join(zmtp.command(b"SUBSCRIBE", prefix) for prefix in (b"a", b"b", b"c")))
        await seen.wait(Disconnected)
        assert [one[1] for one in asked.seen] == [b"a", b"b"]


async def test_a_callback_that_fails_is_reported_and_harms_nobody(lane: Lane) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(peer: bytes, prefix: bytes, wanted: bool) -> None:
        raise ValueError("not today")

    async with lane.pub(on_subscription=fail) as pub:
        raw = await subscriber(lane, pub, b"a", b"b")
        assert [str(one["exception"]) for one in reported] == ["not today"] * 2
        assert pub.post([b"a"]) == 1
        assert await raw.read_message() == [b"a"]


# ---- to all ----------------------------------------------------------------------------------------------


async def test_a_message_in_wire_form_arrives_as_if_it_had_been_posted(lane: Lane) -> None:
    messages = [(b"topic",), (b"topic", b"", b"x" * 300), (b"topic", b"y" * 70_000)]
    async with lane.pub() as pub:
        raw = await subscriber(lane, pub, b"top")
        for parts in messages:
            pieces: list[bytes] = []
            encode(list(parts), pieces)
            assert pub.post_wire(b"topic", pieces) == pub.post_wire(b"topic", wire(*parts)) == 1
            assert await raw.read_message() == await raw.read_message() == list(parts)


async def test_only_those_who_subscribed_to_the_topic_get_it(lane: Lane) -> None:
    async with lane.pub() as pub:
        endpoint = await pub.bind(lane.endpoint())
        near = await subscriber(lane, pub, b"a", endpoint=endpoint)
        far = await subscriber(lane, pub, b"b", endpoint=endpoint)
        assert pub.post_wire(b"ab", wire(b"ab", b"1")) == 1
        assert pub.post_wire(b"c", wire(b"c")) == 0
        assert pub.post_wire(b"ba", wire(b"ba", b"2")) == 1
        # Behind what was posted before, and before what comes after.
        pub.post([b"a", b"3"])
        pub.post([b"b", b"4"])
        assert [await near.read_message() for _ in range(2)] == [[b"ab", b"1"], [b"a", b"3"]]
        assert [await far.read_message() for _ in range(2)] == [[b"ba", b"2"], [b"b", b"4"]]


# ---- to one ----------------------------------------------------------------------------------------------


async def test_one_subscriber_gets_what_is_for_it_alone_whatever_it_subscribed_to(lane: Lane) -> None:
    asked = Asked()
    async with lane.pub(on_subscription=asked) as pub:
        endpoint = await pub.bind(lane.endpoint())
        chosen = await subscriber(lane, pub, b"a", endpoint=endpoint)
        other = await subscriber(lane, pub, b"a", endpoint=endpoint)
        peer = asked.seen[0][0]
        assert pub.post_wire_to(peer, wire(b"zzz", b"for you")) is True
        pub.post([b"a", b"end"])
        assert [await chosen.read_message() for _ in range(2)] == [[b"zzz", b"for you"], [b"a", b"end"]]
        assert await other.read_message() == [b"a", b"end"]


async def test_who_has_left_gets_nothing_and_the_publisher_is_told(lane: Lane) -> None:
    asked, seen = Asked(), Recorder()
    async with lane.pub(on_subscription=asked, on_event=seen) as pub:
        raw = await subscriber(lane, pub, b"a")
        await raw.close()
        await seen.wait(Disconnected)
        assert pub.post_wire_to(asked.seen[0][0], wire(b"a")) is False
        assert pub.post_wire_to(b"nobody", wire(b"a")) is False
        assert pub.stats.dropped_count == 0


async def test_a_subscriber_that_does_not_read_loses_it_and_it_is_counted(lane: Lane) -> None:
    asked = Asked()
    options = quick(outgoing_bytes_max=256 * 1024, heartbeat_interval=None)
    async with lane.pub(on_subscription=asked, options=options) as pub:
        raw = await subscriber(lane, pub, b"a")
        raw.stop_reading()
        peer, whole = asked.seen[0][0], wire(b"a", bytes(64 * 1024))
        sent_count = 0
        while pub.post_wire_to(peer, whole):
            sent_count += 1
            await asyncio.sleep(0)
        assert pub.stats.dropped_count == 1
        assert pub.post_wire(b"a", whole) == 0
        assert pub.stats.dropped_count == 2
        raw.go_on_reading()
        for _ in range(sent_count):
            assert (await raw.read_message())[0] == b"a"


async def test_a_closed_publisher_takes_nothing(lane: Lane) -> None:
    async with lane.pub() as pub:
        pass
    with pytest.raises(AlreadyClosed):
        pub.post_wire(b"a", wire(b"a"))
    assert pub.post_wire_to(b"anybody", wire(b"a")) is False
