"""kill -9 and SIGSTOP of either side, and heartbeats between hansa and libzmq."""

import asyncio
from pathlib import Path

import pytest

from hansa.transport import (
    CloseReason,
    Connected,
    Dealer,
    Disconnected,
    Environment,
    Router,
    SocketOptions,
    Sub,
)
from tests.support.interop import ROOMY, any_endpoint
from tests.support.peer_process import hansa_peer, zmq_peer
from tests.support.recorder import Recorder

BEATING = SocketOptions(
    heartbeat_interval=0.1, heartbeat_timeout=0.4, reconnect_s_min=0.02, reconnect_s_max=0.1
)
TRANSPORTS = pytest.mark.parametrize("transport", ["tcp", "ipc"])

pytestmark = pytest.mark.timeout(60)


@TRANSPORTS
@pytest.mark.parametrize("kind", ["router", "dealer"])
async def test_a_killed_libzmq_listener_is_found_again(transport: str, kind: str, tmp_path: Path) -> None:
    seen = Recorder()
    where = any_endpoint(transport, tmp_path)
    async with Dealer(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as dealer:
        for turn in range(3):
            async with zmq_peer(kind, "echo", bind=where, id="zmq") as peer:
                where = await peer.where()
                if turn == 0:
                    dealer.connect(where)
                await seen.wait(Connected, peer=b"zmq", count=turn + 1)
                await dealer.send([b"turn %d" % turn])
                assert (await dealer.recv()).parts == [b"turn %d" % turn]
                await peer.kill()
                gone = await seen.wait(Disconnected, count=turn + 1)
                assert gone.peer == b"zmq"
                assert gone.reason in (CloseReason.CLOSED_BY_PEER, CloseReason.CONNECTION_LOST)


async def test_messages_for_a_killed_libzmq_listener_wait_for_its_return() -> None:
    seen = Recorder()
    async with Router(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as router:
        async with zmq_peer("router", "echo", bind="tcp://127.0.0.1:*", id="zmq") as peer:
            where = await peer.where()
            router.connect(where)
            await seen.wait(Connected)
            await peer.kill()
        await seen.wait(Disconnected)
        for number in range(1_000):
            await router.send(b"zmq", [b"%d" % number])
        async with zmq_peer("router", "echo", bind=where, id="zmq"):
            async with asyncio.timeout(20):
                for number in range(1_000):
                    assert await router.recv() == (b"zmq", [b"%d" % number])


async def test_a_killed_libzmq_dealer_may_return_under_its_id() -> None:
    seen = Recorder()
    async with Router(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as router:
        where = str(await router.bind("tcp://127.0.0.1:0"))
        for turn in range(3):
            async with zmq_peer("dealer", "echo", connect=where, id="zmq") as peer:
                await seen.wait(Connected, peer=b"zmq", count=turn + 1)
                await router.send(b"zmq", [b"turn %d" % turn])
                assert await router.recv() == (b"zmq", [b"turn %d" % turn])
                await peer.kill()
                await seen.wait(Disconnected, peer=b"zmq", count=turn + 1)


async def test_a_killed_libzmq_publisher_is_subscribed_to_again() -> None:
    where = "tcp://127.0.0.1:*"
    async with Sub(environment=Environment(options=ROOMY)) as sub:
        sub.subscribe(b"hello")
        for turn in range(2):
            async with zmq_peer("pub", "source", bind=where) as peer:
                where = await peer.where()
                if turn == 0:
                    sub.connect(where)
                async with asyncio.timeout(20):
                    assert (await sub.recv()).parts == [b"hello"]
                await peer.kill()
                while sub.peers:
                    await asyncio.sleep(0.001)
                while sub.stats.inbox_count:
                    sub.recv_nowait()


@TRANSPORTS
@pytest.mark.parametrize("kind", ["router", "dealer"])
async def test_libzmq_finds_a_killed_hansa_listener_again(transport: str, kind: str, tmp_path: Path) -> None:
    where = any_endpoint(transport, tmp_path)
    to = {"to": "hansa"} if kind == "router" else {}
    async with hansa_peer("router", bind=where, id="hansa") as first:
        where = await first.where()
        async with zmq_peer(kind, "ask", connect=where, id="zmq", **to) as asker:
            await asker.where()
            await asker.say("before")
            assert (await asker.hear())["answer"] == "before"
            await first.kill()
            async with hansa_peer("router", bind=where, id="hansa") as second:
                assert await second.where() == where
                await asker.say("after")
                assert (await asker.hear())["answer"] == "after"


async def test_a_killed_hansa_dealer_may_return_to_libzmq_under_its_id() -> None:
    async with zmq_peer("router", "ask", bind="tcp://127.0.0.1:*", to="hansa") as asker:
        where = await asker.where()
        for question in ("before", "after", "once more"):
            async with hansa_peer("dealer", connect=where, id="hansa") as peer:
                await peer.where()
                await asker.say(question)
                assert (await asker.hear())["answer"] == question
                await peer.kill()


@pytest.mark.parametrize("hansa_binds", [True, False])
async def test_heartbeats_of_both_sides_keep_an_idle_connection(hansa_binds: bool) -> None:
    seen = Recorder()
    async with Router(b"hansa", environment=Environment(options=BEATING), on_event=seen) as router:
        if hansa_binds:
            where = {"connect": str(await router.bind("tcp://127.0.0.1:0"))}
        else:
            where = {"bind": "tcp://127.0.0.1:*"}
        async with zmq_peer("dealer", "wait", heartbeat_ms=100, id="zmq", **where) as peer:
            endpoint = await peer.where()
            if not hansa_binds:
                router.connect(endpoint)
            await seen.wait(Connected)
            assert await peer.hear() == {"seen": "connected"}
            # Idle for three timeouts: libzmq reports nothing more, and neither do we.
            silence = asyncio.ensure_future(peer.hear())
            done, _ = await asyncio.wait({silence}, timeout=1.2)
            assert not done
            assert not seen.of(Disconnected)
            silence.cancel()
            await asyncio.wait({silence})


async def test_heartbeats_of_libzmq_alone_are_answered() -> None:
    seen = Recorder()
    options = SocketOptions(heartbeat_interval=None)
    async with Router(b"hansa", environment=Environment(options=options), on_event=seen) as router:
        where = str(await router.bind("tcp://127.0.0.1:0"))
        async with zmq_peer("dealer", "wait", heartbeat_ms=50, id="zmq", connect=where) as peer:
            await peer.where()
            assert await peer.hear() == {"seen": "connected"}
            silence = asyncio.ensure_future(peer.hear())
            done, _ = await asyncio.wait({silence}, timeout=0.6)
            assert not done
            silence.cancel()
            await asyncio.wait({silence})


@pytest.mark.parametrize("hansa_binds", [True, False])
async def test_a_frozen_libzmq_peer_is_noticed_in_time(hansa_binds: bool) -> None:
    seen = Recorder()
    loop = asyncio.get_running_loop()
    async with Router(b"hansa", environment=Environment(options=BEATING), on_event=seen) as router:
        if hansa_binds:
            where = {"connect": str(await router.bind("tcp://127.0.0.1:0"))}
        else:
            where = {"bind": "tcp://127.0.0.1:*"}
        async with zmq_peer("dealer", "wait", id="zmq", **where) as peer:
            endpoint = await peer.where()
            if not hansa_binds:
                router.connect(endpoint)
            await seen.wait(Connected, peer=b"zmq")
            peer.freeze()
            frozen_at = loop.time()
            gone = await seen.wait(Disconnected, within_s=5)
            assert (gone.peer, gone.reason) == (b"zmq", CloseReason.HEARTBEAT_TIMEOUT)
            assert loop.time() - frozen_at < 2.0


async def test_libzmq_notices_a_frozen_hansa_peer() -> None:
    async with hansa_peer("router", bind="tcp://127.0.0.1:0", id="hansa") as frozen:
        where = await frozen.where()
        async with zmq_peer("dealer", "wait", heartbeat_ms=100, connect=where) as peer:
            await peer.where()
            assert await peer.hear() == {"seen": "connected"}
            frozen.freeze()
            assert await peer.hear() == {"seen": "disconnected"}


async def test_libzmq_is_told_when_its_socket_type_does_not_fit() -> None:
    seen = Recorder()
    async with Router(b"hansa", environment=Environment(options=ROOMY), on_event=seen) as router:
        where = str(await router.bind("tcp://127.0.0.1:0"))
        async with zmq_peer("sub", "wait", connect=where) as peer:
            await peer.where()
            assert await peer.hear() in ({"seen": "handshake failed"}, {"seen": "disconnected"})
            assert router.peers == ()
