"""`hansa provide`: a shell command as a provider, so that anyone can try it in a minute.

Its handler gives each request to a command of its own as stdin, and takes its stdout for the reply.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.exit_status import FAILED, OK
from hansa.cli.log_lines import LogLines
from hansa.cli.registry_options import (
    ENDPOINT,
    NO_TLS,
    PUB,
    ROUTER,
    SECONDS,
    AsJson,
    MsgId,
    Pubs,
    Routers,
    TlsOptions,
    Whole,
)
from hansa.cli.stop_signals import StopRequest, stop_signals
from hansa.errors import HandlerFailed, TimedOut, invariant
from hansa.ids import format_id
from hansa.limits import DRAIN_TIMEOUT_S, ERROR_TEXT_BYTES_MAX, FRAME_BYTES_MAX
from hansa.runtime.loops import run
from hansa.runtime.tasks import TaskScope
from hansa.services.provider import Provider, Request

# Processes cost more than handlers inside one; further requests wait, and then callers hear "busy".
COMMANDS_MAX: Final = 8
_READ_BYTES: Final = 64 * 1024


def provide(
    service: str,
    /,
    *,
    command: Annotated[str, Parameter(name="--exec", metavar="CMD")],
    bind: Annotated[str, ENDPOINT] = "tcp://127.0.0.1:0",
    advertise: Annotated[str | None, ENDPOINT] = None,
    router: Routers = (ROUTER,),
    pub: Pubs = (PUB,),
    weight: Annotated[Whole, Parameter(validator=Number(gte=0, lte=0xFFFF_FFFF))] = 1,
    msg_id: tuple[MsgId, ...] = (0,),
    concurrency: Annotated[Whole, Parameter(validator=Number(gte=1, lte=1_000))] = COMMANDS_MAX,
    drain_timeout: Annotated[float, SECONDS] = DRAIN_TIMEOUT_S,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Offer a shell command as a service: the request is its stdin, its stdout is the reply.

    The caller of a command that ends with status N gets the error `exit-N` with the end of its stderr. A
    command is killed when its caller's deadline passes. SIGTERM or Ctrl-C ends it in order: it unregisters,
    finishes what runs, and leaves; a second one does not wait for that.

    Examples:

        hansa provide shout --exec 'tr a-z A-Z'
        hansa provide shout --exec 'tr a-z A-Z' --bind tcp://0.0.0.0:0 --router tcp://registry-host:5551

    Parameters
    ----------
    service
        The name to register.
    command
        What to run for each request, with `sh -c`.
    bind
        Where callers connect; port 0 takes any free port.
    advertise
        What callers are told to connect to, if it is not where the provider is bound.
    pub
        Not needed here; accepted, so that the same options fit every command.
    weight
        This provider's share of the requests, for callers that balance by weight; 0 means 1.
    msg_id
        Requests with this msgId are answered; repeat it for several.
    concurrency
        How many commands run at once; more requests wait.
    drain_timeout
        How long leaving waits for callers to go.
    """
    provider = Provider(
        bind,
        router,
        advertise=advertise,
        concurrency_max=concurrency,
        environment=tls.environment(),
        name=service,
    )
    with LogLines(as_json=as_json) as log:

        def failed(error: HandlerFailed) -> None:
            sentence = f"a request failed: {error.reason}: {error}"
            log.tell("failed", sentence, reason=error.reason, text=str(error))

        handler = ShellHandler(command, service, on_failure=failed)
        for number in dict.fromkeys(msg_id):
            provider.handler(number)(handler)
        return run(serve(provider, service, log, weight=weight, drain_s=drain_timeout))


async def serve(provider: Provider, service: str, log: LogLines, *, weight: int, drain_s: float) -> int:
    """Register and answer until a signal says stop; the exit status. Raises what registering raises."""
    with stop_signals() as stop:
        async with provider:
            registration = await provider.register(service, weight=weight)
            log.tell(
                "ready",
                f"{service} ready: {registration.endpoint} registered with {registration.registry}, "
                f"pid {os.getpid()}",
                service=service,
                endpoint=registration.endpoint,
                routing_id=format_id(provider.routing_id),
                registry=registration.registry,
                pid=os.getpid(),
            )
            await stop.asked.wait()
            log.tell("draining", f"{service} is leaving", service=service)
            is_drained = await _drain(provider, stop, drain_s=drain_s)
            stats = provider.stats
        log.tell(
            "stopped",
            f"{service} stopped: {stats.requests_count} requests, {stats.replied_count} replied, "
            f"{stats.failed_count} failed, {stats.busy_count} busy"
            + ("" if is_drained else "; some were still under way"),
            service=service,
            requests_count=stats.requests_count,
            replied_count=stats.replied_count,
            failed_count=stats.failed_count,
            busy_count=stats.busy_count,
            is_drained=is_drained,
        )
    return OK if is_drained else FAILED


async def _drain(provider: Provider, stop: StopRequest, *, drain_s: float) -> bool:
    """Drain, but stop at a second signal; returns whether all was finished."""
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(provider.drain(timeout=drain_s), name="draining")
        urging = group.create_task(stop.urged.wait(), name="waiting for a second signal")
        await asyncio.wait((draining, urging), return_when=asyncio.FIRST_COMPLETED)
        is_drained = draining.done() and draining.result()
        draining.cancel()
        urging.cancel()
    return is_drained


# ---- the handler: one command a request -------------------------------------------------------------


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
                # Giving up in the middle of a start would leave processes that the shell started meanwhile.
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

    Pipes that are not read to their end (too much output, or a holder that left the group) end only when the
    transport is closed, and waiting for the process may wait for its pipes; `exited` does not.
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
        """Kill the whole group and not the shell alone: its children would go on without a parent."""
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
    """Write stdin and read both outputs, all at once; returns stdout whole and the end of stderr."""
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
    # the first byte raises a RuntimeError on uvloop.
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
    """The error for the caller of a command that ended with this status."""
    reason = f"exit-{status}" if status > 0 else f"signal-{-status}"
    # Shorter than the bound, because the replacement of a bad byte is longer than the byte.
    text = last_words[-ERROR_TEXT_BYTES_MAX // 4 :].decode(errors="replace").strip()
    how = f"ended with status {status}" if status > 0 else f"was killed by signal {-status}"
    return HandlerFailed(text or f"the command {how} and said nothing on stderr", reason)
