"""Follows one real call, publish and lock through the files of hansa: `python -m tests.support.walks call`.

Prints JSON: the files in the order in which the walk first enters them, how many calls of hansa's functions
it makes, and the cancel scopes that it opens. hansa's modules are loaded from their sources, since a profile
does not see into compiled ones. What has nothing to do with a walk (a heartbeat, a renewal) comes in one
round and not in the next: only files that every round enters count.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import FrameType
from typing import Any

ROUNDS_COUNT = 7
WARM_COUNT = 3
ANY = "tcp://127.0.0.1:0"
SCOPES = frozenset({"Timeout", "GuardedBlock"})

Round = Callable[[], Awaitable[None]]


class FromSource:
    """Finds hansa's modules by their sources, also where a compiled form lies beside them."""

    @staticmethod
    def find_spec(name: str, path: list[str] | None = None, target: object = None) -> ModuleSpec | None:
        if path is None or name.partition(".")[0] != "hansa":
            return None
        found = (FileFinder(each, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name) for each in path)
        return next((spec for spec in found if spec is not None), None)


sys.meta_path.insert(0, FromSource)  # type: ignore[arg-type]  # Only `find_spec` is asked for.

import hansa  # noqa: E402
from hansa.services.gateway import Addresses  # noqa: E402
from hansa.store.served.server import StoreServer  # noqa: E402

ROOT = Path(hansa.__file__).parent


class Profile:
    """What one round enters."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.calls_count = 0
        self.scopes: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_name == "__aenter__" and type(frame.f_locals.get("self")).__name__ in SCOPES:
            self.scopes.append(type(frame.f_locals["self"]).__name__)
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT):
            self.files[str(path.relative_to(ROOT))] = None
            self.calls_count += 1


async def followed(one_round: Round) -> dict[str, Any]:
    for _ in range(WARM_COUNT):
        await one_round()
    rounds = []
    for _ in range(ROUNDS_COUNT):
        profile = Profile()
        sys.setprofile(profile)
        try:
            await one_round()
        finally:
            sys.setprofile(None)
        rounds.append(profile)
    least = min(rounds, key=lambda profile: profile.calls_count)
    return {
        "files": [file for file in least.files if all(file in each.files for each in rounds)],
        "calls_count": least.calls_count,
        "scopes": least.scopes,
    }


@asynccontextmanager
async def elsewhere(serve: Callable[[], Any]) -> AsyncIterator[str]:
    """Run the other side in another thread, which a profile of this one does not see; gives its address."""
    addresses: list[str] = []
    is_ready = threading.Event()
    ends: list[Callable[[], object]] = []

    async def run() -> None:
        is_over = asyncio.Event()
        loop = asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(is_over.set))
        async with serve() as address:
            addresses.append(address)
            is_ready.set()
            await is_over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    await asyncio.to_thread(is_ready.wait)
    try:
        yield addresses[0]
    finally:
        ends[0]()
        await asyncio.to_thread(thread.join)


@asynccontextmanager
async def provider() -> AsyncIterator[str]:
    async with hansa.Provider(bind=ANY) as offering:

        @offering.handler(msg_id=1)
        async def pay(request: hansa.Request) -> bytes:
            return b"paid"

        yield str(offering.endpoint)


@asynccontextmanager
async def store_server() -> AsyncIterator[str]:
    async with StoreServer("127.0.0.1:0") as server:
        yield server.address


async def call() -> dict[str, Any]:
    """A request and its reply, at the caller."""
    async with elsewhere(provider) as endpoint, hansa.Gateway(Addresses({"pay": [endpoint]})) as gateway:
        await gateway.wait_connected("pay", timeout=5)

        async def one_round() -> None:
            assert await gateway.request("pay", [b"100"], msg_id=1) == [b"paid"]

        return await followed(one_round)


async def publish() -> dict[str, Any]:
    """From `publish` at the owner of a topic to `recv` at a subscriber on another node."""
    async with hansa.Registry(pub=ANY, router=ANY) as registry:
        router, pub = str(registry.router), str(registry.pub)
        async with (
            hansa.Discovery(registries=[pub]) as discovery,
            hansa.Discovery(registries=[pub]) as other_discovery,
            hansa.SpotNode(bind=ANY, registries=[router], discovery=discovery) as node,
            hansa.SpotNode(bind=ANY, registries=[router], discovery=other_discovery) as other_node,
        ):
            owner, reader = node.spot(), other_node.spot()
            await owner.create_topic("news")
            await (await reader.subscribe("news")).active(5)

            async def one_round() -> None:
                await owner.publish("news", b"today")
                assert (await reader.recv()).payload == b"today"

            return await followed(one_round)


async def lock() -> dict[str, Any]:
    """A lock that nobody else wants, taken and given back, in a store behind etcd's API."""
    async with (
        elsewhere(store_server) as address,
        hansa.open_store(f"etcd://{address}") as store,
        hansa.Session(store, ttl=60) as session,
    ):

        async def one_round() -> None:
            async with hansa.Lock(session, "nightly"):
                pass

        return await followed(one_round)


WALKS: dict[str, Callable[[], Any]] = {"call": call, "publish": publish, "lock": lock}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(WALKS[sys.argv[1]]())))
