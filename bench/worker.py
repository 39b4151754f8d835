"""One process of a trial, started by the conductor.

`python -m bench.worker ROLE PEER CASE ADDRESS SECOND_ADDRESS THIRD_ADDRESS INDEX`
"""

import asyncio
import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Coroutine
from typing import Any

from bench.case import Case
from bench.job import Job
from bench.link import PROFILES, Link
from bench.peers import PEERS


def main(arguments: list[str]) -> None:
    """Run one role until the conductor closes the line."""
    role_name, peer_name, case_name, address, second_address, third_address, index = arguments
    peer, case = PEERS[peer_name], Case.parse(case_name)
    job = Job(
        peer=peer,
        case=case,
        address=address,
        second_address=second_address,
        third_address=third_address,
        index=int(index),
    )
    link = Link(case)
    threading.Thread(target=link.listen, name="line", daemon=True).start()
    if folder := os.environ.get(PROFILES):
        link.profile(f"{folder}/{case.name}-{peer.name}-{role_name}-{index}.txt")
    try:
        role = getattr(importlib.import_module(f"bench.peers.{peer.module}"), role_name)
        if inspect.iscoroutinefunction(role):
            run_on(peer.loop, role(job, link))
        else:
            role(job, link)
    except BaseException:
        traceback.print_exc()
        link.end(1)


def run_on(loop: str, main_coroutine: Coroutine[Any, Any, None]) -> None:
    """Run it on the loop of that name; uvloop falls back to asyncio's own where it is not installed."""
    try:
        import uvloop
    except ImportError:
        loop = "asyncio"
    factory = uvloop.new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main_coroutine)


if __name__ == "__main__":
    main(sys.argv[1:])
