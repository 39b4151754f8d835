"""Bad input to a registry and to a provider, each a process, while a good provider and a good caller go on.

Whatever comes is answered with a typed error where somebody can be answered, is counted, and harms nobody
else. What decides about single messages is tested next to the decoders; here it is the processes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from hansa import UnknownMsgId
from hansa.errors import BadFrame
from hansa.limits import STRIKES_MAX
from hansa.services.provider import AckStatus
from hansa.transport import Dealer, Environment, SocketOptions
from hansa.wire.business import ERROR_MSG_ID, decode_call, decode_error, encode_call
from hansa.wire.registry import (
    Heartbeat,
    Register,
    RegisterAck,
    RegistryMessage,
    Unregister,
    UpdateWeight,
    decode,
    encode,
)
from tests.integration.faults.bad_messages import GARBAGE, PROVIDER_SPECIALS, REGISTRY_SPECIALS
from tests.integration.faults.soak import soak
from tests.support.fault_stage import SERVICE, Program

WITHIN_S = 40.0
OPTIONS = SocketOptions(reconnect_s_min=0.02, reconnect_s_max=0.1, linger=0.5)


class Victims:
    """A registry, a provider that is registered there, and a caller that never stops."""

    def __init__(self, registry: Program, provider: Program, client: Program) -> None:
        self.registry, self.provider, self.client = registry, provider, client
        self.pub = self.router = self.endpoint = ""

    async def registry_stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = (await self.registry.ask("stats", "stats"))["stats"]
        return stats

    async def entries(self) -> dict[str, dict[str, str]]:
        entries: dict[str, dict[str, str]] = (await self.registry.ask("stats", "stats"))["entries"]
        return entries

    async def provider_stats(self) -> dict[str, Any]:
        return await self.provider.ask("stats", "stats")

    async def unharmed(self) -> None:
        """The good provider is listed, and the good caller has had an answer to everything, and gets more."""
        assert (await self.entries())[SERVICE] == {self.endpoint: b"good".hex()}
        books = await self.client.ask("books", "books")
        goal = books["replied"] + 10
        while (books := await self.client.ask("books", "books"))["replied"] < goal:
            await asyncio.sleep(0.02)
        assert (books["failed"], books["wrong"]) == ({}, 0), books


@asynccontextmanager
async def victims() -> AsyncIterator[Victims]:
    async with AsyncExitStack() as stack, asyncio.timeout(WITHIN_S):
        enter = stack.enter_async_context
        registry = await enter(Program([], "registry_program"))
        ready = await registry.event("ready")
        router = f"--router={ready['router']}"
        provider = await enter(Program([], "provider_program", "--name=good", f"--service={SERVICE}", router))
        client = await enter(
            Program([], "client_program", f"--pub={ready['pub']}", f"--service={SERVICE}", "--rate=50")
        )
        made = Victims(registry, provider, client)
        made.pub, made.router = ready["pub"], ready["router"]
        made.endpoint = (await provider.event("registered"))["endpoint"]
        await client.event("calling")
        yield made


async def ask(dealer: Dealer, frames: list[bytes]) -> list[bytes]:
    """Send a message; the parts of the answer."""
    await dealer.send(frames)
    return (await dealer.recv()).parts


async def ask_registry(dealer: Dealer, frames: list[bytes]) -> RegisterAck:
    ack = decode(await ask(dealer, frames))
    assert isinstance(ack, RegisterAck)
    return ack


@pytest.mark.spec("SEC-05")
async def test_every_bad_message_to_a_registry_is_answered_and_counted() -> None:
    async with victims() as cast, Dealer(b"bad", environment=Environment(options=OPTIONS)) as dealer:
        await dealer.connect(cast.router).up()
        for number, (what, frames) in enumerate(REGISTRY_SPECIALS.items()):
            ack = await ask_registry(dealer, frames)
            assert ack.status is AckStatus.OTHER, what
            assert ack.error.startswith("not understood: "), what
            assert sum((await cast.registry_stats())["bad_frames"].values()) == number + 1, what
        bad = (await cast.registry_stats())["bad_frames"]
        assert bad == {"bad-frame": 13, "misplaced": 3}
        await cast.unharmed()


@pytest.mark.spec("DIS-04")
@pytest.mark.spec("DIS-08")
@pytest.mark.spec("SEC-05")
async def test_a_wrong_endpoint_and_the_entry_of_another_are_refused_and_counted() -> None:
    async with victims() as cast, Dealer(b"bad", environment=Environment(options=OPTIONS)) as dealer:
        await dealer.connect(cast.router).up()
        wrong = ("", "here", "tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://h:0", "tcp://h:99999", "udp://h:1")
        for number, endpoint in enumerate(wrong):
            ack = await ask_registry(dealer, encode(Register(service=SERVICE, endpoint=endpoint)))
            assert (ack.status, ack.endpoint) == (AckStatus.BAD_ENDPOINT, endpoint), endpoint
            assert ack.error, endpoint
            assert (await cast.registry_stats())["refused_count"] == number + 1, endpoint
        # The good provider's entry is not the stranger's to keep, to change or to remove.
        theirs: dict[str, Any] = {"service": SERVICE, "endpoint": cast.endpoint, "token": 1}
        changes: list[RegistryMessage] = [UpdateWeight(weight=9, **theirs), Unregister(**theirs)]
        for count, message in enumerate(changes, 1):
            ack = await ask_registry(dealer, encode(message))
            assert (ack.status, ack.error[:14]) == (AckStatus.OTHER, "not registered"), message
            assert (await cast.registry_stats())["unknown_entries_count"] == count, message
        ack = await ask_registry(dealer, encode(Heartbeat(**theirs)))
        assert (ack.status, ack.error[:14]) == (AckStatus.OTHER, "not registered")
        assert (await cast.registry_stats())["unknown_heartbeats_count"] == 1
        await cast.unharmed()


@pytest.mark.spec("DIS-04")
async def test_a_second_process_that_claims_the_same_endpoint_is_refused_as_a_duplicate() -> None:
    async with (
        victims() as cast,
        Program(
            [],
            "provider_program",
            "--name=second",
            f"--service={SERVICE}",
            f"--router={cast.router}",
            f"--advertise={cast.endpoint}",
        ) as second,
    ):
        refused = await second.event("refused")
        assert refused["status"] == AckStatus.DUPLICATE
        assert "alive" in refused["error"]
        assert (await cast.registry_stats())["duplicates_count"] == 1
        await cast.unharmed()
        books = await cast.client.ask("books", "books")
        assert books["by"].keys() == {"good"}


@pytest.mark.spec("SEC-05")
async def test_every_bad_request_to_a_provider_is_answered_and_counted() -> None:
    async with victims() as cast, Dealer(b"bad", environment=Environment(options=OPTIONS)) as dealer:
        await dealer.connect(cast.endpoint).up()
        before = (await cast.provider_stats())["stats"]
        for what, frames in PROVIDER_SPECIALS.items():
            await dealer.send(frames)
            if len(frames[0]) != 8 or what == "a failed reply":
                continue  # Nobody could tell what the answer is to, or two would answer each other for ever.
            _, msg_id, _, parts = decode_call((await dealer.recv()).parts)
            assert msg_id == ERROR_MSG_ID, what
            expected = UnknownMsgId if "unknown" in what else BadFrame
            assert decode_error(parts).code == expected.code, what
        # Something that is answered: all before it is counted by then.
        assert (await ask(dealer, encode_call(7, 0, [b"fine"])))[2:] == [b"good", b"fine"]
        after = (await cast.provider_stats())["stats"]
        assert after["bad_frames"] == {"bad-frame": 7, "not-a-request": 1}
        assert after["unknown_msg_id_count"] - before["unknown_msg_id_count"] == 2
        await cast.unharmed()


@pytest.mark.spec("SEC-05")
async def test_who_sends_too_much_that_means_nothing_is_sent_away_and_may_come_back() -> None:
    async with victims() as cast:
        for victim, frames in ((cast.router, [b"\x99\x00"]), (cast.endpoint, [b"no request"])):
            async with Dealer(b"bad", environment=Environment(options=OPTIONS)) as dealer:
                outbound = dealer.connect(victim)
                await outbound.up()
                assert outbound.connection is not None
                first = outbound.connection.closed
                for _ in range(STRIKES_MAX):
                    await dealer.send(frames)
                await first
                await outbound.up()
        assert (await cast.registry_stats())["expelled_count"] == 1
        assert (await cast.provider_stats())["stats"]["expelled_count"] == 1
        await cast.unharmed()


@pytest.mark.spec("SEC-05")
async def test_bytes_that_are_no_zmtp_end_their_own_connection_and_are_counted() -> None:
    async with victims() as cast:
        targets = {"registry router": cast.router, "registry pub": cast.pub, "provider": cast.endpoint}
        for name, target in targets.items():
            host, _, port = target.removeprefix("tcp://").rpartition(":")
            for reason, garbage in GARBAGE:
                if name == "registry pub" and reason in ("frame-too-large", "too-many-parts"):
                    # A DEALER has no business at a PUB, whatever it says next.
                    reason = "bad-socket-type"
                before = await ended(cast, name)
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    writer.write(garbage)
                    await reader.read()
                except ConnectionError:
                    pass
                finally:
                    writer.close()
                while (now := await ended(cast, name)) == before:
                    await asyncio.sleep(0.005)
                assert now == {**before, reason: before.get(reason, 0) + 1}, (name, reason, garbage[:80])
        await cast.unharmed()


async def ended(cast: Victims, name: str) -> dict[str, int]:
    told: dict[str, int]
    if name == "provider":
        told = (await cast.provider_stats())["ended"]
    else:
        told = (await cast.registry_stats())["ended"]
    return told


@pytest.mark.spec("SEC-05")
async def test_twenty_thousand_bad_messages_cost_neither_service_nor_memory() -> None:
    async with asyncio.timeout(100):
        found = await soak(20_000, seed=7)
    assert found["frames"] >= 20_000
    assert found["expelled"] > 0
