"""Who hears what: prefixes, counted subscriptions, and the older form of both."""

import asyncio
from typing import Protocol

import pytest

from hansa.errors import WouldBlock
from hansa.transport import Connected, Disconnected, HandshakeFailed, Pub, Sub
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane
from tests.support.raw_peer import RawPeer
from tests.support.recorder import Recorder


class Says(Protocol):
    """How a raw subscriber says that it wants a prefix, or no longer."""

    def __call__(self, prefix: bytes, wanted: bool) -> bytes: ...


def as_command(prefix: bytes, wanted: bool) -> bytes:
    """ZMTP 3.1."""
    return zmtp.command(b"SUBSCRIBE" if wanted else b"CANCEL", prefix)


def as_message(prefix: bytes, wanted: bool) -> bytes:
    """ZMTP 3.0."""
    return zmtp.message((b"\x01" if wanted else b"\x00") + prefix)


async def raw_subscriber(lane: Lane, pub: Pub, minor: int) -> RawPeer:
    """A raw SUB at the publisher."""
    raw = await lane.dial_raw(await pub.bind(lane.endpoint()))
    await raw.shake_hands(b"SUB", minor=minor)
    return raw


async def heard(pub: Pub, raw: RawPeer, said: bytes) -> None:
    """Say something and wait until the publisher has read it: a PING is answered after it."""
    raw.send(said + zmtp.ping(context=b"sync"))
    while await raw.read_command() != (b"PONG", b"sync"):
        pass


async def joined(pub: Pub, sub: Sub, topic: bytes) -> None:
    """Wait until the subscriber hears the topic; what it hears of it by then is taken out."""
    while not pub.post([topic, b"join"]):
        await asyncio.sleep(0)
    await drained(pub, sub, topic)


async def drained(pub: Pub, sub: Sub, topic: bytes) -> list[list[bytes]]:
    """All that the subscriber has got up to now."""
    marker = [topic, b"marker"]
    assert pub.post(marker) == 1
    got = []
    while (parts := (await sub.recv()).parts) != marker:
        got.append(parts)
    return got


async def test_only_subscribed_prefixes_arrive(lane: Lane) -> None:
    async with lane.pub() as pub, lane.sub() as sub:
        sub.subscribe(b"zone:12:")
        sub.subscribe(b"news")
        sub.connect(str(await pub.bind(lane.endpoint())))
        await joined(pub, sub, b"zone:12:")
        await joined(pub, sub, b"news")
        for topic in (
            b"zone:12:a",
            b"zone:12",
            b"zone:13:a",
            b"news",
            b"newspaper",
            b"new",
            b"",
            b"zone:12:",
        ):
            pub.post([topic, b"payload"])
        got = [parts[0] for parts in await drained(pub, sub, b"news")]
        assert got == [b"zone:12:a", b"news", b"newspaper", b"zone:12:"]


async def test_the_empty_prefix_hears_everything(lane: Lane) -> None:
    async with lane.pub() as pub, lane.sub() as sub:
        sub.subscribe(b"")
        sub.connect(str(await pub.bind(lane.endpoint())))
        await joined(pub, sub, b"x")
        messages = [[b""], [b"\x00\x01"], [b"a", b"b", b"c"], [b"", b""]]
        for parts in messages:
            pub.post(parts)
        assert await drained(pub, sub, b"x") == messages


async def test_nothing_arrives_without_a_subscription(lane: Lane) -> None:
    seen = Recorder()
    async with lane.pub(on_event=seen) as pub, lane.sub() as sub:
        sub.connect(str(await pub.bind(lane.endpoint())))
        await seen.wait(Connected)
        assert pub.post([b"anything"]) == 0
        assert await pub.send([b"anything"]) == 0
        sub.subscribe(b"only this")
        await joined(pub, sub, b"only this")
        with pytest.raises(WouldBlock):
            sub.recv_nowait()


async def test_a_publisher_without_subscribers_posts_to_nobody(lane: Lane) -> None:
    async with lane.pub() as pub:
        await pub.bind(lane.endpoint())
        assert pub.post([b"into the void"]) == 0
        assert await pub.send([b"into the void"]) == 0
        assert pub.stats.dropped_count == 0


async def test_unsubscribing_ends_what_arrives(lane: Lane) -> None:
    async with lane.pub() as pub, lane.sub() as sub:
        sub.subscribe(b"a")
        sub.subscribe(b"b")
        sub.connect(str(await pub.bind(lane.endpoint())))
        await joined(pub, sub, b"a")
        sub.unsubscribe(b"a")
        while pub.post([b"a"]):
            await asyncio.sleep(0)
        await drained(pub, sub, b"b")
        pub.post([b"a"])
        pub.post([b"b", b"1"])
        assert await drained(pub, sub, b"b") == [[b"b", b"1"]]


async def test_a_prefix_subscribed_twice_needs_two_cancellations(lane: Lane) -> None:
    async with lane.pub() as pub, lane.sub() as sub:
        sub.subscribe(b"a")
        sub.subscribe(b"a")
        sub.subscribe(b"control")
        sub.connect(str(await pub.bind(lane.endpoint())))
        await joined(pub, sub, b"control")
        sub.unsubscribe(b"a")
        sub.subscribe(b"second")
        await joined(pub, sub, b"second")  # the publisher has heard of all that was said before it
        assert pub.post([b"a", b"still"]) == 1
        assert await drained(pub, sub, b"control") == [[b"a", b"still"]]
        sub.unsubscribe(b"a")
        sub.subscribe(b"third")
        await joined(pub, sub, b"third")
        assert pub.post([b"a", b"no more"]) == 0


async def test_overlapping_prefixes_deliver_once(lane: Lane) -> None:
    async with lane.pub() as pub, lane.sub() as sub:
        for prefix in (b"", b"a", b"ab", b"abc", b"ab"):
            sub.subscribe(prefix)
        sub.connect(str(await pub.bind(lane.endpoint())))
        await joined(pub, sub, b"abc")
        assert pub.post([b"abcd", b"once"]) == 1
        assert await drained(pub, sub, b"abc") == [[b"abcd", b"once"]]


async def test_subscriptions_made_after_connecting_count(lane: Lane) -> None:
    seen = Recorder()
    async with lane.pub() as pub, lane.sub(on_event=seen) as sub:
        sub.connect(str(await pub.bind(lane.endpoint())))
        await seen.wait(Connected)
        sub.subscribe(b"late")
        await joined(pub, sub, b"late")


async def test_subscriptions_return_with_the_connection(lane: Lane) -> None:
    seen = Recorder()
    async with lane.sub(on_event=seen) as sub:
        sub.subscribe(b"kept")
        sub.subscribe(b"dropped")
        async with lane.pub() as pub:
            endpoint = str(await pub.bind(lane.endpoint()))
            sub.connect(endpoint)
            await joined(pub, sub, b"kept")
        await seen.wait(Disconnected)
        sub.unsubscribe(b"dropped")
        sub.subscribe(b"new")
        async with lane.pub() as pub:
            await pub.bind(endpoint)
            await joined(pub, sub, b"kept")
            await joined(pub, sub, b"new")
            assert pub.post([b"dropped"]) == 0


async def test_a_sub_may_hear_several_publishers(lane: Lane) -> None:
    async with lane.pub() as one, lane.pub() as two, lane.sub() as sub:
        sub.subscribe(b"")
        for pub in (one, two):
            sub.connect(str(await pub.bind(lane.endpoint())))
        for pub, name in ((one, b"one"), (two, b"two")):
            while not pub.post([name]):
                await asyncio.sleep(0)
        got = [await sub.recv(), await sub.recv()]
        assert {message.parts[0] for message in got} == {b"one", b"two"}
        assert len({message.peer for message in got}) == 2


async def test_a_message_reaches_each_of_many_subscribers(lane: Lane) -> None:
    async with lane.pub() as pub:
        endpoint = str(await pub.bind(lane.endpoint()))
        subs = [lane.sub() for _ in range(20)]
        for sub in subs:
            await sub.__aenter__()
            sub.subscribe(b"all")
            sub.connect(endpoint)
        while pub.post([b"all", b"early"]) < 20:
            await asyncio.sleep(0)
        for number in range(100):
            assert pub.post([b"all", b"%d" % number]) == 20
        for sub in subs:
            while (parts := (await sub.recv()).parts) == [b"all", b"early"]:
                pass
            got = [parts] + [(await sub.recv()).parts for _ in range(99)]
            assert got == [[b"all", b"%d" % number] for number in range(100)]
            await sub.__aexit__(None, None, None)


@pytest.mark.parametrize(("minor", "says"), [(0, as_message), (1, as_command), (1, as_message)])
async def test_raw_subscriptions_of_every_form_are_understood(lane: Lane, minor: int, says: Says) -> None:
    async with lane.pub() as pub:
        raw = await raw_subscriber(lane, pub, minor)
        await heard(pub, raw, says(b"a", True) + says(b"b", True))
        assert [pub.post([topic]) for topic in (b"abc", b"b", b"c", b"")] == [1, 1, 0, 0]
        assert await raw.read_message() == [b"abc"]
        assert await raw.read_message() == [b"b"]
        await heard(pub, raw, says(b"a", False))
        assert [pub.post([topic]) for topic in (b"abc", b"b")] == [0, 1]
        await heard(pub, raw, says(b"", True))
        assert pub.post([b"anything"]) == 1


@pytest.mark.parametrize(("minor", "says"), [(0, as_message), (1, as_command)])
async def test_raw_subscriptions_are_counted(lane: Lane, minor: int, says: Says) -> None:
    async with lane.pub() as pub:
        raw = await raw_subscriber(lane, pub, minor)
        await heard(pub, raw, says(b"a", True) * 2 + says(b"a", False))
        assert pub.post([b"a"]) == 1
        await heard(pub, raw, says(b"a", False))
        assert pub.post([b"a"]) == 0
        await heard(pub, raw, says(b"a", False))  # one too many is nobody's harm
        await heard(pub, raw, says(b"a", True))
        assert pub.post([b"a"]) == 1


@pytest.mark.parametrize(("minor", "says"), [(0, as_message), (1, as_command)])
async def test_we_subscribe_in_the_form_of_the_publishers_version(lane: Lane, minor: int, says: Says) -> None:
    long = b"x" * 255
    async with lane.sub() as sub:
        listener = await lane.listen_raw()
        sub.subscribe(b"early")
        sub.connect(listener.endpoint)
        raw = await listener.accept()
        await raw.shake_hands(b"PUB", minor=minor)
        expected = says(b"early", True)
        assert await raw.read(len(expected)) == expected
        for prefix, wanted in ((b"late", True), (b"early", False), (b"", True), (long, True), (long, False)):
            (sub.subscribe if wanted else sub.unsubscribe)(prefix)
            expected = says(prefix, wanted)
            assert await raw.read(len(expected)) == expected
        raw.send(zmtp.message(b"anything", b"at all"))
        assert (await sub.recv()).parts == [b"anything", b"at all"]


async def test_messages_of_a_subscriber_that_are_no_subscriptions_harm_nobody(lane: Lane) -> None:
    """XSUB may talk upstream; a PUB has no ear for it."""
    seen = Recorder()
    async with lane.pub(on_event=seen) as pub:
        raw = await raw_subscriber(lane, pub, minor=0)
        await heard(pub, raw, as_message(b"a", True))
        raw.send(zmtp.message(b"") + zmtp.message(b"\x07 what?") + zmtp.message(b"\x01a", b"two parts"))
        raw.send(zmtp.ping(context=b"end"))
        while True:
            try:
                if await raw.read_command() == (b"PONG", b"end"):
                    break
            except ConnectionError:
                assert any(isinstance(event, Disconnected | HandshakeFailed) for event in seen.events)
                break


async def test_what_was_on_its_way_when_it_was_cancelled_is_passed_over_and_counted(lane: Lane) -> None:
    async with lane.sub() as sub:
        raw = await lane.dial_raw(await sub.bind(lane.endpoint()))
        sub.subscribe(b"old")
        sub.subscribe(b"new")
        await raw.shake_hands(b"PUB")
        raw.send(zmtp.message(b"old 1"))
        assert (await sub.recv()).parts == [b"old 1"]
        sub.unsubscribe(b"old")
        raw.send(zmtp.message(b"old 2") + zmtp.message(b"new 1"))
        assert (await sub.recv()).parts == [b"new 1"]
        assert sub.stats.ignored_count == 1
