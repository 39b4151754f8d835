"""`hansa call`: one request to a service, from a shell."""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import Annotated

from hansa.cli.arguments import Number, Parameter
from hansa.cli.exit_status import FAILED, INTERRUPTED, OK, complain, reader_left
from hansa.cli.registry_options import (
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
from hansa.cli.standard_streams import part_lines, parts_object, read_payload
from hansa.demo.books import Latencies
from hansa.errors import HansaError
from hansa.limits import REQUEST_TIMEOUT_S
from hansa.runtime.loops import run
from hansa.services.discovery import Discovery
from hansa.services.gateway import Gateway


def call(
    service: str,
    payload: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    pub: Pubs = (PUB,),
    router: Routers = (ROUTER,),
    msg_id: MsgId = 0,
    timeout: Annotated[float, SECONDS] = REQUEST_TIMEOUT_S,
    count: Annotated[Whole, Parameter(validator=Number(gte=1))] = 1,
    raw: bool = False,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Call a service and print the reply.

    Examples:

        hansa call payment-service 100 --msg-id 1
        echo hello | hansa call shout -
        hansa call thumbnail @photo.jpg --raw > small.jpg

    Parameters
    ----------
    service
        The name under which providers registered.
    payload
        Text; `-` reads standard input, `@path` a file (write `@@` for text that begins with `@`).
    router
        Not needed here; accepted, so that the same options fit every command.
    msg_id
        Which handler of the provider is meant.
    timeout
        How long finding a provider and its reply may take together.
    count
        Ask so many times, one after the other, and tell on stderr how long it took.
    raw
        Write the reply's bytes exactly as they are, without line ends between and after its parts.
    as_json
        An object for each reply: its parts, or `error` (a stable code) and `text`.
    """
    try:
        content = read_payload(payload)
        environment = tls.environment()
        discovery = Discovery(pub, environment=environment)
        discovery.subscribe(service)
    except HansaError as error:
        return complain("call", error, as_json=as_json)

    def show(parts: list[bytes], elapsed_s: float) -> None:
        if as_json:
            reply = {**parts_object(parts), "elapsed_ms": round(elapsed_s * 1000, 3)}
            _write(json.dumps(reply).encode() + b"\n")
        elif raw:
            _write(b"".join(parts))
        else:
            to_terminal = sys.stdout.isatty()
            _write(b"".join(part_lines(part, for_terminal=to_terminal) for part in parts))

    async def ask() -> Latencies:
        latencies = Latencies()
        async with discovery, Gateway(discovery, environment=environment) as gateway:
            for _ in range(count):
                begun_at = perf_counter()
                await discovery.wait_available(service, timeout)
                left_s = max(0.001, timeout - (perf_counter() - begun_at))
                parts = await gateway.request(service, content, msg_id=msg_id, timeout=left_s)
                elapsed_s = perf_counter() - begun_at
                latencies.note(elapsed_s)
                show(parts, elapsed_s)
        return latencies

    try:
        latencies = run(ask())
    except HansaError as error:
        return complain("call", error, as_json=as_json, status=FAILED)
    except BrokenPipeError:
        reader_left()
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    if count > 1:
        half_s, most_s = latencies.quantile_s(0.5) or 0.0, latencies.quantile_s(0.99) or 0.0
        print(f"{count} replies, p50 {half_s * 1e6:.0f} us, p99 {most_s * 1e6:.0f} us", file=sys.stderr)
    return OK


def _write(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
