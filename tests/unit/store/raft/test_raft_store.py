"""A group's store goes to the members there are: its own first, and others when all it knew are gone.

Each member is played by a store server of its own, so that what was written tells where it went.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest

from hansa.errors import StoreUnavailable
from hansa.store.etcd.client import EtcdStore
from hansa.store.raft import raft_store
from hansa.store.raft.group_record import GroupRecord, PeerInfo, RaftKeys, encode
from hansa.store.raft.join_client import JoinClient
from hansa.store.raft.raft_events import GroupStatus, PeerStatus
from hansa.store.raft.raft_store import MemberAddresses, RaftStore, open_raft_store
from hansa.store.served.server import StoreServer

KEYS = RaftKeys("default", "orders")
WITHIN_S = 20.0


class Peers:
    """What `find` is answered by: says where the members are, or that nobody answers."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.own = ""
        self.asked_count = 0
        self.refusals_left = 0

    async def find(self) -> MemberAddresses:
        self.asked_count += 1
        if self.refusals_left:
            self.refusals_left -= 1
            raise StoreUnavailable("nobody answers")
        return MemberAddresses(keys=KEYS, addresses=self.addresses, own=self.own)


@pytest.fixture
def peers() -> Peers:
    return Peers()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)


async def keep_a_lease(store: RaftStore) -> None:
    """Renewed where it was granted: the others, each with a store of its own, would call it lost."""
    lease = await store.grant(2 * WITHIN_S)
    # It is due at once, and one renewal may take as long as the interval: nothing here is a matter of speed.
    granted_s = store.clock.monotonic() - WITHIN_S
    keeping = store.keep(
        lease,
        ttl=2 * WITHIN_S,
        granted_s=granted_s,
        interval=WITHIN_S,
        loop_silence_s_max=WITHIN_S,
        on_change=lambda: None,
    )
    await until(lambda: keeping.is_lost or keeping.kept_until_s > granted_s + 2 * WITHIN_S)
    assert not keeping.is_lost
    keeping.stop()


async def serve(stack: AsyncExitStack) -> StoreServer:
    """A member whose record names itself alone."""
    server = await stack.enter_async_context(StoreServer("127.0.0.1:0"))
    peer = PeerInfo(name="n1", peer_address="h:1", client_address=server.address, join_address="h:2")
    async with EtcdStore([server.address]) as store:
        await store.put(KEYS.group, encode(GroupRecord(app="orders", version=1, peers=(peer,))))
    return server


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_store, "RAFT_SEEK_S_MIN", 0.01)
    monkeypatch.setattr(raft_store, "RAFT_SEEK_S_MAX", 0.05)
    monkeypatch.setattr(raft_store, "STORE_TIMEOUT_S", 0.3)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is slow on a busy machine is not one that fails: nobody goes to the next one for that."""
    monkeypatch.setattr(raft_store, "EtcdStore", partial(EtcdStore, try_timeout=WITHIN_S))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("number", range(3))
async def test_it_begins_at_the_member_of_its_own_peer(
    stack: AsyncExitStack, peers: Peers, number: int
) -> None:
    servers = [await stack.enter_async_context(StoreServer("127.0.0.1:0")) for _ in range(3)]
    peers.addresses = tuple(server.address for server in servers)
    peers.own = servers[number].address
    for turn in range(3):
        async with RaftStore(peers.find, name="orders") as store:
            await store.put(f"berth/{turn}", b"cog")
            watch = store.watch("berth/")
            await watch.ready()
            watch.close()
            await keep_a_lease(store)
    for server in servers:
        is_own = server is servers[number]
        assert (server.watch_stats.streams_count > 0) == is_own
        async with EtcdStore([server.address]) as direct:
            assert (await direct.scan("berth/")).count == (3 if is_own else 0)


async def test_a_group_whose_founders_have_not_all_started_has_a_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def described(self: JoinClient, *, timeout: float) -> GroupStatus:
        infos = [
            PeerInfo(name=name, peer_address="h:1", client_address=at, join_address="h:2")
            for name, at in (("n1", "127.0.0.1:1"), ("n2", "127.0.0.1:2"), ("", ""))
        ]
        return GroupStatus(
            app="orders",
            cluster="default",
            leader="n1",
            term=2,
            record_version=2,
            peers=tuple(
                PeerStatus(peer=one, role="follower", is_voter=True, is_healthy=True) for one in infos
            ),
        )

    monkeypatch.setattr(JoinClient, "describe", described)
    async with open_raft_store("127.0.0.1:3/orders") as store:
        assert store.addresses == ("127.0.0.1:1", "127.0.0.1:2")


@pytest.mark.usefixtures("hasty")
async def test_one_that_was_cut_off_while_all_members_were_replaced_finds_the_new_ones(
    stack: AsyncExitStack, peers: Peers
) -> None:
    async with AsyncExitStack() as old_life:
        old = await serve(old_life)
        peers.addresses = (old.address,)
        store = await stack.enter_async_context(RaftStore(peers.find, name="orders"))
        await store.put("berth", b"cog")
        # Two stores stand for one group here: the revisions of the later one are higher.
        new = await serve(stack)
        peers.addresses = (new.address,)
        peers.refusals_left = 2
    await until(lambda: store.addresses == (new.address,))
    # Once when it was opened, twice in vain, and then it was told.
    assert peers.asked_count == 4
    await store.put("berth", b"hulk")
    async with EtcdStore([new.address]) as direct:
        found = await direct.get("berth")
    assert found is not None
    assert found.value == b"hulk"
    assert store.changes_count == 1


@pytest.mark.usefixtures("hasty")
async def test_nobody_is_asked_while_the_members_answer(
    stack: AsyncExitStack, peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(stack)
    peers.addresses = (server.address,)
    store = await stack.enter_async_context(RaftStore(peers.find, name="orders"))
    reads_count = 0
    get = store._store.get

    async def counted(*arguments: object, **options: object) -> object:
        nonlocal reads_count
        reads_count += 1
        return await get(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store._store, "get", counted)
    await until(lambda: reads_count >= 5)
    assert peers.asked_count == 1
