"""The simulated network: TCP over a path that delays, cuts, resets and forgets."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, BadEndpoint, Unavailable
from hansa.testing import Host, NetworkSettings, World

SMOOTH = NetworkSettings(
    delay_s_min=0.01,
    delay_s_max=0.01,
    spike_probability=0.0,
    split_probability=0.0,
    tcp_timeout=20.0,
    dial_timeout=5.0,
)
BETA = Endpoint.parse("tcp://beta:5000")


class End(asyncio.Protocol):
    """Notes what comes, and when."""

    def __init__(self, world: World) -> None:
        self.transport: asyncio.Transport
        self.chunks: list[tuple[float, bytes]] = []
        self.lost: list[tuple[float, Exception | None]] = []
        self._world = world

    @property
    def received(self) -> bytes:
        return b"".join(data for _, data in self.chunks)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append((round(self._world.elapsed_s(), 6), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append((round(self._world.elapsed_s(), 6), exc))


class Pair:
    """beta listens, alpha dials; a test drives both from outside."""

    def __init__(self, settings: NetworkSettings = SMOOTH, seed: int = 1) -> None:
        self.world = World(seed, settings=settings)
        self.network = self.world.network
        self.dialled: list[End] = []
        self.accepted: list[End] = []
        self.world.host("alpha", self._dial).start()
        self.world.host("beta", self._listen).start()

    @property
    def near(self) -> End:
        return self.dialled[-1]

    @property
    def far(self) -> End:
        return self.accepted[-1]

    def play(self, course: Callable[["Pair"], Coroutine[Any, Any, None]]) -> None:
        async def after_the_dial() -> None:
            await asyncio.sleep(1)
            await course(self)

        with self.world:
            self.world.run(after_the_dial())

    async def _dial(self, host: Host) -> None:
        end = End(self.world)
        await host.network.dial(BETA, lambda: end)
        self.dialled.append(end)
        await asyncio.Event().wait()

    async def _listen(self, host: Host) -> None:
        await host.network.listen(Endpoint.parse("tcp://*:5000"), self._accept)
        await asyncio.Event().wait()

    def _accept(self) -> End:
        self.accepted.append(End(self.world))
        return self.far


async def refusal(host: Host, endpoint: Endpoint = BETA) -> str:
    """Why a dial of the host fails."""
    try:
        await host.network.dial(endpoint, asyncio.Protocol)
    except Unavailable as error:
        return str(error)
    return "it does not"


def test_bytes_take_their_time() -> None:
    async def course(pair: Pair) -> None:
        pair.near.transport.write(b"hello")
        await asyncio.sleep(1)
        assert pair.far.chunks == [(1.01, b"hello")]

    Pair().play(course)


@pytest.mark.parametrize("seed", range(10))
def test_a_stream_is_cut_up_and_never_reordered(seed: int) -> None:
    async def course(pair: Pair) -> None:
        sent = b"".join(number.to_bytes(2, "big") for number in range(5_000))
        for start in range(0, len(sent), 1_000):
            pair.near.transport.write(sent[start : start + 1_000])
            await asyncio.sleep(0.001)
        await asyncio.sleep(10)
        assert pair.far.received == sent
        sizes.append(len(pair.far.chunks))

    sizes: list[int] = []
    bumpy = NetworkSettings(delay_s_max=0.05, spike_probability=0.2, split_probability=0.9)
    Pair(bumpy, seed).play(course)
    assert sizes[0] > 20


def test_connections_overtake_each_other() -> None:
    orders = set()
    for seed in range(10):
        world = World(seed, settings=NetworkSettings(spike_probability=0.3))
        order: list[bytes] = []

        class Named(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                order.append(data)  # noqa: B023  # one run at a time

        async def listen(host: Host) -> None:
            await host.network.listen(Endpoint.parse("tcp://*:5000"), Named)
            await asyncio.Event().wait()

        async def dial(host: Host) -> None:
            ends = [End(host.world) for _ in range(4)]
            for end in ends:
                await host.network.dial(BETA, lambda: end)  # noqa: B023
            for number, end in enumerate(ends):
                end.transport.write(b"%d" % number)
            await asyncio.Event().wait()

        world.host("beta", listen).start()
        world.host("alpha", dial).start()
        with world:
            world.run(asyncio.sleep(5))
        orders.add(b"".join(order))
    assert len(orders) > 3
    assert all(sorted(order) == sorted(b"0123") for order in orders)


def test_a_cut_stalls_bytes_and_healing_lets_them_go() -> None:
    async def course(pair: Pair) -> None:
        pair.network.cut("alpha", "beta")
        pair.near.transport.write(b"late")
        pair.far.transport.write(b"also late")
        await asyncio.sleep(10)
        assert pair.far.chunks == pair.near.chunks == []
        pair.network.heal("alpha", "beta")
        await asyncio.sleep(1)
        assert pair.far.chunks == [(11.0, b"late")]
        assert pair.near.chunks == [(11.0, b"also late")]
        assert pair.near.lost == pair.far.lost == []

    Pair().play(course)


def test_a_one_way_cut_lets_the_other_direction_through() -> None:
    async def course(pair: Pair) -> None:
        pair.network.cut("alpha", "beta", both_ways=False)
        pair.near.transport.write(b"stuck")
        pair.far.transport.write(b"through")
        await asyncio.sleep(5)
        assert pair.far.received == b""
        assert pair.near.received == b"through"
        pair.network.heal("alpha", "beta", both_ways=False)
        await asyncio.sleep(1)
        assert pair.far.received == b"stuck"
        await asyncio.sleep(100)
        assert pair.near.lost == pair.far.lost == []

    Pair().play(course)


def test_a_cut_that_outlasts_the_patience_breaks_the_connection() -> None:
    async def course(pair: Pair) -> None:
        pair.network.cut("alpha", "beta")
        pair.near.transport.write(b"never acknowledged")
        await asyncio.sleep(19)
        assert pair.near.lost == []
        await asyncio.sleep(2)
        assert isinstance(pair.near.lost[0][1], TimeoutError)
        assert pair.far.lost == [], "it has heard nothing and sent nothing"
        pair.network.heal("alpha", "beta")
        await asyncio.sleep(1)
        assert isinstance(pair.far.lost[0][1], ConnectionResetError)
        assert pair.far.received == b""

    Pair().play(course)


def test_without_acknowledgements_even_what_arrived_breaks_the_connection() -> None:
    async def course(pair: Pair) -> None:
        pair.network.cut("beta", "alpha", both_ways=False)
        pair.near.transport.write(b"arrives")
        await asyncio.sleep(25)
        assert pair.far.received == b"arrives"
        assert isinstance(pair.near.lost[0][1], TimeoutError)

    Pair().play(course)


def test_healing_something_else_does_not_renew_the_patience() -> None:
    async def course(pair: Pair) -> None:
        pair.network.cut("alpha", "beta")
        pair.near.transport.write(b"never acknowledged")
        for _ in range(12):
            await asyncio.sleep(2)
            pair.network.cut("beta", "beta")
            pair.network.heal("beta", "beta")
        assert isinstance(pair.near.lost[0][1], TimeoutError)

    Pair().play(course)


def test_cuts_are_counted() -> None:
    async def course(pair: Pair) -> None:
        pair.network.cut("alpha", "beta")
        pair.network.cut("alpha", "beta", both_ways=False)
        pair.network.heal("alpha", "beta")
        assert pair.network.is_cut("alpha", "beta")
        assert not pair.network.is_cut("beta", "alpha")
        pair.network.heal("alpha", "beta", both_ways=False)
        assert not pair.network.is_cut("alpha", "beta")

    Pair().play(course)


def test_a_dial_into_a_cut_times_out_or_gets_through_when_it_heals() -> None:
    async def dial(host: Host) -> None:
        host.record(await refusal(host))

    async def course(pair: Pair) -> None:
        pair.world.host("gamma", dial)
        pair.network.cut("gamma", "beta")
        pair.world.restart("gamma")
        await asyncio.sleep(6)
        assert pair.world.history.facts[-2].what == "dialling tcp://beta:5000 from gamma timed out"
        assert pair.world.history.facts[-2].at_s == pytest.approx(6.0)

    Pair().play(course)

    async def patient(host: Host) -> None:
        end = End(host.world)
        await host.network.dial(BETA, lambda: end)
        host.record("is through")
        end.transport.close()

    async def healing(pair: Pair) -> None:
        pair.world.host("gamma", patient)
        pair.network.cut("beta", "gamma", both_ways=False)
        pair.world.restart("gamma")
        await asyncio.sleep(2)
        pair.network.heal("beta", "gamma", both_ways=False)
        await asyncio.sleep(1)
        assert "is through" in [fact.what for fact in pair.world.history.facts]

    Pair().play(healing)


def test_a_reset_breaks_both_ends_at_once() -> None:
    async def course(pair: Pair) -> None:
        pair.near.transport.write(b"in flight")
        assert pair.network.reset("beta", "alpha") == 1
        await asyncio.sleep(1)
        for end in (pair.near, pair.far):
            assert end.received == b""
            assert isinstance(end.lost[0][1], ConnectionResetError)
            assert end.lost[0][0] == 1.0
        assert pair.network.reset("beta", "alpha") == 0

    Pair().play(course)


def test_a_slow_link_carries_its_rate_and_hurries_when_it_is_fast_again() -> None:
    async def course(pair: Pair) -> None:
        pair.network.slow("alpha", "beta", bytes_per_s=100.0)
        pair.near.transport.write(b"x" * 200)
        await asyncio.sleep(1.9)
        assert pair.far.received == b""
        await asyncio.sleep(0.2)
        assert len(pair.far.received) == 200
        pair.near.transport.write(b"y" * 10_000)
        await asyncio.sleep(1)
        pair.network.slow("alpha", "beta", bytes_per_s=None)
        await asyncio.sleep(0.1)
        assert len(pair.far.received) == 10_200

    Pair().play(course)


def test_refused_dials_fail_and_standing_connections_live_on() -> None:
    async def course(pair: Pair) -> None:
        pair.network.refuse("beta", refusing=True)
        gamma = pair.world.host("gamma", _idle)
        assert "refused" in await refusal(gamma)
        pair.near.transport.write(b"still here")
        await asyncio.sleep(1)
        assert pair.far.received == b"still here"
        pair.network.refuse("beta", refusing=False)
        assert await refusal(gamma) == "it does not"

    Pair().play(course)


def test_a_paused_host_accepts_and_reads_later_and_holds_its_peer_back() -> None:
    async def course(pair: Pair) -> None:
        pair.world.pause("beta")
        for _ in range(100):
            pair.near.transport.write(b"x" * 10_000)
        await asyncio.sleep(5)
        assert pair.far.received == b""
        assert pair.near.transport.get_write_buffer_size() > 0
        pair.world.resume("beta")
        await asyncio.sleep(60)
        assert len(pair.far.received) == 1_000_000

    Pair().play(course)


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_ends_connections_and_listeners(seed: int) -> None:
    async def course(pair: Pair) -> None:
        pair.world.crash("beta")
        await asyncio.sleep(1)
        assert len(pair.near.lost) == 1
        assert pair.near.lost[0][1] is None or isinstance(pair.near.lost[0][1], ConnectionResetError)
        assert pair.far.lost == [], "the dead hear nothing"
        assert "refused" in await refusal(pair.world.hosts["alpha"])
        pair.world.restart("beta")
        await asyncio.sleep(1)
        assert await refusal(pair.world.hosts["alpha"]) == "it does not"

    Pair(seed=seed).play(course)


def test_a_power_loss_is_silent_until_somebody_gives_up() -> None:
    async def course(pair: Pair) -> None:
        pair.world.crash("beta", silent=True)
        pair.near.transport.write(b"anybody there?")
        await asyncio.sleep(10)
        assert pair.near.lost == []
        assert "timed out" in await refusal(pair.world.hosts["alpha"])
        await asyncio.sleep(10)
        assert isinstance(pair.near.lost[0][1], TimeoutError)

    Pair().play(course)


def test_a_machine_that_is_back_resets_what_it_does_not_know() -> None:
    async def course(pair: Pair) -> None:
        pair.world.crash("beta", silent=True)
        await asyncio.sleep(1)
        pair.world.restart("beta")
        await asyncio.sleep(5)
        assert pair.near.lost == [], "nothing was sent, so nothing was answered"
        pair.near.transport.write(b"still there?")
        await asyncio.sleep(1)
        assert isinstance(pair.near.lost[0][1], ConnectionResetError)
        assert len(pair.accepted) == 1

    Pair().play(course)


def test_what_was_closed_in_order_arrives_although_its_host_crashes_then() -> None:
    async def course(pair: Pair) -> None:
        pair.near.transport.write(b"testament")
        pair.near.transport.close()
        await asyncio.sleep(0.001)
        pair.world.crash("alpha")
        await asyncio.sleep(1)
        assert pair.far.received == b"testament"
        assert pair.far.lost[0][1] is None

    for seed in range(6):
        Pair(seed=seed).play(course)


def test_names_and_addresses_are_those_of_the_host() -> None:
    async def course(pair: Pair) -> None:
        beta = pair.world.hosts["beta"].network
        with pytest.raises(AddressInUse):
            await beta.listen(Endpoint.parse("tcp://localhost:5000"), asyncio.Protocol)
        with pytest.raises(BadEndpoint, match="not an address of beta"):
            await beta.listen(Endpoint.parse("tcp://alpha:5000"), asyncio.Protocol)
        gamma = pair.world.host("gamma", _idle)
        assert "refused" in await refusal(gamma, Endpoint.parse("tcp://localhost:5000"))
        assert "no host nowhere" in await refusal(gamma, Endpoint.parse("tcp://nowhere:5000"))
        local = Endpoint.parse("ipc:///run/name.sock")
        await beta.listen(local, asyncio.Protocol)
        assert "refused" in await refusal(gamma, local)
        assert await refusal(pair.world.hosts["beta"], local) == "it does not"
        assert pair.far.transport.get_extra_info("peername") == "alpha#1"
        with pytest.raises(BadEndpoint):
            pair.network.view("not a name")

    Pair().play(course)


def test_every_seed_draws_another_network() -> None:
    assert len({World(seed).network.settings for seed in range(20)}) > 5


async def _idle(host: Host) -> None:
    await asyncio.Event().wait()
