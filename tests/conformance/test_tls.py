"""TLS: both sides prove who they are, and an id belongs to the certificate that first used it."""

import asyncio
import ssl

import pytest

from hansa.endpoint import Endpoint
from hansa.errors import BadArgument
from hansa.transport import (
    CloseReason,
    Connected,
    Dealer,
    Disconnected,
    Environment,
    HandshakeFailed,
    Message,
    Router,
    Tls,
)
from tests.support.certificates import Authority
from tests.support.lanes import quick
from tests.support.raw_peer import RawPeer
from tests.support.recorder import Recorder

ANY = "tls://127.0.0.1:0"


@pytest.mark.parametrize("alternative", [True, False], ids=["other alternative names", "other common name"])
async def test_the_same_id_from_another_certificate_is_refused(
    authority: Authority, alternative: bool
) -> None:
    seen, seen_by_thief = Recorder(), Recorder()
    alice, mallory = (authority.issue(name, alternative=alternative) for name in ("alice", "mallory"))
    async with Router(
        b"hub", environment=Environment(tls=authority.issue("hub"), options=quick()), on_event=seen
    ) as hub:
        endpoint = str(await hub.bind(ANY))
        async with Dealer(b"alice", environment=Environment(tls=alice, options=quick())) as honest:
            honest.connect(endpoint)
            await seen.wait(Connected, peer=b"alice")
        await seen.wait(Disconnected, peer=b"alice")
        # The id is free now, and still alice's.
        async with Dealer(
            b"alice", environment=Environment(tls=mallory, options=quick()), on_event=seen_by_thief
        ) as thief:
            thief.connect(endpoint)
            refused = await seen.wait(HandshakeFailed)
            assert (refused.peer, refused.reason) == (b"alice", CloseReason.ID_NOT_ALLOWED)
            assert (await seen_by_thief.wait(HandshakeFailed)).reason == CloseReason.REFUSED_BY_PEER
            assert hub.peers == ()
            assert hub.stats.ended[CloseReason.ID_NOT_ALLOWED] >= 1
        async with Dealer(b"alice", environment=Environment(tls=alice, options=quick())) as honest:
            await honest.connect(endpoint).up()
            await honest.send([b"it is me again"])
            assert await hub.recv() == Message(b"alice", [b"it is me again"])


async def test_a_thief_does_not_take_over_either(authority: Authority) -> None:
    seen = Recorder()
    options = quick(takeover=True)
    async with (
        Router(
            b"hub", environment=Environment(tls=authority.issue("hub"), options=options), on_event=seen
        ) as hub,
        Dealer(b"alice", environment=Environment(tls=authority.issue("alice"), options=quick())) as honest,
        Dealer(b"alice", environment=Environment(tls=authority.issue("mallory"), options=quick())) as thief,
    ):
        endpoint = str(await hub.bind(ANY))
        await honest.connect(endpoint).up()
        await seen.wait(Connected, peer=b"alice")
        thief.connect(endpoint)
        assert (await seen.wait(HandshakeFailed)).reason == CloseReason.ID_NOT_ALLOWED
        await honest.send([b"undisturbed"])
        assert await hub.recv() == Message(b"alice", [b"undisturbed"])
        assert not seen.of(Disconnected)


async def test_a_dialled_id_is_bound_to_the_certificate_too(authority: Authority) -> None:
    seen = Recorder()
    async with Dealer(
        b"leaf", environment=Environment(tls=authority.issue("leaf"), options=quick()), on_event=seen
    ) as leaf:
        async with Router(
            b"hub", environment=Environment(tls=authority.issue("hub"), options=quick())
        ) as hub:
            endpoint = str(await hub.bind(ANY))
            await leaf.connect(endpoint).up()
        await seen.wait(Disconnected)
        async with Router(
            b"hub", environment=Environment(tls=authority.issue("impostor"), options=quick())
        ) as impostor:
            await impostor.bind(endpoint)
            refused = await seen.wait(HandshakeFailed, reason=CloseReason.ID_NOT_ALLOWED)
            assert refused.peer == b"hub"


async def test_a_renewed_certificate_of_the_same_node_keeps_its_ids(authority: Authority) -> None:
    seen = Recorder()
    async with Router(
        b"hub", environment=Environment(tls=authority.issue("hub"), options=quick()), on_event=seen
    ) as hub:
        endpoint = str(await hub.bind(ANY))
        for turn in range(2):
            async with Dealer(
                b"alice", environment=Environment(tls=authority.issue("alice"), options=quick())
            ) as alice:
                alice.connect(endpoint)
                await seen.wait(Connected, peer=b"alice", count=turn + 1)
            await seen.wait(Disconnected, peer=b"alice", count=turn + 1)


async def test_one_certificate_may_use_several_ids(authority: Authority) -> None:
    node = authority.issue("node")
    async with (
        Router(b"hub", environment=Environment(tls=node, options=quick())) as hub,
        Dealer(b"a", environment=Environment(tls=node, options=quick())) as a,
        Dealer(b"b", environment=Environment(tls=node, options=quick())) as b,
    ):
        endpoint = str(await hub.bind(ANY))
        await a.connect(endpoint).up()
        await b.connect(endpoint).up()


async def test_a_certificate_of_a_foreign_authority_is_refused_on_either_side(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    foreign = Authority.create(tmp_path_factory.mktemp("foreign"))
    for hub_tls, leaf_tls in (
        (authority.issue("hub"), foreign.issue("leaf")),
        (foreign.issue("hub"), authority.issue("leaf")),
    ):
        at_hub, at_leaf = Recorder(), Recorder()
        async with (
            Router(b"hub", environment=Environment(tls=hub_tls, options=quick()), on_event=at_hub) as hub,
            Dealer(b"leaf", environment=Environment(tls=leaf_tls, options=quick()), on_event=at_leaf) as leaf,
        ):
            leaf.connect(str(await hub.bind(ANY)))
            await at_leaf.wait(HandshakeFailed)
            await at_hub.wait(HandshakeFailed)
            assert (hub.peers, leaf.peers) == ((), ())
            assert not at_hub.of(Connected)
            assert not at_leaf.of(Connected)


async def test_a_client_without_a_certificate_gets_no_byte_of_zmtp(authority: Authority) -> None:
    seen = Recorder()
    hub_tls = authority.issue("hub")
    async with Router(b"hub", environment=Environment(tls=hub_tls, options=quick()), on_event=seen) as hub:
        endpoint = await hub.bind(ANY)
        context = ssl.create_default_context(cafile=hub_tls.ca)
        raw = RawPeer()
        loop = asyncio.get_running_loop()
        # In TLS 1.3 the client's side is done before the server has judged it.
        try:
            await loop.create_connection(lambda: raw, endpoint.host, endpoint.port, ssl=context)
        except OSError:
            raw.lost.set_result(None)
        await raw.lost
        await seen.wait(HandshakeFailed)
        assert raw.received_bytes == 0


async def test_old_tls_is_refused(authority: Authority) -> None:
    tls = authority.issue("hub")
    async with Router(b"hub", environment=Environment(tls=tls, options=quick())) as hub:
        endpoint = await hub.bind(ANY)
        context = ssl.create_default_context(cafile=tls.ca)
        context.load_cert_chain(tls.cert, tls.key)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        loop = asyncio.get_running_loop()
        with pytest.raises(OSError):  # noqa: PT011 the words differ between the loops
            await loop.create_connection(RawPeer, endpoint.host, endpoint.port, ssl=context)


async def test_tls_without_credentials_is_a_usage_error() -> None:
    async with Router(b"hub", environment=Environment(options=quick())) as hub:
        with pytest.raises(BadArgument, match="tls="):
            await hub.bind(ANY)
        with pytest.raises(BadArgument, match="tls="):
            hub.connect("tls://127.0.0.1:5555")


async def test_credentials_that_cannot_be_read_are_a_usage_error(authority: Authority) -> None:
    good = authority.issue("node")
    with pytest.raises(BadArgument, match=r"nowhere\.pem"):
        Router(environment=Environment(tls=Tls(cert=good.cert, key=good.key, ca="nowhere.pem")))


async def plain(endpoint: Endpoint) -> RawPeer:
    """A connection to a TLS endpoint that speaks no TLS."""
    raw = RawPeer()
    await asyncio.get_running_loop().create_connection(lambda: raw, endpoint.host, endpoint.port)
    return raw


async def test_garbage_instead_of_tls_is_turned_away(authority: Authority) -> None:
    seen = Recorder()
    async with Router(
        b"hub", environment=Environment(tls=authority.issue("hub"), options=quick()), on_event=seen
    ) as hub:
        raw = await plain(await hub.bind(ANY))
        raw.send(b"GET / HTTP/1.1\r\n\r\n" * 10)
        await seen.wait(HandshakeFailed)
        await raw.lost


async def test_a_silent_connection_to_a_tls_endpoint_is_cut_in_time(authority: Authority) -> None:
    seen = Recorder()
    options = quick(handshake_s_max=0.2)
    async with Router(
        b"hub", environment=Environment(tls=authority.issue("hub"), options=options), on_event=seen
    ) as hub:
        raw = await plain(await hub.bind(ANY))
        await seen.wait(HandshakeFailed, within_s=3)
        await raw.lost


async def test_unauthenticated_connections_are_counted_before_tls(authority: Authority) -> None:
    seen = Recorder()
    options = quick(handshaking_max=3)
    tls = authority.issue("hub")
    async with Router(b"hub", environment=Environment(tls=tls, options=options), on_event=seen) as hub:
        endpoint = await hub.bind(ANY)
        silent = [await plain(endpoint) for _ in range(4)]
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason == CloseReason.TOO_MANY_HANDSHAKING
        for raw in silent:
            raw.abort()
        await seen.wait(HandshakeFailed, count=4)
        async with Dealer(b"leaf", environment=Environment(tls=tls, options=quick())) as leaf:
            await leaf.connect(str(endpoint)).up()


async def test_connections_that_vanish_before_tls_leave_no_trace(authority: Authority) -> None:
    seen = Recorder()
    options = quick(handshaking_max=5)
    tls = authority.issue("hub")
    async with Router(b"hub", environment=Environment(tls=tls, options=options), on_event=seen) as hub:
        endpoint = await hub.bind(ANY)
        for _ in range(50):
            (await plain(endpoint)).abort()
            await asyncio.sleep(0)
        await seen.wait(HandshakeFailed, count=50)
        assert hub.stats.handshaking_count == 0
        async with Dealer(b"leaf", environment=Environment(tls=tls, options=quick())) as leaf:
            await leaf.connect(str(endpoint)).up()
