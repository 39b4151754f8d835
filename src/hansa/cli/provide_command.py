"""`hansa provide`: a shell command as a provider, so that anyone can try it in a minute."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.exit_status import FAILED, OK, complain
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
    TlsFiles,
    Whole,
)
from hansa.cli.shell_handler import ShellHandler
from hansa.cli.stop_signals import Stop, stop_signals
from hansa.errors import HandlerFailed, HansaError
from hansa.ids import format_id
from hansa.limits import DRAIN_TIMEOUT_S
from hansa.runtime.loops import run
from hansa.services.provider import Provider

# Processes cost more than handlers inside one; beyond these requests wait, and then callers hear "busy".
COMMANDS_MAX: Final = 8


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
    msg_id: Annotated[tuple[MsgId, ...], Parameter(negative="")] = (0,),
    concurrency: Annotated[Whole, Parameter(validator=Number(gte=1, lte=1_000))] = COMMANDS_MAX,
    drain_timeout: Annotated[float, SECONDS] = DRAIN_TIMEOUT_S,
    as_json: AsJson = False,
    tls: TlsFiles = NO_TLS,
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
    router
        The ROUTER endpoint of a registry; repeat it for each, or set HANSA_ROUTER with commas between.
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
    as_json
        Tell everything as JSON, an object a line, for programs.
    """
    try:
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
    except HansaError as error:
        return complain("provide", error, as_json=as_json)


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


async def _drain(provider: Provider, stop: Stop, *, drain_s: float) -> bool:
    """Drain, but no longer than somebody lets it; True if all was finished."""
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(provider.drain(timeout=drain_s), name="draining")
        urging = group.create_task(stop.urged.wait(), name="waiting for a second signal")
        await asyncio.wait((draining, urging), return_when=asyncio.FIRST_COMPLETED)
        is_drained = draining.done() and draining.result()
        draining.cancel()
        urging.cancel()
    return is_drained
