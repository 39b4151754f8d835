"""The blocking API: every operation, from many threads at once, on real sockets."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hansa import sync
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadEndpoint,
    HandlerFailed,
    NoProvider,
    NotRegistered,
    TimedOut,
    UnknownMsgId,
    UsageError,
)
from hansa.services.discovery import ProviderAdded, ServiceAvailable, ServiceState
from hansa.services.gateway import Completion, RoundRobin
from hansa.services.provider import ProviderState, Request
from hansa.wire.registry import AckStatus
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_stage import SERVICE, WITHIN_S, Stage, opened

__all__ = ["no_thread_is_left"]

THREADS = 16
REQUESTS = 200


@pytest.fixture
def stage() -> Iterator[Stage]:
    with opened() as stage:
        yield stage


@pytest.mark.spec("DIS-28")
def test_sixteen_threads_get_exactly_one_outcome_for_each_of_their_requests(stage: Stage) -> None:
    outcomes: Counter[str] = Counter()
    turn = threading.Lock()

    def caller(number: int) -> None:
        for step in range(REQUESTS):
            word = f"{number}:{step}".encode()
            if step % 10 == 3:
                with pytest.raises(HandlerFailed) as failed:
                    stage.gateway.request(SERVICE, word, msg_id=1, timeout=WITHIN_S)
                outcome = failed.value.reason
            elif step % 10 == 7:
                with pytest.raises(UnknownMsgId):
                    stage.gateway.request(SERVICE, word, msg_id=99, timeout=WITHIN_S)
                outcome = "unknown"
            else:
                _, reply, more = stage.gateway.request(SERVICE, [word, b"more"], timeout=WITHIN_S)
                assert (reply, more) == (word, b"more")
                outcome = "reply"
            with turn:
                outcomes[outcome] += 1

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(caller, range(THREADS)))
    all_count = THREADS * REQUESTS
    assert outcomes == {
        "reply": all_count * 8 // 10,
        "insufficient-funds": all_count // 10,
        "unknown": all_count // 10,
    }
    stats = stage.gateway.stats
    assert stats.requests_count == all_count
    assert stats.replied_count == outcomes["reply"]
    assert stats.in_flight_count == 0
    assert stage.provider.stats.requests_count == all_count


@pytest.mark.spec("DIS-28")
def test_at_the_in_flight_limit_threads_wait_for_room_and_all_get_their_reply() -> None:
    with opened(in_flight_max=3) as stage, ThreadPoolExecutor(THREADS) as pool:
        words = [b"%d" % number for number in range(THREADS * 5)]
        replies = pool.map(lambda word: stage.gateway.request(SERVICE, word, timeout=WITHIN_S)[1], words)
        assert list(replies) == words


@pytest.mark.spec("DIS-28")
def test_handlers_are_plain_functions_that_run_in_threads_several_at_once(stage: Stage) -> None:
    name = stage.gateway.request(SERVICE, b"who?")[0].decode()
    assert name.startswith("provider handler")
    with ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(stage.gateway.request, SERVICE, b"", msg_id=2) for _ in range(4)]
        for _ in range(4):  # All four are inside at the same time.
            assert stage.waiting.acquire(timeout=WITHIN_S)
        stage.release.set()
        assert [reply.result(WITHIN_S) for reply in replies] == [[b"waited"]] * 4


def test_an_async_handler_is_refused_with_advice(stage: Stage) -> None:
    async def handle(request: Request) -> bytes:
        return b""

    with pytest.raises(UsageError, match="plain function"):
        stage.provider.handler(9)(handle)  # type: ignore[type-var]


@pytest.mark.spec("DIS-28")
def test_a_handler_may_call_other_services_through_the_same_process(stage: Stage) -> None:
    @stage.provider.handler(5)
    def relay(request: Request) -> list[bytes]:
        return stage.gateway.request(SERVICE, request.payload, timeout=WITHIN_S)

    assert stage.gateway.request(SERVICE, b"onward", msg_id=5, timeout=WITHIN_S)[1] == b"onward"


@pytest.mark.spec("DIS-28")
def test_closing_the_gateway_ends_every_thread_that_waits(stage: Stage) -> None:
    with ThreadPoolExecutor(8) as pool:
        waiting: list[Future[Any]] = [
            pool.submit(stage.gateway.request, SERVICE, b"", msg_id=2) for _ in range(6)
        ]
        waiting += [pool.submit(stage.gateway.recv), pool.submit(stage.gateway.request_recv, WITHIN_S)]
        for _ in range(6):
            assert stage.waiting.acquire(timeout=WITHIN_S)
        stage.gateway.close()
        for future in waiting:
            assert isinstance(future.exception(WITHIN_S), AlreadyClosed)
    stage.gateway.close()
    with pytest.raises(AlreadyClosed):
        stage.gateway.request(SERVICE, b"")


@pytest.mark.spec("DIS-28")
def test_closing_everything_while_threads_call_gives_each_call_one_outcome() -> None:
    outcomes: Counter[str] = Counter()

    def caller(gateway: sync.Gateway) -> str:
        while True:
            try:
                gateway.request(SERVICE, b"x", timeout=WITHIN_S)
            except AlreadyClosed:
                return "closed"

    with ThreadPoolExecutor(THREADS) as pool:
        with opened() as stage:
            callers = [pool.submit(caller, stage.gateway) for _ in range(THREADS)]
            while stage.gateway.stats.replied_count < THREADS:
                stage.gateway.request(SERVICE, b"y", timeout=WITHIN_S)
        outcomes.update(future.result(WITHIN_S) for future in callers)
    assert outcomes == {"closed": THREADS}


def test_closing_the_discovery_ends_who_waits_for_a_service(stage: Stage) -> None:
    stage.discovery.subscribe("other")
    with ThreadPoolExecutor(2) as pool:
        events = stage.discovery.events()
        waiting = pool.submit(stage.discovery.wait_available, "other")
        reading = pool.submit(list, events)
        stage.gateway.close()
        stage.discovery.close()
        assert isinstance(waiting.exception(WITHIN_S), AlreadyClosed)
        assert reading.result(WITHIN_S) == []
    with pytest.raises(TimedOut), sync.Discovery([str(stage.registry.pub)]) as discovery:
        discovery.subscribe("other")
        discovery.wait_available("other", timeout=0.01)


@pytest.mark.spec("DIS-30")
def test_a_payload_that_is_not_bytes_is_told_so(stage: Stage) -> None:
    payloads: list[tuple[Any, str]] = [
        ("text", r"the payload is str, not bytes: encode it, as in text.encode\(\)"),
        ([b"fine", "text"], r"parts\[1\] is str, not bytes"),
        ([], "at least one part"),
    ]
    for payload, what in payloads:
        for ask in (stage.gateway.request, stage.gateway.send, stage.gateway.request_send):
            with pytest.raises(BadArgument, match=what):
                ask(SERVICE, payload)
        with pytest.raises(BadArgument, match=what):
            stage.gateway.submit(SERVICE, payload, print)
        with pytest.raises(BadArgument, match=what):
            stage.gateway.router(SERVICE).send(stage.provider.routing_id, 1, payload)


def test_a_first_request_waits_for_the_first_list(stage: Stage) -> None:
    with sync.Discovery([str(stage.registry.pub)]) as discovery:
        discovery.subscribe(SERVICE)
        discovery.subscribe("other")
        with sync.Gateway(discovery) as gateway:
            assert gateway.request(SERVICE, b"?", timeout=WITHIN_S)[1:] == [b"?"]
            assert discovery.has_heard
            discovery.wait_heard(timeout=0.0)
            with pytest.raises(NoProvider, match="was heard"):
                gateway.request("other", b"?", timeout=WITHIN_S)


@pytest.mark.spec("DIS-28")
def test_registry_provider_and_discovery_answer_as_their_async_twins(stage: Stage) -> None:
    registry, provider, discovery = stage.registry, stage.provider, stage.discovery
    assert registry.is_running
    assert registry.pub.port
    assert [one.endpoint for one in registry.services[SERVICE]] == [str(provider.endpoint)]
    assert discovery.registries_heard == (registry.registry_id,)
    assert registry.peers_heard == ()
    registration = provider.registration(SERVICE)
    assert registration is not None
    assert registration.status is AckStatus.OK
    assert registration.registry == provider.registry == str(registry.router)
    assert provider.state(SERVICE) is ProviderState.REGISTERED
    (found,) = discovery.providers(SERVICE)
    assert found.routing_id == provider.routing_id
    assert (discovery.state(SERVICE), discovery.state("none")) == (ServiceState.AVAILABLE, ServiceState.EMPTY)
    assert discovery.is_available(SERVICE)
    assert discovery.follows(SERVICE)
    assert discovery.provider_count(SERVICE) == 1
    assert list(discovery.services) == [SERVICE]
    assert discovery.stats.lists_count >= 1
    provider.update_weight(SERVICE, 7, timeout=WITHIN_S)
    assert registry.services[SERVICE][0].weight == 7
    assert registry.stats.weight_updates_count == 1
    provider.unregister(SERVICE, timeout=WITHIN_S)
    assert registry.services == {}
    with pytest.raises(NotRegistered):
        provider.update_weight(SERVICE, 1)
    with pytest.raises(BadEndpoint):
        registry.add_peer("tcp://*:0")
    provider.connect_registry("tcp://127.0.0.1:1")
    discovery.connect_registry("tcp://127.0.0.1:1")
    registry.add_peer("tcp://127.0.0.1:1")


@pytest.mark.spec("DIS-28")
def test_events_are_a_blocking_iterator_and_callbacks_come_from_the_loops_thread(stage: Stage) -> None:
    heard: list[str] = []
    stop = stage.discovery.listen(lambda event: heard.append(threading.current_thread().name))
    events = stage.discovery.events()
    stage.discovery.subscribe("other")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, events)
        stage.provider.register("other", timeout=WITHIN_S)
        assert isinstance(first.result(WITHIN_S), ProviderAdded)
    assert events.get(timeout=WITHIN_S) == ServiceAvailable(service="other")
    with pytest.raises(TimedOut):
        events.get(timeout=0.01)
    stop()
    assert set(heard) == {"hansa.sync"}
    heard_count = len(heard)
    stage.provider.unregister("other", timeout=WITHIN_S)
    assert isinstance(events.get(timeout=WITHIN_S), object)
    assert len(heard) == heard_count
    events.close()
    assert len(list(events)) <= 1
    assert events.dropped_count == 0
    with pytest.raises(AlreadyClosed):
        events.get()


@pytest.mark.spec("DIS-28")
def test_every_form_of_request_works_from_threads(stage: Stage) -> None:
    gateway = stage.gateway
    gateway.set_balancer(SERVICE, RoundRobin())
    assert gateway.connection_count(SERVICE) == 1
    numbers = {gateway.send(SERVICE, b"one"), gateway.request_send(SERVICE, b"two")}
    assert {gateway.recv().request_id, gateway.request_recv(WITHIN_S).request_id} == numbers
    with pytest.raises(TimedOut):
        gateway.request_recv(0.01)
    router = gateway.router(SERVICE)
    (peer,) = router.peers
    router.send(peer, 4711, b"direct")
    completion = gateway.recv()
    assert completion.request_id == 4711
    assert completion.result()[1] == b"direct"
    done: list[tuple[Completion, str]] = []
    happened = threading.Event()

    def callback(completion: Completion) -> None:
        done.append((completion, threading.current_thread().name))
        happened.set()

    number = gateway.submit(SERVICE, b"call back", callback)
    assert happened.wait(WITHIN_S)
    assert done[0][0].request_id == number
    assert done[0][1] == "hansa.sync"
    with pytest.raises(TimedOut):
        gateway.request(SERVICE, b"", msg_id=2, timeout=0.02)
