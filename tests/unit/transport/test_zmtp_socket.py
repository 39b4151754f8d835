"""A socket that closes, in virtual time: nothing that it still says is lost."""

import asyncio

import pytest

from hansa.testing import Host, World
from hansa.testing.network import NetworkSettings
from hansa.transport import Dealer, Router, SocketOptions


@pytest.mark.parametrize("seed", range(12))
def test_what_a_closing_socket_answers_meanwhile_still_leaves(seed: int) -> None:
    """It lingers for what it had said, hears more, and answers: peers have its word for that, too."""
    world = World(seed, settings=NetworkSettings(spike_probability=0.0, window_bytes=512))
    answered: list[bytes] = []
    received: list[bytes] = []

    async def answering(host: Host) -> None:
        def answer(peer: bytes, messages: list[list[bytes]]) -> None:
            for parts in messages:
                router.post(peer, [bytes(300), *parts])
                answered.append(parts[0])

        router = Router(
            b"\x01\x00\x00\x00\x01",
            environment=host.environment.but(options=SocketOptions(linger=60.0)),
            on_messages=answer,
        )
        async with router:
            await router.bind("tcp://*:1")
            while len(answered) < 50:
                await asyncio.sleep(0.001)

    async def asking(host: Host) -> None:
        dealer = Dealer(
            b"\x01\x00\x00\x00\x02",
            environment=host.environment,
            on_messages=lambda peer, messages: received.extend(parts[1] for parts in messages),
        )
        async with dealer:
            await dealer.connect("tcp://a:1").up()
            # About as fast as the answers can leave: one waits or none, by turns.
            for number in range(200):
                await dealer.send([b"%d" % number])
                await asyncio.sleep(0.006)
            await asyncio.Event().wait()

    async def course() -> None:
        world.host("a", answering).start()
        world.host("b", asking).start()
        await asyncio.sleep(30.0)

    with world:
        world.run(course())
    assert len(answered) >= 50
    assert received == answered
