"""Nodes over TLS, with certificates of one authority; a stranger's node stays outside."""

import asyncio
from pathlib import Path

import pytest

from hansa import TopicExists
from hansa.ids import routing_id
from hansa.transport import Environment, HandshakeFailed, Router
from tests.support.certificates import Authority
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.recorder import Recorder
from tests.support.topics_cast import TopicCast, meshed, payloads

ANY = "tls://127.0.0.1:0"

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-05")
async def test_a_mesh_over_tls_does_what_one_over_tcp_does(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry(ANY, ANY, tls=authority.issue("registry"))
        home, away = [
            await cast.node(registry, number, bind=ANY, tls=authority.issue(f"node-{number}"))
            for number in (1, 2)
        ]
        await meshed(home, away)
        owner, spot = home.spot(), away.spot()
        await owner.create_topic("zone:12")
        subscription = await spot.subscribe("zone:*")
        await subscription.active()
        with pytest.raises(TopicExists):
            await spot.create_topic("zone:12")
        await owner.publish("zone:12", b"x" * 200_000)
        await spot.publish("zone:12", b"routed")
        assert await payloads(subscription, 2) == [b"x" * 200_000, b"routed"]
        # A stranger's certificate opens no door.
        stranger, failed = Authority.create(tmp_path / "stranger"), Recorder()
        async with Router(
            routing_id(3), environment=Environment(tls=stranger.issue("node-3")), on_event=failed
        ) as router:
            assert home.endpoint is not None
            router.connect(home.endpoint)
            await failed.wait(HandshakeFailed)
        assert home.peers == (away.routing_id,)
        await away.close()
        await until(lambda: home.peers == (), "it has left")
