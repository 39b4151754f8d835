"""A provider and its registries: registering, heartbeats, failover, advertised endpoints, leaving."""

import asyncio
from typing import Any

import pytest

from hansa.clock import ManualClock
from hansa.errors import (
    BadArgument,
    BadEndpoint,
    NotRegistered,
    RegistrationRefused,
    TimedOut,
    UsageError,
)
from hansa.presence.provider_info import ProviderState, Registration
from hansa.services.provider import server
from hansa.services.provider.server import Provider
from hansa.transport import Connected, Disconnected
from hansa.wire.registry import (
    AckStatus,
    Heartbeat,
    Register,
    RegisterAck,
    RegistryMessage,
    Unregister,
    UpdateWeight,
)
from tests.support.lanes import Lane, gathered, quick
from tests.support.leftovers import alive
from tests.support.scripted import ScriptedGateway, ScriptedRegistry, until


def provide(lane: Lane, *registries: str, **arguments: Any) -> Provider:
    settings = gathered({"tls": lane.tls, "network": lane.memory, "options": quick(), **arguments})
    bind = settings.pop("bind", lane.endpoint())
    return Provider(bind, registries, **settings)


@pytest.mark.spec("DIS-25")
async def test_provider_bind(lane: Lane) -> None:
    provider = provide(lane)
    assert provider.state("pay") is ProviderState.INIT
    async with provider:
        assert provider.state("pay") is ProviderState.BOUND
        assert provider.endpoint.is_dialable
        async with lane.dealer() as dealer:
            outbound = dealer.connect(str(provider.endpoint))
            assert await outbound.up() == provider.routing_id == provider.router.routing_id


@pytest.mark.spec("DIS-25")
@pytest.mark.spec("DIS-05")
async def test_provider_register(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        registration = await provider.register("pay", weight=3)
        endpoint = str(provider.endpoint)
        assert registration == Registration(
            service="pay", endpoint=endpoint, weight=3, registry=registry.endpoint, status=AckStatus.OK
        )
        assert provider.registration("pay") == registration
        assert provider.registry == registry.endpoint
        # The registry takes the routing id from the envelope: it is the one that gateways meet.
        assert registry.entries == {("pay", endpoint): (provider.routing_id, 3)}
        assert provider.state("pay") is ProviderState.REGISTERED
        await provider.unregister("pay")
        assert registry.entries == {}
        assert provider.state("pay") is ProviderState.UNREGISTERED
        with pytest.raises(NotRegistered):
            await provider.unregister("pay")


@pytest.mark.spec("DIS-11")
async def test_everything_but_a_heartbeat_is_stamped_with_when_it_was_said(lane: Lane) -> None:
    clock = ManualClock()
    async with ScriptedRegistry(lane) as registry:
        async with provide(lane, registry.endpoint, clock=clock) as provider:
            await provider.register("pay")
            await provider.register("pay")
            clock.advance(1.0)
            await provider.update_weight("pay", 2)
            await provider.unregister("pay")
        said = [m for m in registry.heard.events if isinstance(m, Register | Unregister | UpdateWeight)]
    first = 1_700_000_000_000 << 16
    second = 1_700_000_001_000 << 16
    assert [m.stamp for m in said] == [first, first + 1, second, second + 1]


@pytest.mark.spec("DIS-03")
async def test_a_provider_whose_clock_is_behind_steps_over_what_the_registry_knows(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        stamps: list[int] = []

        def script(message: RegistryMessage) -> RegisterAck | None:
            assert isinstance(message, Register | Unregister)
            assert message.stamp is not None
            stamps.append(message.stamp)
            if len(stamps) % 2:
                return RegisterAck(
                    status=AckStatus.OTHER,
                    error="behind: a later word is known",
                    token=message.token,
                    stamp=message.stamp + (5_000 << 16),
                )
            return RegisterAck(status=AckStatus.OK, endpoint=message.endpoint, token=message.token)

        registry.script = script
        await provider.register("pay")
        await provider.unregister("pay")
        registry.script = None
    assert [later - sooner for sooner, later in zip(stamps[::2], stamps[1::2], strict=True)] == [
        (5_000 << 16) + 1
    ] * 2
    assert provider.stats.behind_count == 2
    assert provider.stats.refusals_count == 0


@pytest.mark.spec("DIS-25")
async def test_provider_update_weight(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        await provider.register("pay")
        key = ("pay", str(provider.endpoint))
        for weight, entered in ((5, 5), (0, 1), (7, 7)):
            await provider.update_weight("pay", weight)
            assert registry.entries[key] == (provider.routing_id, entered)
        assert provider.registration("pay").weight == 7  # type: ignore[union-attr]
        with pytest.raises(NotRegistered):
            await provider.update_weight("user", 5)
        with pytest.raises(BadArgument, match="weight"):
            await provider.update_weight("pay", -1)


@pytest.mark.spec("DIS-04")
@pytest.mark.parametrize("status", [AckStatus.DUPLICATE, AckStatus.BAD_ENDPOINT, AckStatus.OTHER])
async def test_provider_register_ack(lane: Lane, status: AckStatus) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        registry.script = lambda message: RegisterAck(
            status=status,
            error="because",
            token=message.token,  # type: ignore[union-attr]
        )
        with pytest.raises(RegistrationRefused, match="because") as refused:
            await provider.register("pay")
        assert refused.value.status == status
        assert provider.registration("pay").status is status  # type: ignore[union-attr]
        assert provider.state("pay") is ProviderState.CONNECTED
        registry.script = None
        assert (await provider.register("pay")).status is AckStatus.OK


@pytest.mark.spec("DIS-04")
async def test_registering_has_a_deadline_and_says_what_was_tried(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry:
        nobody = registry.endpoint + "0" if lane.name == "inproc" else lane.endpoint().replace(":0", ":1")
        async with provide(lane, nobody, registry.endpoint) as provider:
            registry.script = lambda message: None
            await registry.seen.wait(Connected)
            with pytest.raises(TimedOut, match="connected") as late:
                await provider.register("pay", timeout=0.05)
            assert nobody in str(late.value)
            assert registry.endpoint in str(late.value)
            # It is not wanted any more, and the registry, which may have it, is told.
            await registry.heard.wait(Unregister, service="pay")
            assert provider.state("pay") is ProviderState.CONNECTED


@pytest.mark.spec("DIS-04")
async def test_cancelling_a_registration_leaves_the_service_unregistered(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        registry.script = lambda message: None
        async with asyncio.TaskGroup() as group:
            registering = group.create_task(provider.register("pay"))
            await registry.heard.wait(Register)
            registering.cancel()
        await registry.heard.wait(Unregister, service="pay")
        assert provider.state("pay") is ProviderState.CONNECTED


async def test_registering_twice_at_once_updates(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(provider.register("pay", weight=weight)) for weight in (2, 4)]
        assert [task.result().weight for task in both] == [4, 4]
        assert [weight for _, weight in registry.entries.values()] == [4]


@pytest.mark.spec("DIS-25")
async def test_one_provider_registers_several_services(lane: Lane) -> None:
    services = [f"service-{number}" for number in range(20)]
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        async with asyncio.TaskGroup() as group:
            for service in services:
                group.create_task(provider.register(service))
        assert sorted(service for service, _ in registry.entries) == sorted(services)
        await provider.unregister("service-7")
        assert len(registry.entries) == 19
        assert provider.stats.registrations_count == 20


@pytest.mark.spec("DIS-25")
async def test_every_service_sends_heartbeats(lane: Lane) -> None:
    async with (
        ScriptedRegistry(lane) as registry,
        provide(lane, registry.endpoint, heartbeat_interval=0.02) as provider,
    ):
        await provider.register("pay")
        await provider.register("user")
        for service in ("pay", "user"):
            await registry.heard.wait(Heartbeat, service=service, endpoint=str(provider.endpoint), count=3)
        await provider.unregister("user")
        beats_before = len(registry.heard.of(Heartbeat, service="user"))
        await registry.heard.wait(Heartbeat, service="pay", count=8)
        assert len(registry.heard.of(Heartbeat, service="user")) == beats_before


@pytest.mark.spec("DIS-07")
@pytest.mark.parametrize("knows_tokens", [True, False])
async def test_a_registry_that_forgot_everything_is_told_again(lane: Lane, knows_tokens: bool) -> None:
    async with (
        ScriptedRegistry(lane, knows_tokens=knows_tokens) as registry,
        provide(lane, registry.endpoint, heartbeat_interval=0.02) as provider,
    ):
        await provider.register("pay", weight=6)
        await provider.register("user")
        entries_before = dict(registry.entries)
        registry.entries.clear()
        await registry.heard.wait(Register, service="pay", weight=6, count=2)
        await registry.heard.wait(Register, service="user", count=2)
        await until(lambda: provider.state("pay") is provider.state("user") is ProviderState.REGISTERED)
        assert registry.entries == entries_before
        assert provider.stats.reregistrations_count == 2


@pytest.mark.spec("DIS-07")
async def test_a_restarted_registry_recovers_by_itself(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        await provider.register("pay", weight=6)
        entries_before = dict(registry.entries)
        await registry.restart()
        await registry.heard.wait(Register, count=2)
        assert registry.entries == entries_before
        await until(lambda: provider.state("pay") is ProviderState.REGISTERED)


@pytest.mark.spec("DIS-12")
async def test_registry_failover(lane: Lane) -> None:
    async with (
        ScriptedRegistry(lane) as first,
        ScriptedRegistry(lane) as second,
        ScriptedRegistry(lane) as third,
        provide(lane, first.endpoint, second.endpoint, third.endpoint) as provider,
    ):
        await provider.register("pay", weight=2)
        assert first.entries != {}
        assert second.entries == third.entries == {}
        for active, following in ((first, second), (second, third)):
            loop = asyncio.get_running_loop()
            lost_at = loop.time()
            await active.router.close()
            await following.heard.wait(Register, service="pay", weight=2)
            assert loop.time() - lost_at < 5.0
            await until(lambda: provider.state("pay") is ProviderState.REGISTERED)
            assert provider.registry == following.endpoint
            assert following.entries == {("pay", str(provider.endpoint)): (provider.routing_id, 2)}
        assert provider.stats.failovers_count == 2
        await provider.unregister("pay")
        assert third.entries == {}


@pytest.mark.spec("DIS-12")
async def test_a_registry_that_is_not_there_is_passed_over(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry:
        dead = ScriptedRegistry(lane)
        async with dead:
            pass
        async with provide(lane, dead.endpoint, registry.endpoint) as provider:
            assert (await provider.register("pay")).registry == registry.endpoint
            assert provider.stats.dials_failed_count == 1


@pytest.mark.spec("DIS-12")
async def test_a_deaf_registry_is_left_for_the_next(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for the one that hears, on a busy machine.
    monkeypatch.setattr("hansa.presence.registrations.REGISTRY_ANSWER_S_MAX", 0.5)
    async with ScriptedRegistry(lane) as deaf, ScriptedRegistry(lane) as registry:
        deaf.script = lambda message: None
        async with provide(lane, deaf.endpoint, registry.endpoint) as provider:
            assert (await provider.register("pay")).registry == registry.endpoint
            assert provider.stats.unanswered_count == 1
            await deaf.seen.wait(Disconnected, peer=provider.routing_id)


async def test_a_lost_claim_is_made_again(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        await provider.register("pay")
        refusals = [AckStatus.DUPLICATE, AckStatus.DUPLICATE, AckStatus.OK]

        def refuse_twice(message: RegistryMessage) -> RegisterAck | None:
            assert isinstance(message, Register)
            return RegisterAck(status=refusals.pop(0), endpoint=message.endpoint, token=message.token)

        registry.script = refuse_twice
        lost = RegisterAck(status=AckStatus.DUPLICATE, endpoint=str(provider.endpoint), error="lost")
        registry.tell(provider.routing_id, lost)
        await registry.heard.wait(Register, count=2)
        assert provider.state("pay") is ProviderState.CONNECTED
        await registry.heard.wait(Register, count=4)
        await until(lambda: provider.state("pay") is ProviderState.REGISTERED)
        assert provider.stats.refusals_count == 2
        registry.script = None


async def test_a_registry_without_tokens_is_enough(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.presence.registrations.REGISTRY_ANSWER_S_MAX", 0.3)
    async with (
        ScriptedRegistry(lane, knows_tokens=False) as registry,
        provide(lane, registry.endpoint) as provider,
    ):
        await provider.register("pay")
        await provider.register("user", weight=2)
        await provider.update_weight("pay", 9)
        assert registry.entries[("pay", str(provider.endpoint))] == (provider.routing_id, 9)
        await provider.unregister("user")
        await registry.heard.wait(Unregister, service="user")
        assert [service for service, _ in registry.entries] == ["pay"]
        assert provider.registry == registry.endpoint


async def test_a_registry_that_talks_nonsense_is_counted_and_borne(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        await provider.register("pay")
        for frames in ([b"\xff\xff"], [b"\x02\x00", b"\x07"], [b"\x01\x00", b"pay", b"tcp://a:1"]):
            registry.router.post(provider.routing_id, frames)
        registry.tell(provider.routing_id, RegisterAck(status=AckStatus.OK, token=4_000_000))
        await until(lambda: provider.stats.stray_answers_count == 1)
        assert provider.stats.registry_bad_frames_count == 3
        assert provider.state("pay") is ProviderState.REGISTERED


@pytest.mark.spec("DIS-05")
@pytest.mark.parametrize("knows_tokens", [True, False])
async def test_leaving_the_block_unregisters(lane: Lane, knows_tokens: bool) -> None:
    async with ScriptedRegistry(lane, knows_tokens=knows_tokens) as registry:
        async with provide(lane, registry.endpoint) as provider:
            await provider.register("pay")
            await provider.register("user")
        await registry.seen.wait(Disconnected)
        assert registry.entries == {}
        assert provider.state("pay") is ProviderState.UNREGISTERED


async def live_a_little(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as first, ScriptedRegistry(lane) as second:
        async with provide(lane, first.endpoint, second.endpoint) as provider:
            provider.handler()(lambda request: request.payload)
            async with ScriptedGateway(lane) as gateway:
                await gateway.connect(provider)
                assert await gateway.call(b"hello") == [b"hello"]
            await provider.register("pay")
            await first.router.close()
            await second.heard.wait(Register)
        await second.seen.wait(Disconnected, peer=provider.routing_id)


async def test_nothing_is_left_behind(lane: Lane) -> None:
    await live_a_little(lane)  # Once for what loops and libraries make on first use.
    before = alive()
    await live_a_little(lane)
    await asyncio.sleep(0)
    after = alive()
    assert after.tasks == before.tasks
    assert after.timers == before.timers
    assert after.threads == before.threads
    assert len(after.descriptors) == len(before.descriptors), after.descriptors ^ before.descriptors


# -- using it wrongly


async def test_what_cannot_be_registered_is_said_clearly(lane: Lane) -> None:
    provider = provide(lane)
    with pytest.raises(UsageError, match="not bound yet"):
        await provider.register("pay")
    with pytest.raises(UsageError, match="not bound yet"):
        await provider.drain()
    async with provider:
        with pytest.raises(UsageError, match="knows no registry"):
            await provider.register("pay")
        with pytest.raises(BadEndpoint, match="registry"):
            provider.connect_registry("tcp://*:5551")
        async with ScriptedRegistry(lane) as registry:
            provider.connect_registry(registry.endpoint)
            for name in ("", "x" * 256, "\ud800"):
                with pytest.raises(BadArgument, match="service name"):
                    await provider.register(name)
            await provider.register("pay")
            with pytest.raises(UsageError, match="used already"):
                await provider.__aenter__()
    with pytest.raises(UsageError, match="leaving"):
        await provider.register("pay")


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"registries": "tcp://a:1"}, BadArgument, "a list"),
        ({"registries": ["tcp://a:0"]}, BadEndpoint, "dialled"),
        ({"registries": ["tls://a:1"]}, BadArgument, "credentials"),
        ({"bind": "somewhere"}, BadEndpoint, "write tcp"),
        ({"heartbeat_interval": 0}, BadArgument, "positive"),
        ({"concurrency_max": 0}, BadArgument, "able to run"),
        ({"routing_id": b"x" * 256}, BadArgument, "255"),
    ],
)
async def test_wrong_arguments_fail_at_once(wrong: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Provider(**wrong)


# -- advertised endpoints


@pytest.mark.spec("DIS-27")
@pytest.mark.parametrize("bind", ["tcp://*:0", "tcp://0.0.0.0:0"])
async def test_endpoint_auto_detect(bind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane(name="tcp", folder=None)  # type: ignore[arg-type]
    monkeypatch.setattr(server, "default_route_host", lambda version: "192.0.2.10")
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint, bind=bind) as provider:
        found = await provider.register("pay")
        assert found.endpoint == f"tcp://192.0.2.10:{provider.endpoint.port}"
        given = await provider.register("user", advertise="tcp://payment-server:5555")
        assert given.endpoint == "tcp://payment-server:5555"
        with pytest.raises(BadEndpoint, match="cannot be advertised"):
            await provider.register("mail", advertise="tcp://*:5555")


@pytest.mark.spec("DIS-27")
async def test_a_concrete_bind_address_is_advertised_as_it_is(lane: Lane) -> None:
    async with ScriptedRegistry(lane) as registry, provide(lane, registry.endpoint) as provider:
        assert (await provider.register("pay")).endpoint == str(provider.endpoint)


@pytest.mark.spec("DIS-27")
async def test_an_endpoint_given_to_the_provider_is_advertised_for_all_services(lane: Lane) -> None:
    async with (
        ScriptedRegistry(lane) as registry,
        provide(lane, registry.endpoint, advertise="tcp://public:5555") as provider,
    ):
        assert (await provider.register("pay")).endpoint == "tcp://public:5555"
        assert (await provider.register("user", advertise="tcp://own:1")).endpoint == "tcp://own:1"
