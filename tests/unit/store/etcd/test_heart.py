"""When leases are renewed, and that a thread of its own does it whatever the event loop does."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from hansa.limits import STORE_PULSE_S_MAX, STORE_PULSE_S_MIN
from hansa.store.etcd.client import EtcdStore
from hansa.store.etcd.heart import KeptLease, LeaseBook, Pulse
from hansa.store.served.server import StoreServer
from hansa.store.store import Keeping
from tests.support.tcp_proxy import TcpProxy


def kept(interval_s: float = 3.0, silence_s_max: float = 10.0) -> KeptLease:
    return KeptLease(7, ttl_s=10.0, granted_s=100.0, interval_s=interval_s, silence_s_max=silence_s_max)


def is_due(lease: KeptLease, now: float, silence_s: float = 0.0) -> bool:
    return lease.is_due(now=now, silence_s=silence_s)


@pytest.mark.spec("CRD-07")
def test_a_lease_is_renewed_every_interval_and_kept_from_when_it_was_sent() -> None:
    lease = kept()
    assert lease.kept_until_s == 110.0
    assert (is_due(lease, 102.9), is_due(lease, 103.0)) == (False, True)
    lease.asked()
    assert not is_due(lease, 104.0)
    lease.answered(10.0, sent_s=103.0)
    assert lease.kept_until_s == 113.0
    assert (is_due(lease, 105.9), is_due(lease, 106.0)) == (False, True)


def test_a_lease_is_kept_no_longer_than_it_was_asked_for_nor_than_it_was_given() -> None:
    lease = kept()
    lease.answered(60.0, sent_s=103.0)
    assert lease.kept_until_s == 113.0
    lease.answered(2.0, sent_s=106.0)
    assert lease.kept_until_s == 108.0


def test_a_failed_renewal_goes_to_each_member_at_once_and_then_comes_sooner() -> None:
    lease = kept()
    for failures_count, due_s in ((1, 103.0), (2, 103.0), (3, 103.75), (4, 103.0)):
        lease.asked()
        lease.failed(now=103.0, members_count=3)
        assert (lease.failures_count, lease.due_s) == (failures_count, due_s)
    assert lease.kept_until_s == 110.0
    lease.answered(10.0, sent_s=104.0)
    assert lease.failures_count == 0


def test_a_lease_is_lost_when_the_store_says_so_twice() -> None:
    lease = kept()
    lease.answered(0.0, sent_s=103.0)
    assert not lease.is_lost
    assert is_due(lease, 103.1)
    lease.answered(10.0, sent_s=103.1)
    lease.answered(0.0, sent_s=106.0)
    assert not lease.is_lost
    lease.answered(0.0, sent_s=106.1)
    assert lease.is_lost
    assert not is_due(lease, 200.0)


@pytest.mark.spec("CRD-17")
def test_a_lease_of_a_store_that_went_back_is_lost_whatever_that_store_answers() -> None:
    for ttl_s in (10.0, 0.0):
        lease = kept()
        lease.asked()
        lease.lose()
        lease.answered(ttl_s, sent_s=103.0)
        assert lease.is_lost
        assert not is_due(lease, 200.0)


@pytest.mark.spec("CRD-07")
def test_a_loop_that_is_silent_for_too_long_holds_renewals_back_until_it_answers() -> None:
    book, lease = LeaseBook(), kept(silence_s_max=2.0)
    book.add(lease)
    assert book.wants_pulse(now=100.0)
    book.pulse.sent(now=100.0)
    assert not book.wants_pulse(now=104.0)
    # Not longer than 2 s: at 102 it would have been renewed, at 103, when it is due, no more.
    assert book.due(now=103.0) == []
    book.pulse.answered(now=104.0)
    assert book.due(now=104.0) == [lease]


def test_a_loop_that_is_late_but_not_too_late_holds_nothing_back() -> None:
    book, lease = LeaseBook(), kept(silence_s_max=4.0)
    book.add(lease)
    book.pulse.sent(now=100.0)
    assert book.due(now=103.0) == [lease]


def test_the_lag_of_the_loop_grows_while_it_does_not_answer() -> None:
    pulse = Pulse()
    assert pulse.lag_s(now=50.0) == 0.0
    pulse.sent(now=100.0)
    assert pulse.lag_s(now=100.5) == 0.5
    assert pulse.answered(now=101.0) == 1.0
    assert (pulse.lag_s(now=105.0), pulse.silence_s(now=105.0)) == (1.0, 0.0)
    pulse.sent(now=106.0)
    # It is not shorter just because it was asked again.
    assert pulse.lag_s(now=106.1) == 1.0
    pulse.answered(now=106.1)
    assert pulse.lag_s(now=107.0) == pytest.approx(0.1)


@pytest.mark.spec("CRD-07")
def test_what_held_up_the_keeper_held_up_the_loop_as_well() -> None:
    """Both were stopped by code that holds the interpreter: neither could measure the other meanwhile."""
    book, lease = LeaseBook(), kept(interval_s=2.0, silence_s_max=4.0)
    book.add(lease)
    book.send_pulse(now=100.0)
    book.pulse.answered(now=100.0)
    assert book.deadline(now=100.1) == pytest.approx(100.6)
    # It meant to look at 100.6, and comes five seconds late.
    assert book.wants_pulse(now=105.6)
    book.send_pulse(now=105.6)
    assert book.pulse.lag_s(now=105.6) == pytest.approx(5.0)
    # So long a silence renews nothing before the loop has answered.
    assert book.due(now=105.6) == []
    assert book.pulse.answered(now=105.61) == pytest.approx(5.01)
    assert book.due(now=105.61) == [lease]
    # Who had nothing to look at was not late.
    book.remove(lease)
    assert book.deadline(now=106.0) is None
    book.add(lease)
    book.send_pulse(now=200.0)
    assert book.pulse.lag_s(now=200.0) == pytest.approx(5.01)
    assert book.pulse.answered(now=200.0) == 0.0


def test_the_keeper_looks_again_when_the_next_is_due_and_for_the_next_pulse() -> None:
    book = LeaseBook()
    assert book.deadline(now=100.0) is None
    assert not book.wants_pulse(now=100.0)
    slow, quick = kept(interval_s=2.0), kept(interval_s=0.4)
    book.add(slow)
    assert book.pulse_s == 0.5
    book.pulse.sent(now=100.0)
    book.pulse.answered(now=100.0)
    assert (book.wants_pulse(now=100.4), book.wants_pulse(now=100.5)) == (False, True)
    book.add(quick)
    assert book.pulse_s == pytest.approx(0.1)
    assert book.deadline(now=100.35) == pytest.approx(100.4)
    quick.asked()
    assert book.deadline(now=100.35) == pytest.approx(100.45)
    book.remove(quick)
    book.remove(quick)
    assert book.pulse_s == 0.5
    for interval_s, pulse_s in ((0.001, STORE_PULSE_S_MIN), (500.0, STORE_PULSE_S_MAX)):
        lone = LeaseBook()
        lone.add(kept(interval_s=interval_s))
        assert lone.pulse_s == pulse_s


def test_a_held_back_renewal_does_not_make_the_keeper_spin() -> None:
    book, lease = LeaseBook(), kept(interval_s=2.0, silence_s_max=1.0)
    book.add(lease)
    book.pulse.sent(now=100.0)
    assert book.deadline(now=105.0) == 105.5


pytestmark = [pytest.mark.spec("CRD-07"), pytest.mark.timeout(30)]

TTL_S = 10.0
INTERVAL_S = 0.2


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    """A way to a store that the test can make slow, or cut."""
    async with StoreServer("127.0.0.1:0") as server, TcpProxy(server.address) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: TcpProxy) -> AsyncIterator[EtcdStore]:
    async with EtcdStore([proxy.endpoint.removeprefix("tcp://")]) as store:
        yield store


class Told:
    """A lease that is kept, and a way to wait for what is told of it."""

    def __init__(self, store: EtcdStore) -> None:
        self.store = store
        self.count = 0
        self._changed = asyncio.Event()

    async def keep(self, *, interval_s: float = INTERVAL_S, loop_silence_s_max: float = 60.0) -> Keeping:
        lease = await self.store.grant(TTL_S)
        return self.store.keep(
            lease,
            ttl=TTL_S,
            granted_s=self.store.clock.monotonic(),
            interval=interval_s,
            loop_silence_s_max=loop_silence_s_max,
            on_change=self._on_change,
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def renewed(self, keeping: Keeping) -> None:
        """Wait until the next renewal was answered."""
        before_s = keeping.kept_until_s
        await self.until(lambda: keeping.kept_until_s > before_s)

    def _on_change(self) -> None:
        self.count += 1
        self._changed.set()


async def test_a_renewal_is_believed_in_from_when_it_was_sent(proxy: TcpProxy, store: EtcdStore) -> None:
    told = Told(store)
    keeping = await told.keep(interval_s=0.6)
    await told.renewed(keeping)
    proxy.delay_s = 0.15
    await told.renewed(keeping)
    # The question and the answer were each so long under way, and the store began to count in between.
    assert keeping.kept_until_s <= store.clock.monotonic() - 2 * proxy.delay_s + TTL_S
    keeping.stop()


async def test_who_keeps_a_lease_is_told_that_the_loop_was_late(store: EtcdStore) -> None:
    """At once, and not with the next renewal: its deadline may have passed meanwhile."""
    told = Told(store)
    keeping = await told.keep(interval_s=3.0)
    before_s = keeping.kept_until_s
    # Twice as long as from one sign of life to the next, and shorter than to the first renewal.
    time.sleep(1.7)  # noqa: ASYNC251
    await told.until(lambda: told.count > 0)
    assert (keeping.kept_until_s, keeping.failures_count) == (before_s, 0)
    assert keeping.loop_lag_s > 0.2
    keeping.stop()


async def test_a_renewal_that_fails_is_told_and_tried_again_soon(proxy: TcpProxy, store: EtcdStore) -> None:
    told = Told(store)
    keeping = await told.keep(interval_s=0.4)
    await told.renewed(keeping)
    proxy.refuse()
    await told.until(lambda: keeping.failures_count >= 2)
    proxy.forward()
    await told.until(lambda: keeping.failures_count == 0)
    assert keeping.kept_until_s > store.clock.monotonic() + TTL_S / 2
    keeping.stop()


async def test_a_renewal_that_nobody_answers_fails_by_its_deadline_and_is_the_only_one(
    proxy: TcpProxy, store: EtcdStore
) -> None:
    told = Told(store)
    keeping = await told.keep()
    await told.renewed(keeping)
    proxy.hold()
    await told.until(lambda: keeping.failures_count >= 3)
    # One at a time: else dozens would have failed together.
    assert keeping.failures_count < 10
    keeping.stop()
    proxy.forward()


async def test_nothing_is_told_of_a_lease_that_is_kept_no_more(store: EtcdStore) -> None:
    """Also not what the thread has said already, while the loop was busy."""
    told = Told(store)
    keeping = await told.keep()
    await told.renewed(keeping)
    time.sleep(3 * INTERVAL_S)  # noqa: ASYNC251
    keeping.stop()
    count = told.count
    await asyncio.sleep(INTERVAL_S)
    assert told.count == count


def hearts() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith(" heart")]


async def keep_nowhere(store: EtcdStore) -> None:
    """A lease that nobody answers for."""
    store.keep(
        7,
        ttl=TTL_S,
        granted_s=store.clock.monotonic(),
        interval=INTERVAL_S,
        loop_silence_s_max=60.0,
        on_change=lambda: None,
    )


async def test_closing_the_store_has_ended_the_thread() -> None:
    async with EtcdStore(["127.0.0.1:1"]) as store:
        await keep_nowhere(store)
        assert len(hearts()) == 1
    assert hearts() == []


def test_the_thread_ends_with_a_loop_that_was_closed_before_the_store() -> None:
    async def forget_to_close() -> None:
        store = await EtcdStore(["127.0.0.1:1"]).__aenter__()
        await keep_nowhere(store)

    asyncio.run(forget_to_close())
    for thread in hearts():
        thread.join(10.0)
        assert not thread.is_alive()
