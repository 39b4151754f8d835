"""The in-memory network behaves as TCP does, only without a kernel."""

import asyncio
import contextvars
from collections.abc import Callable

import pytest

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, BadArgument, Unavailable
from hansa.transport.memory_network import WINDOW_BYTES, MemoryNetwork, MemoryTransport

INPROC = Endpoint.parse("inproc://harbour")


class Recorder(asyncio.Protocol):
    """Notes every callback; optionally keeps its half open at the end of the stream."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.transport: MemoryTransport
        self.calls: list[str] = []
        self.chunks: list[bytes] = []
        self.lost_with: list[Exception | None] = []
        self.paused_count = 0
        self.resumed_count = 0
        self.changed = asyncio.Event()
        self._keeps_open = keeps_open

    @property
    def received(self) -> bytes:
        return b"".join(self.chunks)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport
        self._note("made")

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self._note("data")

    def eof_received(self) -> bool:
        self._note("eof")
        return self._keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_with.append(exc)
        self._note("lost")

    def pause_writing(self) -> None:
        self.paused_count += 1
        self._note("paused")

    def resume_writing(self) -> None:
        self.resumed_count += 1
        self._note("resumed")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def _note(self, call: str) -> None:
        self.calls.append(call)
        self.changed.set()


async def settle() -> None:
    """Let everything that is scheduled run; nothing in memory needs more turns than these."""
    for _ in range(20):
        await asyncio.sleep(0)


async def connected(
    network: MemoryNetwork | None = None, *, near: Recorder | None = None, far: Recorder | None = None
) -> tuple[Recorder, Recorder]:
    network = network or MemoryNetwork()
    near, far = near or Recorder(), far or Recorder()
    listener = await network.listen(INPROC, lambda: far)
    await network.dial(INPROC, lambda: near)
    await far.until(lambda: far.calls == ["made"])
    await listener.close()
    return near, far


async def test_bytes_arrive_in_order_and_as_the_same_objects() -> None:
    near, far = await connected()
    pieces = [b"one" * 100, b"two" * 100, b"three" * 100]
    for piece in pieces:
        near.transport.write(piece)
    await far.until(lambda: len(far.chunks) == 3)
    assert all(got is piece for got, piece in zip(far.chunks, pieces, strict=True))
    far.transport.writelines([bytearray(b"four"), memoryview(b"five")])
    await near.until(lambda: near.received == b"fourfive")


async def test_a_changing_buffer_is_copied_when_it_is_written() -> None:
    near, far = await connected()
    buffer = bytearray(b"before")
    near.transport.write(buffer)
    buffer[:] = b"after!"
    await far.until(lambda: far.received == b"before")


async def test_write_never_calls_the_reader() -> None:
    near, far = await connected()
    near.transport.write(b"now")
    assert far.chunks == []
    await far.until(lambda: far.received == b"now")


async def test_what_was_written_in_connection_made_arrives() -> None:
    class Eager(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(b"greeting")

    near, far = await connected(near=Eager(), far=Eager())
    await near.until(lambda: near.received == b"greeting")
    await far.until(lambda: far.received == b"greeting")


async def test_close_flushes_and_both_sides_end_without_an_error() -> None:
    near, far = await connected()
    near.transport.write(b"last words")
    near.transport.close()
    assert near.transport.is_closing()
    assert near.lost_with == []
    await far.until(lambda: far.lost_with == [None])
    assert far.received == b"last words"
    assert far.calls == ["made", "data", "eof", "lost"]
    assert near.lost_with == [None]


async def test_close_flushes_more_than_the_window_holds() -> None:
    near, far = await connected()
    far.transport.pause_reading()
    for number in range(40):
        near.transport.write(bytes([number]) * 40_000)
    near.transport.close()
    await settle()
    assert near.lost_with == [], "bytes are still in its buffer"
    far.transport.resume_reading()
    await far.until(lambda: far.lost_with == [None])
    assert far.received == b"".join(bytes([number]) * 40_000 for number in range(40))
    assert near.lost_with == [None]


async def test_abort_drops_and_the_peer_sees_a_reset() -> None:
    near, far = await connected()
    near.transport.write(b"never read")
    near.transport.abort()
    assert near.lost_with == [], "not from inside abort"
    await far.until(lambda: len(far.lost_with) == 1)
    assert isinstance(far.lost_with[0], ConnectionResetError)
    assert far.chunks == []
    assert near.lost_with == [None]


async def test_connection_lost_comes_exactly_once_whatever_is_called() -> None:
    near, far = await connected()
    for side in (near, far):
        side.transport.close()
        side.transport.abort()
        side.transport.close()
    await settle()
    assert len(near.lost_with) == 1
    assert len(far.lost_with) == 1


async def test_after_the_end_writes_are_dropped() -> None:
    near, far = await connected()
    near.transport.close()
    near.transport.write(b"too late")
    await far.until(lambda: far.lost_with == [None])
    far.transport.write(b"too late as well")
    await settle()
    assert near.received == far.received == b""


async def test_a_reader_that_pauses_holds_the_writer_back() -> None:
    near, far = await connected()
    near.transport.set_write_buffer_limits(high=10_000, low=1_000)
    far.transport.pause_reading()
    assert not far.transport.is_reading()
    near.transport.write(b"x" * WINDOW_BYTES)
    assert near.transport.get_write_buffer_size() == 0
    assert near.paused_count == 0
    near.transport.write(b"y" * 10_001)
    assert near.transport.get_write_buffer_size() == 10_001
    assert near.paused_count == 1
    await settle()
    assert far.chunks == []
    assert near.resumed_count == 0
    far.transport.resume_reading()
    await near.until(lambda: near.resumed_count == 1)
    await far.until(lambda: len(far.received) == WINDOW_BYTES + 10_001)
    assert near.transport.get_write_buffer_size() == 0


async def test_pausing_inside_data_received_keeps_the_rest() -> None:
    class Slow(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    near, far = await connected(far=Slow())
    near.transport.writelines([b"1", b"2", b"3"])
    for expected in (b"1", b"12", b"123"):
        await settle()
        assert far.received == expected
        far.transport.resume_reading()


async def test_half_closing_leaves_the_other_half_open() -> None:
    near, far = await connected(far=Recorder(keeps_open=True))
    assert near.transport.can_write_eof()
    near.transport.write(b"question")
    near.transport.write_eof()
    near.transport.write_eof()
    with pytest.raises(RuntimeError, match="write_eof"):
        near.transport.write(b"more")
    await far.until(lambda: "eof" in far.calls)
    far.transport.write(b"answer")
    far.transport.close()
    await near.until(lambda: near.lost_with == [None])
    assert near.received == b"answer"
    assert far.received == b"question"


async def test_writing_to_a_side_that_is_gone_is_answered_with_a_reset() -> None:
    near, far = await connected(far=Recorder(keeps_open=True))
    near.transport.close()
    await far.until(lambda: "eof" in far.calls)
    far.transport.write(b"hello?")
    await far.until(lambda: len(far.lost_with) == 1)
    assert isinstance(far.lost_with[0], ConnectionResetError)


async def test_a_protocol_that_raises_loses_its_connection_and_the_loop_hears_why() -> None:
    class Broken(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError("cannot read this")

    heard: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
    near, far = await connected(far=Broken())
    near.transport.write(b"anything")
    await near.until(lambda: len(near.lost_with) == 1)
    assert [str(error) for error in heard] == ["cannot read this"]
    assert isinstance(near.lost_with[0], ConnectionResetError)
    assert str(far.lost_with[0]) == "cannot read this"


async def test_a_factory_that_raises_resets_the_dialler() -> None:
    def refuse() -> asyncio.Protocol:
        raise ValueError("no room")

    heard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: heard.append(str(context["exception"]))
    )
    network, near = MemoryNetwork(), Recorder()
    await network.listen(INPROC, refuse)
    await network.dial(INPROC, lambda: near)
    await near.until(lambda: len(near.lost_with) == 1)
    assert isinstance(near.lost_with[0], ConnectionResetError)
    assert heard == ["no room"]


async def test_dialling_nobody_is_refused() -> None:
    with pytest.raises(Unavailable, match=r"refused.*harbour"):
        await MemoryNetwork().dial(INPROC, Recorder)


async def test_an_address_has_one_listener_and_is_free_after_it_closed() -> None:
    network = MemoryNetwork()
    listener = await network.listen(INPROC, Recorder)
    with pytest.raises(AddressInUse):
        await network.listen(INPROC, Recorder)
    await listener.close()
    await listener.close()
    again = await network.listen(INPROC, Recorder)
    await listener.close()
    with pytest.raises(AddressInUse):
        await network.listen(INPROC, Recorder)
    await again.close()


async def test_accepted_connections_outlive_their_listener() -> None:
    near, far = await connected()
    near.transport.write(b"still here")
    await far.until(lambda: far.received == b"still here")


async def test_a_listener_that_closes_before_it_accepts_resets() -> None:
    network, near = MemoryNetwork(), Recorder()
    listener = await network.listen(INPROC, Recorder)
    await network.dial(INPROC, lambda: near)
    await listener.close()
    await near.until(lambda: len(near.lost_with) == 1)
    assert isinstance(near.lost_with[0], ConnectionResetError)


@pytest.mark.parametrize("asked", ["tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tls://*:0"])
async def test_port_zero_finds_a_free_one(asked: str) -> None:
    network = MemoryNetwork()
    first = await network.listen(Endpoint.parse(asked), Recorder)
    second = await network.listen(Endpoint.parse(asked), Recorder)
    assert first.endpoint.port > 0
    assert second.endpoint.port > 0
    assert first.endpoint.port != second.endpoint.port
    assert first.endpoint.host == Endpoint.parse(asked).host


async def test_a_wildcard_listener_owns_its_port_on_every_host() -> None:
    network, near, far = MemoryNetwork(), Recorder(), Recorder()
    await network.listen(Endpoint.parse("tcp://*:5000"), lambda: far)
    with pytest.raises(AddressInUse):
        await network.listen(Endpoint.parse("tcp://127.0.0.1:5000"), Recorder)
    await network.dial(Endpoint.parse("tcp://127.0.0.1:5000"), lambda: near)
    await far.until(lambda: far.calls == ["made"])
    await network.listen(Endpoint.parse("tcp://127.0.0.1:5001"), Recorder)
    with pytest.raises(AddressInUse):
        await network.listen(Endpoint.parse("tcp://0.0.0.0:5001"), Recorder)


async def test_both_ends_have_names_for_people() -> None:
    near, far = await connected()
    assert near.transport.get_extra_info("peername") == "inproc://harbour"
    assert far.transport.get_extra_info("peername") == near.transport.get_extra_info("sockname")
    assert "harbour" in far.transport.get_extra_info("peername")
    assert near.transport.get_extra_info("ssl_object") is None


async def test_callbacks_run_in_the_context_of_their_own_side() -> None:
    side: contextvars.ContextVar[str] = contextvars.ContextVar("side", default="nobody")

    class Aware(Recorder):
        def _note(self, call: str) -> None:
            super()._note(f"{call} in {side.get()}")

    network, near, far = MemoryNetwork(), Aware(), Aware()

    async def serve() -> None:
        side.set("server")
        await network.listen(INPROC, lambda: far)

    async def dial() -> None:
        side.set("dialler")
        await network.dial(INPROC, lambda: near)
        near.transport.write(b"hello")
        near.transport.close()

    async with asyncio.TaskGroup() as group:
        await group.create_task(serve())
        await group.create_task(dial())
    await far.until(lambda: len(far.lost_with) == 1)
    assert far.calls == ["made in server", "data in server", "eof in server", "lost in server"]
    assert near.calls == ["made in dialler", "lost in dialler"]


async def test_buffer_limits_are_checked() -> None:
    near, _ = await connected()
    near.transport.set_write_buffer_limits(low=100)
    assert near.transport.get_write_buffer_limits() == (100, 400)
    near.transport.set_write_buffer_limits(high=0)
    assert near.transport.get_write_buffer_limits() == (0, 0)
    with pytest.raises(BadArgument):
        near.transport.set_write_buffer_limits(high=1, low=2)


async def test_a_cancelled_dial_leaves_nothing_behind() -> None:
    network, made = MemoryNetwork(), []
    await network.listen(INPROC, lambda: made.append("far") or Recorder())  # type: ignore[func-returns-value]
    async with asyncio.TaskGroup() as group:
        dial = group.create_task(network.dial(INPROC, lambda: made.append("near") or Recorder()))  # type: ignore[func-returns-value]
        await asyncio.sleep(0)
        dial.cancel()
    await settle()
    assert made == []


async def test_one_busy_stream_lets_the_others_in_between() -> None:
    network = MemoryNetwork()
    order: list[str] = []

    class Named(Recorder):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def data_received(self, data: bytes) -> None:
            order.append(self._name)
            super().data_received(data)

    busy_near, busy_far = await connected(network, far=Named("busy"))
    quiet_near, quiet_far = await connected(network, far=Named("quiet"))
    for _ in range(20):
        busy_near.transport.write(b"x" * WINDOW_BYTES)
    quiet_near.transport.write(b"me too")
    await busy_far.until(lambda: len(busy_far.received) == 20 * WINDOW_BYTES)
    assert quiet_far.received == b"me too"
    assert order.index("quiet") < 3


def test_a_listener_of_a_loop_that_ended_is_forgotten() -> None:
    network = MemoryNetwork()

    async def listen() -> None:
        await network.listen(INPROC, Recorder)

    asyncio.run(listen())
    asyncio.run(listen())
