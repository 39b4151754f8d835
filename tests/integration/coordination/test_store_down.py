"""Coordination on a real store process that dies or freezes, and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from hansa import sync
from hansa.chance import Chance
from hansa.coordination import Election, Lock, Members, NodeInfo, Session
from hansa.coordination.following import Following
from hansa.errors import LeadershipLost, LockLost, StoreUnavailable, TimedOut
from hansa.store import open_store
from hansa.transport.environment import Environment
from tests.conformance.store.test_trouble import CALLS, prepared
from tests.support.etcd_lag import LagMeter
from tests.support.store_process import StoreProcess

pytestmark = pytest.mark.timeout(60)

TTL_S = 2.0
# Less than a farewell takes that nobody answers, and much for a busy machine.
LATE_S_MAX = 1.5
CALL_S, CALL_LATE_S_MAX = 0.2, 0.1
READ_S = 0.1
AWAY: dict[str, Callable[[StoreProcess], None]] = {"killed": StoreProcess.kill, "frozen": StoreProcess.freeze}


@pytest.mark.spec("CRD-08", "CRD-11")
@pytest.mark.parametrize("away", AWAY)
async def test_a_leader_hears_of_its_loss_at_the_deadline_and_not_after_a_farewell(away: str) -> None:
    with StoreProcess(None) as process:
        async with open_store(f"etcd://{process.address}") as store:
            with pytest.raises(LeadershipLost, match="could not renew"):
                async with (
                    Members(store, NodeInfo(id="a"), heartbeat_interval=0.5, heartbeat_timeout=20.0),
                    Session(store, ttl=TTL_S) as session,
                    Election(session, "harbour").campaign() as leadership,
                ):
                    await asyncio.to_thread(AWAY[away], process)
                    await leadership.lost()
                    await asyncio.Event().wait()
            assert store.clock.monotonic() - session.deadline_s < LATE_S_MAX
            began_s = store.clock.monotonic()
        # Nor does closing the store wait for one that is not there.
        assert store.clock.monotonic() - began_s < LATE_S_MAX
        process.thaw()


@pytest.mark.spec("CRD-09")
def test_a_thread_hears_of_its_loss_at_the_deadline_and_not_after_a_farewell() -> None:
    with StoreProcess(None) as process, sync.open_store(f"etcd://{process.address}") as store:
        lost_s = 0.0
        with (
            pytest.raises(LockLost, match="could not renew"),
            sync.Session(store, ttl=20.0, renew_interval=0.5) as outer,
            sync.Lock(outer, "yard"),
            sync.Session(store, ttl=TTL_S) as session,
            sync.Lock(session, "dock") as hold,
        ):
            process.kill()
            hold.lost(timeout=20.0)
            lost_s = time.monotonic()
        assert time.monotonic() - lost_s < LATE_S_MAX


@pytest.mark.spec("CRD-11")
async def test_a_store_that_dies_costs_typed_errors_by_the_deadline_and_comes_back_without_a_restart(
    tmp_path: Path,
) -> None:
    """Nothing of the client is made anew: its session, its lock, its member and its follower go on."""
    loop = asyncio.get_running_loop()
    # By seed: two whose fourth pauses differ by 0.14 s.
    failed_s: dict[int, list[float]] = {2: [], 11: []}
    with StoreProcess(tmp_path / "data") as process:
        async with (
            open_store(f"etcd://{process.address}") as store,
            LagMeter() as meter,
            Session(store, ttl=40.0, renew_interval=0.5) as session,
            Lock(session, "dock") as hold,
            Members(store, NodeInfo(id="a"), heartbeat_interval=0.5, heartbeat_timeout=20.0) as members,
        ):
            on = await prepared(store)
            before = Following(store, "count/")
            await anext(before)
            await asyncio.to_thread(process.kill)
            followers = [
                Following(
                    store,
                    "count/",
                    timeout=READ_S,
                    environment=Environment(chance=Chance.seeded(seed)),
                    on_trouble=partial(lambda times, _: times.append(loop.time()), times),
                )
                for seed, times in failed_s.items()
            ]
            news = [asyncio.ensure_future(anext(follower)) for follower in (before, *followers)]
            late = []
            for name, call in CALLS.items():
                began_s = loop.time()
                with pytest.raises((StoreUnavailable, TimedOut)):
                    await call(store, on, CALL_S)
                took_s = loop.time() - began_s
                if took_s > CALL_S + CALL_LATE_S_MAX + meter.lag_s_since(began_s + CALL_S):
                    late.append(f"{name}: {took_s:.3f} s")
            assert late == []
            # By now both have tried several times, after pauses that grow, and not in step.
            one, other = (
                [later - earlier - READ_S for earlier, later in pairwise(times)]
                for times in failed_s.values()
            )
            for pauses in (one, other):
                assert len(pauses) >= 4
                assert max(pauses) > 4 * min(pauses)
            assert abs(one[3] - other[3]) > 0.05
            assert not any(each.done() for each in news)
            await asyncio.to_thread(process.start)
            await store.put("count/1", b"", timeout=20.0)
            async with asyncio.timeout(20):
                await asyncio.gather(*news)
                for follower in (before, *followers):
                    while b"count/1" not in follower.items:
                        await anext(follower)
                    follower.close()
                while session.failures_count or members.is_stale:
                    await asyncio.sleep(0.05)
            assert hold.is_held
            assert (await store.commit([hold.guard])).is_success
            assert members.is_member
            assert members.stats.rejoins_count == 0
