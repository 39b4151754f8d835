"""A shell command as a handler: the request goes to its stdin, its stdout is the reply."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hansa.errors import HandlerFailed, TimedOut, invariant
from hansa.limits import ERROR_TEXT_BYTES_MAX, FRAME_BYTES_MAX
from hansa.runtime.tasks import TaskScope
from hansa.services.provider import Request

_READ_BYTES: Final = 64 * 1024


class ShellHandler:
    """Runs `command` once for each request, in a process group of its own.

    The parts of the request, joined, are its stdin. It finds the service, the msgId and the request id in
    HANSA_SERVICE, HANSA_MSG_ID and HANSA_REQUEST_ID. Status 0: its stdout is the reply. Any other: the caller
    gets HandlerFailed with the reason `exit-N` and the end of its stderr. When the caller's deadline passes,
    or the handler is cancelled, the whole group is killed. `on_failure` is told every failure.
    """

    def __init__(self, command: str, service: str, *, on_failure: Callable[[HandlerFailed], None]) -> None:
        self._command = command
        self._service = service
        self._on_failure = on_failure
        self._tasks = TaskScope("hansa provide", self._start_failed)

    async def __call__(self, request: Request) -> bytes:
        """Raises HandlerFailed, TimedOut."""
        remaining_s = request.remaining_s(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(remaining_s):
                return await self._run(request)
        except TimeoutError:
            raise TimedOut(f"the command was killed after {remaining_s:.3f} s, with the deadline") from None
        except HandlerFailed as error:
            self._on_failure(error)
            raise

    async def _run(self, request: Request) -> bytes:
        shell = _Shell()
        starting = self._tasks.spawn(self._start(shell, request), "starting a command")
        has_ended = False
        try:
            await asyncio.wait([starting])
            transport = shell.started()
            output, last_words = await _converse(shell, b"".join(request.parts))
            await shell.exited
            has_ended = True
        finally:
            if not has_ended:
                # Giving up in the middle of a start would leave what the shell started meanwhile.
                await asyncio.wait([starting])
                await shell.kill()
            shell.close()
        status = transport.get_returncode()
        if status:
            raise failure(status, last_words)
        return output

    async def _start(self, shell: _Shell, request: Request) -> None:
        try:
            shell.transport, _ = await asyncio.get_running_loop().subprocess_shell(
                lambda: shell,
                self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env={
                    **os.environ,
                    "HANSA_SERVICE": self._service,
                    "HANSA_MSG_ID": str(request.msg_id),
                    "HANSA_REQUEST_ID": str(request.request_id),
                },
            )
        except OSError as error:  # No room for a process, or for its pipes.
            shell.refused = error

    @staticmethod
    def _start_failed(error: BaseException) -> None:
        context = {"message": "starting a command failed; please report this", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


class _Shell(SubprocessStreamProtocol):
    """A running command: what `asyncio.create_subprocess_shell` uses, but with the transport at hand.

    Pipes that are not read to their end (too much output, or a holder that escaped the group) end only when
    the transport is closed, and waiting for the process may wait for its pipes; `exited` does not.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit=_READ_BYTES, loop=loop)
        self.exited: asyncio.Future[None] = loop.create_future()
        self.transport: asyncio.SubprocessTransport | None = None
        self.refused: OSError | None = None

    def started(self) -> asyncio.SubprocessTransport:
        """Raises HandlerFailed."""
        if self.transport is None:
            raise HandlerFailed(f"the command could not be started: {self.refused}", "cannot-start")
        return self.transport

    async def kill(self) -> None:
        """Kill the group and not the shell alone: what it started would go on without anyone."""
        if self.transport is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.transport.get_pid(), signal.SIGKILL)
            await self.exited

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


async def _converse(shell: _Shell, given: bytes) -> tuple[bytes, bytes]:
    """Write stdin and read both outputs, all at once; stdout whole and the end of stderr."""
    stdin, stdout, stderr = shell.stdin, shell.stdout, shell.stderr
    invariant(stdin is not None and stdout is not None and stderr is not None, "a pipe is missing")
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_feed(stdin, given), name="stdin of a command")
            output = group.create_task(_read_whole(stdout), name="stdout of a command")
            last_words = group.create_task(_read_end(stderr), name="stderr of a command")
    except* HandlerFailed as errors:
        raise errors.exceptions[0] from None
    return output.result(), last_words.result()


async def _feed(stdin: asyncio.StreamWriter, given: bytes) -> None:
    # A command that does not read all of its input has not failed: `head -1` is one. One that ended before
    # the first byte is a RuntimeError on uvloop.
    with suppress(ConnectionError, RuntimeError):
        stdin.write(given)
        await stdin.drain()
    stdin.close()
    with suppress(ConnectionError):
        await stdin.wait_closed()


async def _read_whole(stdout: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    size_bytes = 0
    while chunk := await stdout.read(_READ_BYTES):
        chunks.append(chunk)
        size_bytes += len(chunk)
        if size_bytes > FRAME_BYTES_MAX:
            raise HandlerFailed(
                f"the command printed more than the {FRAME_BYTES_MAX} bytes that a reply may have",
                "reply-too-large",
            )
    return b"".join(chunks)


async def _read_end(stderr: asyncio.StreamReader) -> bytes:
    end = b""
    while chunk := await stderr.read(_READ_BYTES):
        end = (end + chunk)[-ERROR_TEXT_BYTES_MAX:]
    return end


def failure(status: int, last_words: bytes) -> HandlerFailed:
    """What the caller is told about a command that ended with this status."""
    reason = f"exit-{status}" if status > 0 else f"signal-{-status}"
    # Shorter than the bound, because what replaces a bad byte is longer than the byte.
    text = last_words[-ERROR_TEXT_BYTES_MAX // 4 :].decode(errors="replace").strip()
    how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
    return HandlerFailed(text or f"the command {how} and said nothing on stderr", reason)
