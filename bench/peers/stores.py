"""hansa's own client of a store: with etcd, `hansa store`, a raft group of three, or the store in memory.

Settings: the defaults. Put and get are one key each; a lock is taken and given back by one session; a change
is told to so many watches of a second client in the same process. Candidates and members have sessions of
two seconds, the shortest that etcd grants.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bench.job import Job
from bench.kinds.store import CROWDS_COUNT
from bench.link import Link
from bench.load import keep_in_flight
from bench.peers import store_server
from bench.peers.control import control
from hansa.coordination import Election, Leadership, Lock, Members, NodeInfo, NodeRegistry, Session
from hansa.store import Store, Watch, open_store

__all__ = ["broker", "candidate", "control", "crowd", "fan", "get", "lock", "put", "successor"]

KEY, LOCK, ELECTION = "/bench/key", "bench", "bench"
SESSION_S = 2.0
TIMEOUT_S = 10.0
VIEWS_COUNT_MAX = 50
"""Members of a process that have a view; the processes of a real cluster have one each."""
HEARTBEAT_TIMEOUT_S = 5.0


def broker(job: Job, link: Link) -> None:
    """The store's process."""
    match job.peer.variant:
        case "etcd":
            store_server.serve_etcd(job, link)
        case "raft":
            asyncio.run(store_server.serve_raft(job, link))
        case _:
            store_server.serve_hansa(job, link)


@asynccontextmanager
async def _opened(job: Job) -> AsyncIterator[Store]:
    addresses = {"memory": "memory://bench", "raft": f"raft://{job.address}/{store_server.RAFT_APP}"}
    async with open_store(addresses.get(job.peer.variant, f"etcd://{job.address}")) as store:
        yield store


async def put(job: Job, link: Link) -> None:
    """One key is put again and again."""
    async with _opened(job) as store:

        async def request(payload: bytes) -> bytes:
            await store.put(KEY, payload, timeout=TIMEOUT_S)
            return payload

        await request(job.payload)
        link.ready()
        await keep_in_flight(request, job, link)


async def get(job: Job, link: Link) -> None:
    """One key is read again and again, linearizably."""
    async with _opened(job) as store:
        await store.put(KEY, job.payload)

        async def request(_payload: bytes) -> bytes:
            found = await store.get(KEY, timeout=TIMEOUT_S)
            assert found is not None
            return found.value

        link.ready()
        await keep_in_flight(request, job, link)


async def lock(job: Job, link: Link) -> None:
    """A lock is taken and given back by each of `width` contenders."""
    async with _opened(job) as store, Session(store) as session:

        async def request(payload: bytes) -> bytes:
            hold = await Lock(session, LOCK).acquire()
            await hold.release()
            return payload

        await request(b"")
        link.ready()
        await keep_in_flight(request, job, link)


async def fan(job: Job, link: Link) -> None:
    """Put, and wait until every watch has told of it."""
    async with _opened(job) as store, _opened(job) as watcher:
        watches = [watcher.watch(KEY, exact=True) for _ in range(job.case.width)]
        await asyncio.gather(*(watch.ready(timeout=60.0) for watch in watches))
        told = _Told(job.case.width)
        async with asyncio.TaskGroup() as readers:
            for number, watch in enumerate(watches):
                readers.create_task(told.read(watch), name=f"watch-{number}")
            link.ready()
            while True:
                begun_ns = time.perf_counter_ns()
                told.waiting_count = job.case.width
                told.all.clear()
                await store.put(KEY, job.payload, timeout=TIMEOUT_S)
                await told.all.wait()
                link.latencies_ns.append(time.perf_counter_ns() - begun_ns)
                link.count += job.case.width


class _Told:
    """Counts down the watches that have not told yet."""

    def __init__(self, watches_count: int) -> None:
        self.waiting_count = watches_count
        self.all = asyncio.Event()

    async def read(self, watch: Watch) -> None:
        async for _batch in watch:
            self.waiting_count -= 1
            if not self.waiting_count:
                self.all.set()


async def candidate(job: Job, link: Link) -> None:
    """Stands in line for a leadership, and leads until it is killed."""
    async with _opened(job) as store, Session(store, ttl=SESSION_S) as session, asyncio.TaskGroup() as tasks:
        link.ready()
        await _lead(session, tasks, link)
        await asyncio.Event().wait()


async def _lead(session: Session, tasks: asyncio.TaskGroup, link: Link) -> Leadership:
    """Stand in line when told to, and say when it leads."""
    assert await link.order() == ["stand"]
    line = session.keys.leader(ELECTION)
    before = await session.store.scan(line, timeout=TIMEOUT_S)
    winning = tasks.create_task(Election(session, ELECTION).win(), name="campaign")
    watch = session.store.watch(line, start_revision=before.revision + 1)
    async for batch in watch:
        # Its own key is there: those who come later stand behind it.
        if any(event.item.lease == session.lease for event in batch.events):
            break
    watch.close()
    link.done()
    assert await link.order() == ["lead"]
    leadership = await winning
    link.done(at_s=time.monotonic())
    return leadership


async def successor(job: Job, link: Link) -> None:
    """Leads until it is told to whom to hand over, and stands in line again."""
    async with (
        _opened(job) as store,
        Session(store, node=str(job.index)) as session,
        asyncio.TaskGroup() as tasks,
    ):
        link.ready()
        while True:
            leadership = await _lead(session, tasks, link)
            give, to = await link.order()
            assert give == "give"
            stopped_s: list[float] = []

            async def stop(stopped_s: list[float] = stopped_s) -> bytes:
                stopped_s.append(time.monotonic())
                return b""

            begun_s = time.monotonic()
            await leadership.hand_over(to, state=stop)
            link.done(begun_s=begun_s, stopped_s=stopped_s[0])


async def crowd(job: Job, link: Link) -> None:
    """A share of the members over one client: some with a view of all of them, the others only stay."""
    count = job.case.width // CROWDS_COUNT
    nodes = [NodeInfo(id=f"{number:04}-{job.index}", host="127.0.0.1", port=1) for number in range(count)]
    # Spread over the ring, so that everybody is looked after by somebody.
    step = max(count // VIEWS_COUNT_MAX, 1)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(_opened(job))
        stays = await stack.enter_async_context(asyncio.TaskGroup())
        registry = NodeRegistry(store, ttl=2 * HEARTBEAT_TIMEOUT_S)
        link.ready()
        assert await link.order() == ["join"]
        begun_s = time.monotonic()
        views: list[Members] = []
        for number, node in enumerate(nodes):
            if number % step == 0 and len(views) < VIEWS_COUNT_MAX:
                views.append(await stack.enter_async_context(Members(store, node)))
            else:
                stays.create_task(registry.register(node), name=node.id)
        while any(len(view.view.here()) < job.case.width for view in views):  # noqa: ASYNC110 - of all views
            await asyncio.sleep(0.05)
        link.gauges = lambda: {
            "suspicions": float(sum(view.stats.suspicions_count for view in views)),
            "unseen": float(sum(job.case.width - len(view.view.here()) for view in views)),
        }
        link.done(seconds=time.monotonic() - begun_s, views=len(views))
        await asyncio.Event().wait()
