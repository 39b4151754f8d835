"""A store goes on with other members of its group: calls, watches and kept leases."""

import asyncio
from pathlib import Path

import pytest

from hansa.coordination.session import Session
from hansa.errors import BadEndpoint, UsageError
from hansa.store.etcd.client import EtcdStore
from hansa.store.values import EventKind
from tests.support.etcd_servers import EtcdGroup

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.timeout(60)]

# Longer than an election takes on a machine that has other work, and renewed often.
TTL_S = 10.0
RENEW_INTERVAL_S = 0.3


async def test_a_store_goes_on_with_other_members_when_all_it_began_with_are_gone(
    etcd_group: EtcdGroup,
) -> None:
    first, *others = etcd_group.endpoints
    async with EtcdStore([first]) as store, Session(store, TTL_S, renew_interval=RENEW_INTERVAL_S) as session:
        await store.put("kept", b"", lease=session.lease)
        watch = store.watch("k")
        begun = await watch.ready()
        revisions = [await store.put("k", b"before")]

        await store.set_endpoints(others)
        revisions.append(await store.put("k", b"between"))
        etcd_group.kill(0)
        # A put during an election may end without a known outcome; that is not what is looked at here.
        await etcd_group.led_by(other_than=0)
        await store.set_endpoints([others[1]])
        revisions += [await store.put("k", b"after", timeout=20.0) for _ in range(3)]

        told = [await anext(watch) for _ in revisions]
        assert [batch.revision for batch in told] == revisions
        assert begun <= revisions[0]
        # It is kept on, by the member that is left. A lease that ends takes its key along, as a watch tells.
        kept_until_s = session.deadline_s
        while session.deadline_s < kept_until_s + 3 * RENEW_INTERVAL_S:
            assert session.is_live
            await asyncio.sleep(0.05)
        item = await store.get("kept")
        assert item is not None
    async with EtcdStore(others) as other:
        ended = other.watch("kept", start_revision=item.mod_revision + 1)
        assert (await anext(ended)).events[0].kind is EventKind.DELETE
        ended.close()


async def test_connections_to_those_that_are_no_members_any_more_are_closed(etcd_group: EtcdGroup) -> None:
    first, second, _ = etcd_group.endpoints
    async with EtcdStore([first]) as store, Session(store, TTL_S, renew_interval=RENEW_INTERVAL_S) as session:
        watch = store.watch("k")
        await watch.ready()
        # Calls, with the watches among them, and renewals.
        await until_connections(first, at_least=2)
        await store.set_endpoints([second])
        revision = await store.put("k", b"")
        assert (await anext(watch)).revision == revision
        await until_connections(second, at_least=2)
        await until_connections(first, at_least=0, at_most=0)
        assert session.is_live
        watch.close()


async def until_connections(endpoint: str, *, at_least: int, at_most: int = 9) -> None:
    port = int(endpoint.rpartition(":")[2])
    async with asyncio.timeout(20.0):
        while not at_least <= connections_count(port) <= at_most:
            await asyncio.sleep(0.02)


def connections_count(port: int) -> int:
    """How many sockets of this process are connected to a port of this machine."""
    ours = {link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    tables = [path for path in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if path.exists()]
    lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    # Of a line: the remote address as hexadecimal, the state (1 is connected), the inode.
    return sum(
        int(line[2].rpartition(":")[2], 16) == port and line[3] == "01" and f"socket:[{line[9]}]" in ours
        for line in lines
    )


async def test_a_call_that_is_under_way_ends_where_it_is(etcd_group: EtcdGroup) -> None:
    first, second, _ = etcd_group.endpoints
    async with EtcdStore([first]) as store:
        await store.put("k", b"")
        etcd_group.pause(0)
        waiting = asyncio.ensure_future(store.put("k", b"late", timeout=20.0))
        # Then it is sent: a put is not repeated at another member.
        for _ in range(3):
            await asyncio.sleep(0)
        await store.set_endpoints([second])
        etcd_group.resume(0)
        revision = await waiting
        item = await store.get("k")
        assert item is not None
        assert (item.value, item.mod_revision) == (b"late", revision)


async def test_endpoints_that_cannot_be_are_refused_and_change_nothing(etcd_group: EtcdGroup) -> None:
    store = EtcdStore(etcd_group.endpoints[:1])
    with pytest.raises(UsageError):
        await store.set_endpoints(etcd_group.endpoints)
    async with store:
        for endpoints in ([], ["nowhere"], ["a:1", "a:1"]):
            with pytest.raises(BadEndpoint):
                await store.set_endpoints(endpoints)
        await store.put("k", b"")
