"""A registry, a crowd of providers that speak its wire protocol, and a discovery: the roles of "scale".

The providers are a DEALER each in one process, with only what a registry sees of a provider: they register
when they are connected, and again after every cut, at a random time as hansa's Provider does. If the machine
allows fewer open files than there are providers, several share a connection.

Settings: the defaults, except where the first registry of a trial has to be quiet for its CPU time to mean
something: the pings of its connections are off and nothing expires, and it repeats its list soon enough for
the repeating to be measured. The second one has the defaults.
"""

import asyncio
import random
import time
from collections.abc import Iterator

from bench.job import Job
from bench.link import Link
from bench.memory import open_files_max, resident_bytes
from bench.scale_plan import beats_per_s, providers_per_service, repeat_s
from hansa.limits import REREGISTER_S_MAX, RETURN_S_MAX
from hansa.services.discovery import Discovery, DiscoveryEvent, ProviderAdded, WeightChanged
from hansa.services.registry import Registry
from hansa.transport import Connected, Dealer, Environment, HandshakeFailed, SocketEvent, SocketOptions
from hansa.wire.registry import AckStatus, Heartbeat, Register, RegisterAck, UpdateWeight, decode, encode

DIALLING_MAX = 100
"""Connections made at once by the first crowd; after a restart all dial when they notice."""
NEVER_S = 3600.0
POLL_S = 0.01
_quiet = SocketOptions(heartbeat_interval=None)


# -- the registry


async def registry(job: Job, link: Link) -> None:
    """Number 1 is quiet, number 2 takes its place with the defaults. It counts what it tells and hears."""
    open_files_max()
    before = resident_bytes()
    pub, router = f"tcp://{job.address}", f"tcp://{job.second_address}"
    if job.index == 1:
        one = Registry(
            pub,
            router,
            registry_id=job.index,
            heartbeat_timeout=NEVER_S,
            broadcast_interval=repeat_s(job.case.width),
            environment=Environment(options=_quiet),
        )
    else:
        one = Registry(pub, router, registry_id=job.index)

    def gauges() -> dict[str, float]:
        stats = one.stats
        return {
            "broadcasts": stats.broadcasts_count,
            "broadcast_bytes": stats.broadcast_bytes_count,
        }

    async with one:
        link.gauges = gauges
        link.ready()
        while True:
            await link.order()
            link.done(bytes=(resident_bytes() - before) / job.case.width)


# -- the providers


class Crowd:
    """All connections of the load process, and who waits for which answer."""

    def __init__(self, job: Job) -> None:
        self.count = job.case.width
        self.router = f"tcp://{job.second_address}"
        self.per_service = providers_per_service(job.case)
        self.connections_count = min(self.count, open_files_max())
        self.registered: set[int] = set()
        """Numbers of the providers that the present registry has."""
        self.all_registered = asyncio.Event()
        self.failed_dials_count = 0
        self._dealers: list[Dealer] = []
        self._answers: dict[int, asyncio.Future[RegisterAck]] = {}
        self._numbers = {self.endpoint(number): number for number in range(self.count)}
        self._last_token = self.count
        self._chance = random.Random(1)
        self._spread_s = 0.0

    def service(self, number: int) -> str:
        return f"service-{number // self.per_service % -(-self.count // self.per_service):05}"

    def endpoint(self, number: int) -> str:
        return f"tcp://10.{number // 62_500}.{number // 250 % 250}.{number % 250 + 1}:7000"

    def dealer(self, number: int) -> Dealer:
        return self._dealers[number % self.connections_count]

    async def join(self) -> None:
        """Connect and register, some at once; from now on they come back by themselves."""
        turn = asyncio.Semaphore(DIALLING_MAX)

        async def connect(slot: int) -> None:
            async with turn:
                await self._dealers[slot].connect(self.router).up()

        async with asyncio.TaskGroup() as dialling:
            for slot in range(self.connections_count):
                self._dealers.append(self._new_dealer(slot))
                dialling.create_task(connect(slot), name=f"dial-{slot}")
        await self.all_registered.wait()
        self._spread_s = RETURN_S_MAX

    async def ask(self, number: int, message: Register | UpdateWeight | Heartbeat) -> RegisterAck:
        """Send it over that provider's connection and wait for the answer to its token."""
        assert message.token is not None
        answer: asyncio.Future[RegisterAck] = asyncio.get_running_loop().create_future()
        self._answers[message.token] = answer
        self.dealer(number).post(encode(message))
        return await answer

    def token(self) -> int:
        self._last_token += 1
        return self._last_token

    def numbers(self) -> Iterator[int]:
        """Providers far apart, each once before any comes twice."""
        while True:
            yield from self._chance.sample(range(self.count), self.count)

    def _new_dealer(self, slot: int) -> Dealer:
        return Dealer(
            b"provider-%05d" % slot,
            environment=Environment(options=_quiet),
            on_messages=lambda peer, messages: self._heard(messages),
            on_event=lambda event: self._happened(slot, event),
            name=f"provider-{slot}",
        )

    def _happened(self, slot: int, event: SocketEvent) -> None:
        mine = range(slot, self.count, self.connections_count)
        if isinstance(event, Connected):
            delay_s = self._chance.uniform(0, self._spread_s) if self._spread_s else 0.0
            asyncio.get_running_loop().call_later(delay_s, self._register, slot, mine)
        elif isinstance(event, HandshakeFailed):
            self.failed_dials_count += 1
        else:
            self.registered.difference_update(mine)
            self.all_registered.clear()

    def _missing(self, endpoint: str) -> None:
        """A heartbeat found its entry expired: the crowd was too slow to beat in time."""
        number = self._numbers[endpoint]
        self.registered.discard(number)
        self.all_registered.clear()
        delay_s = self._chance.uniform(0, REREGISTER_S_MAX)
        slot = number % self.connections_count
        asyncio.get_running_loop().call_later(delay_s, self._register, slot, range(number, number + 1))

    def _register(self, slot: int, mine: range) -> None:
        for number in mine:
            # A provider's own number is its token: so its answer says who is registered.
            message = Register(service=self.service(number), endpoint=self.endpoint(number), token=number)
            self._dealers[slot].post(encode(message))

    def _heard(self, messages: list[list[bytes]]) -> None:
        for frames in messages:
            ack = decode(frames)
            if not isinstance(ack, RegisterAck):
                raise ValueError(f"the registry said {ack}")
            if ack.token is None:
                self._missing(ack.endpoint)
            elif ack.token < self.count:
                if ack.status is not AckStatus.OK:
                    raise ValueError(f"the registry refused: {ack}")
                self.registered.add(ack.token)
                if len(self.registered) == self.count:
                    self.all_registered.set()
            else:
                self._answers.pop(ack.token).set_result(ack)


async def crowd(job: Job, link: Link) -> None:
    """Does what it is told to, and says when it began."""
    one = Crowd(job)
    numbers = one.numbers()
    extra = one.count
    beating: list[asyncio.Future[None]] = []
    link.gauges = lambda: {"failed_dials": one.failed_dials_count}
    link.ready()
    while True:
        match await link.order():
            case ["join"]:
                at_s = time.monotonic()
                await one.join()
                link.done(at_s=at_s, end_s=time.monotonic(), connections=one.connections_count)
            case ["return"]:
                # From now on they must beat, or they would expire before the last is back.
                beating.append(asyncio.ensure_future(_keep_beating(one)))
                await one.all_registered.wait()
                link.done(end_s=time.monotonic())
            case ["weigh", weight]:
                at_s = time.monotonic()
                await _weigh(one, next(numbers), int(weight))
                link.done(at_s=at_s)
            case ["enter"]:
                at_s, number, extra = time.monotonic(), extra, extra + 1
                message = Register(
                    service=one.service(number), endpoint=one.endpoint(number), token=one.token()
                )
                await one.ask(number % one.count, message)
                link.done(at_s=at_s, endpoint=one.endpoint(number))
            case ["burst", count, weight]:
                at_s = time.monotonic()
                for step in range(int(count) - 1):
                    number = next(numbers)
                    service, endpoint = one.service(number), one.endpoint(number)
                    update = UpdateWeight(service=service, endpoint=endpoint, weight=step + 2)
                    one.dealer(number).post(encode(update))
                await _weigh(one, next(numbers), int(weight))
                link.done(at_s=at_s)
            case ["beat", count]:
                link.done(beats=await _beat(one, int(count)))


async def _weigh(one: Crowd, number: int, weight: int) -> None:
    ack = await one.ask(
        number,
        UpdateWeight(
            service=one.service(number), endpoint=one.endpoint(number), weight=weight, token=one.token()
        ),
    )
    if ack.status is not AckStatus.OK:
        raise ValueError(f"the registry refused: {ack}")


def _heartbeats(one: Crowd) -> list[list[bytes]]:
    return [
        encode(Heartbeat(service=one.service(number), endpoint=one.endpoint(number)))
        for number in range(one.count)
    ]


async def _beat(one: Crowd, count: int) -> int:
    """Rounds of one heartbeat a provider; each begins when the one before has been read."""
    messages = _heartbeats(one)
    rounds_count = -(-count // one.count)
    for _ in range(rounds_count):
        for number, message in enumerate(messages):
            one.dealer(number).post(message)
        # Heartbeats have no answer, except this one.
        await one.ask(
            one.count - 1,
            Heartbeat(service="nobody's", endpoint=one.endpoint(one.count), token=one.token()),
        )
    return rounds_count * one.count


async def _keep_beating(one: Crowd) -> None:
    """Heartbeats of all who are registered, evenly over time, as so many real providers send them."""
    messages, loop = _heartbeats(one), asyncio.get_running_loop()
    begun_at, turn = loop.time(), 0
    while True:
        while turn < (loop.time() - begun_at) * beats_per_s(one.count):
            number = turn % one.count
            if number in one.registered:
                one.dealer(number).post(messages[number])
            turn += 1
        await asyncio.sleep(POLL_S)


# -- the discovery


async def watch(job: Job, link: Link) -> None:
    """Says when it has what it was told to expect."""
    seen: dict[str, float] = {}
    news = asyncio.Event()

    def note(event: DiscoveryEvent) -> None:
        if isinstance(event, WeightChanged):
            seen[str(event.provider.weight)] = time.monotonic()
        elif isinstance(event, ProviderAdded):
            seen[event.provider.endpoint] = time.monotonic()
        news.set()

    async with Discovery([f"tcp://{job.address}"]) as discovery:
        discovery.listen(note)
        discovery.subscribe_all()
        link.gauges = lambda: {"lists": discovery.stats.lists_count + discovery.stats.lists_repeated_count}
        link.ready()
        while True:
            match await link.order():
                case ["expect", what]:
                    while what not in seen:
                        news.clear()
                        await news.wait()
                    link.done(at_s=seen[what])
                case ["complete", count, after_s]:
                    await _complete(discovery, int(count), float(after_s))
                    link.done(at_s=time.monotonic())


async def _complete(discovery: Discovery, count: int, after_s: float) -> None:
    """Until it knows so many providers that registered after that time."""
    lists_count = -1
    while True:
        # Asked now and then: looking at every event would cost more than hearing it.
        if discovery.stats.lists_count != lists_count:
            lists_count = discovery.stats.lists_count
            known = (provider for providers in discovery.services.values() for provider in providers)
            if sum(provider.registered_at >= after_s for provider in known) >= count:
                return
        await asyncio.sleep(POLL_S)
