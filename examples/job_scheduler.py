"""A hundred jobs, shared out by a leader among four workers; the leader is killed, and nothing is lost.

Every process is a worker and a candidate for the leadership. A job is one key of the store, in one place at a
time: waiting, in the hands of a worker, or done. The leader gives waiting jobs, and the jobs of workers that
are not up, to workers that are up, each job in a transaction that is carried out only while the leader leads
(`leadership.guard`). A worker that has done a job moves it to done in a transaction, too, which compares that
the job is still its own. If the leader took the job away meanwhile, because the worker stood still, the work
counts for nothing. So every job counts once.

Run it:  python examples/job_scheduler.py
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import suppress

import hansa

WORKERS = ("anna", "bert", "carl", "dora")
JOBS = [f"{number:03}" for number in range(100)]
IN_HANDS_MAX, JOB_S, LOOK_S = 4, 0.04, 0.05


# ---- one process: a worker, and if it is elected also the leader --------------------------------------


async def take_part(name: str, address: str) -> None:
    """Ends with an error if the store is away for too long; others then get this worker's jobs."""
    async with (
        hansa.open_store(address) as store,
        hansa.Members(store, hansa.NodeInfo(id=name), heartbeat_interval=0.5, heartbeat_timeout=1) as members,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(work(name, store))
        while True:
            with suppress(hansa.Fenced):  # The leadership was lost: campaign again, with another session.
                async with (
                    hansa.Session(store, ttl=2) as session,
                    hansa.Election(session, "scheduler", value=name.encode()).campaign() as leadership,
                ):
                    print(f"{name} leads, term {leadership.term}", flush=True)
                    await share_out(store, members, leadership)


async def share_out(store: hansa.Store, members: hansa.Members, leadership: hansa.Leadership) -> None:
    while True:
        workers = [member.id for member in members.view.up()]
        in_hands = {item: item.key.decode().split("/")[1] for item in (await store.scan("hands/")).items}
        loads = Counter(in_hands.values())
        given_up = [item for item, worker in in_hands.items() if worker not in workers]
        for item in [*given_up, *(await store.scan("waiting/")).items]:
            worker = min(workers, key=loads.__getitem__, default="")
            if not worker or loads[worker] == IN_HANDS_MAX:
                break
            as_it_was = hansa.Compare.revision(item.key, "=", item.mod_revision)
            there = hansa.Put(f"hands/{worker}/{job_of(item)}", b"")
            moved = await store.commit([leadership.guard, as_it_was], [hansa.Delete(item.key), there])
            loads[worker] += moved.is_success
        await asyncio.sleep(LOOK_S)


async def work(name: str, store: hansa.Store) -> None:
    async for batch in store.watch(f"hands/{name}/", start_revision=1):
        for item in [event.item for event in batch.events if not event.item.is_deleted]:
            await asyncio.sleep(JOB_S)
            still_mine = hansa.Compare.revision(item.key, "=", item.mod_revision)
            done = hansa.Put(f"done/{job_of(item)}", name.encode())
            await store.commit([still_mine], [hansa.Delete(item.key), done])


def job_of(item: hansa.KeyValue) -> str:
    return item.key.decode().rpartition("/")[2]


# ---- the play: a store, four workers, and a kill -------------------------------------------------------


async def play() -> None:
    serve = ("-m", "hansa.cli", "store", "--memory", "--listen", "127.0.0.1:0", "--json")
    server = await asyncio.create_subprocess_exec(sys.executable, *serve, stdout=PIPE)
    processes = {"store": server}
    try:
        assert server.stdout is not None
        address = f"etcd://{json.loads(await server.stdout.readline())['address']}"
        for name in WORKERS:
            processes[name] = await asyncio.create_subprocess_exec(sys.executable, __file__, name, address)
        async with hansa.open_store(address) as store, hansa.Session(store) as session, asyncio.timeout(60):
            for job in JOBS:
                await store.put(f"waiting/{job}", b"")
            await first_done(store, len(JOBS) // 3)
            leaders = hansa.Election(session, "scheduler").observe()
            victim = await anext(leader.value.decode() async for leader in leaders if leader is not None)
            processes[victim].kill()
            in_hands = (await store.scan(f"hands/{victim}/")).items
            print(f"{victim} is killed with {len(in_hands)} jobs in hand", flush=True)
            done = await first_done(store, len(JOBS))
    finally:
        for process in processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    print("done by:", dict(Counter(item.value.decode() for item in done)))
    if sorted(map(job_of, done)) != JOBS:
        sys.exit("a job was lost, or done twice")
    print(f"{len(JOBS)} jobs, each done once")


async def first_done(store: hansa.Store, count: int) -> list[hansa.KeyValue]:
    done: list[hansa.KeyValue] = []
    async for batch in store.watch("done/", start_revision=1):
        done += [event.item for event in batch.events]
        if len(done) >= count:
            break
    return done


if __name__ == "__main__":
    asyncio.run(take_part(*sys.argv[1:]) if len(sys.argv) > 1 else play())
