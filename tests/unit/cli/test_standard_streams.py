"""Payloads and replies; reading and writing while the other end of a pipe does what it likes."""

import asyncio
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.cli.standard_streams import Lines, Output, part_lines, parts_object, read_lines, read_payload
from hansa.errors import BadArgument

WITHIN_S = 20.0


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def close(self, *ends: int) -> None:
        for end in ends or (self.reading, self.writing):
            try:
                os.close(end)
            except OSError:
                continue  # Closed by the test.


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


# -- payloads and replies


def test_a_payload_is_text_or_a_file_or_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"\x00\xff")
    assert read_payload("grüße") == "grüße".encode()
    assert read_payload(f"@{tmp_path}/file") == b"\x00\xff"
    assert read_payload("@@file") == b"@file"
    assert read_payload("") == b""
    assert read_payload("\udcff") == b"\xff"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    assert read_payload("-") == b"piped"
    with pytest.raises(BadArgument, match="@@"):
        read_payload(f"@{tmp_path}/none")
    monkeypatch.setattr("hansa.cli.standard_streams.FRAME_BYTES_MAX", 3)
    with pytest.raises(BadArgument, match="larger"):
        read_payload("four")


def test_replies_are_json_as_text_or_as_base64() -> None:
    assert parts_object([b"a", "ü".encode()]) == {"encoding": "utf-8", "parts": ["a", "ü"]}
    assert parts_object([b"a", b"\xff"]) == {"encoding": "base64", "parts": ["YQ==", "/w=="]}


def test_a_terminal_gets_lines_and_nothing_that_it_obeys() -> None:
    assert part_lines(b"two\nlines", for_terminal=True) == b"two\nlines\n"
    assert part_lines(b"\x1b[2J\xff", for_terminal=True) == b"\\x1b[2J\\xff\n"
    assert part_lines(b"\x1b[2J\xff\n", for_terminal=False) == b"\x1b[2J\xff\n"


# -- lines


@given(st.binary(max_size=60).map(lambda raw: raw.replace(b"a", b"\n")), st.integers(1, 10))
def test_lines_do_not_depend_on_where_the_stream_was_cut(content: bytes, chunk_bytes: int) -> None:
    lines = Lines()
    chunks = [content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)]
    found = [line for chunk in chunks for line in lines.cut(chunk)] + lines.last()
    expected = content.split(b"\n")
    assert found == (expected if expected[-1] else expected[:-1])


@pytest.mark.parametrize("chunks", [[b"12345\n"], [b"12", b"345"], [b"1\n2", b"3456\n"]])
def test_a_line_that_is_too_long_is_refused_before_it_costs_more_memory(chunks: list[bytes]) -> None:
    lines = Lines(4)
    with pytest.raises(BadArgument, match="longer than the 4 bytes"):
        for chunk in chunks:
            lines.cut(chunk)


async def test_every_line_is_there_as_soon_as_it_was_written(pipe: Pipe) -> None:
    lines = read_lines(pipe.reading)
    os.write(pipe.writing, b"one\ntw")
    assert await anext(lines) == b"one"
    os.write(pipe.writing, b"o\n\nlast")
    assert await anext(lines) == b"two"
    pipe.close(pipe.writing)
    assert [line async for line in lines] == [b"", b"last"]


async def test_waiting_for_a_line_can_be_given_up(pipe: Pipe) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(read_lines(pipe.reading))
    pipe.close(pipe.writing)  # The thread that still reads ends with this.


# -- output


async def test_writing_waits_for_the_reader_and_nobody_else_does(pipe: Pipe) -> None:
    chunk = bytes(4 * 1024 * 1024)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(Output(pipe.writing).write(chunk))
        await asyncio.sleep(0)  # A turn of the loop while nobody reads.
        assert not writing.done()
        received = bytearray()

        def read_all() -> None:
            while len(received) < len(chunk):
                received.extend(os.read(pipe.reading, 65536))

        reader = threading.Thread(target=read_all)
        reader.start()
        await writing
        await asyncio.to_thread(reader.join, WITHIN_S)
    assert len(received) == len(chunk)


async def test_a_reader_that_left_is_an_error(pipe: Pipe) -> None:
    pipe.close(pipe.reading)
    with pytest.raises(BrokenPipeError):
        await Output(pipe.writing).write(b"line\n")


async def test_flushing_waits_for_what_a_cancelled_write_still_writes(pipe: Pipe) -> None:
    output = Output(pipe.writing)
    chunk = b"line\n" * 200_000
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await output.write(chunk)
    assert output.lines_count < 200_000
    received = 0

    def read_all() -> None:
        nonlocal received
        while received < len(chunk):
            received += len(os.read(pipe.reading, 65536))

    reader = threading.Thread(target=read_all)
    reader.start()
    output.flush()
    assert "writing lines" not in {thread.name for thread in threading.enumerate()}
    reader.join(WITHIN_S)
    assert received == len(chunk)
    assert output.lines_count == 200_000
