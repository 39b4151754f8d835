"""A plant's machines, watched by workers that come, leave and are killed: every reading counts once.

The machines are spread over partitions. A partition's readings are a file that grows, or with --kafka a
partition of a Kafka topic. The worker that has a partition runs a small workflow for each of its machines:
*collect* five readings, *check* their mean, raise an *alarm* if it is too high and the next reading is, too.
The step that each machine is in, its sum and its alarms are the state of the partition's handoff. The offset
of the last reading that the state includes is in the same record.

So when a worker leaves, the next one goes on after that reading. When a worker is killed, the next one begins
with what was saved last and reads some readings again; they count once, because the state that had counted
them is gone. An alarm is written in one transaction with the state. At the end the main program compares all
sums and alarms with what the readings say.

Run it:  python examples/equipment_monitoring.py [--workers 3] [--kafka 127.0.0.1:9092]

`hansa dev kafka` runs a broker. In a Kafka group a killed worker is missed only after the broker's session
timeout, 45 s.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
import zlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import hansa
from hansa.assignment import (
    AssignmentView,
    KafkaMode,
    Mode,
    PartitionLost,
    PartitionRevoked,
    StoreMode,
)

GROUP, TOPIC = "plant", "readings"
MACHINES = [[f"press-{4 * number + each:02}" for each in range(4)] for number in range(6)]
# The names that hansa gives the partitions of a Kafka topic; the group on a store uses the same.
PARTITIONS = [f"{TOPIC}-{number}" for number in range(len(MACHINES))]
READINGS, READING_S = 400, 0.02
WINDOW, LIMIT = 5, 60
NAMES = ("anna", "bert", "carl", "dora", "emil", "fred")


# ---- the workflow: what is done with a reading ---------------------------------------------------------


@dataclass
class Machine:
    """The workflow of one machine, and how far it is."""

    step: str = "collect"
    window: list[int] = field(default_factory=list)
    count: int = 0
    sum: int = 0
    alarms: int = 0

    def take(self, value: int) -> bool:
        """Take one more reading; True if it raises an alarm. The order of the readings matters."""
        self.count += 1
        self.sum += value
        if self.step == "collect":
            self.window.append(value)
            if len(self.window) == WINDOW:
                self.step = "check"
            return False
        if self.step == "check" and sum(self.window) > WINDOW * LIMIT:
            self.step = "alarm"
            return False
        is_alarm = self.step == "alarm" and value > LIMIT
        self.alarms += is_alarm
        self.step, self.window = "collect", []
        return is_alarm


def reading(partition: int, number: int) -> tuple[str, int]:
    """The machine and the value of a reading: invented, and the same in every run."""
    return MACHINES[partition][number % 4], zlib.crc32(f"{partition} {number // 16}".encode()) % 101


# ---- a worker: a process of its own --------------------------------------------------------------------


async def monitor(work: hansa.Work, store: hansa.Store, worker: str) -> None:
    """A worker's program for one partition, from where the last owner stopped until the next takes over."""
    async with work:
        machines = {name: Machine(**each) for name, each in json.loads(work.handoff.state or b"{}").items()}
        say(f"{worker} has {span(work.resources)}, from reading {work.handoff.next_offset} on")
        async for message in work:
            name, value = json.loads(message.value())
            is_alarm = machines.setdefault(name, Machine()).take(value)
            state = json.dumps({name: asdict(each) for name, each in machines.items()}).encode()
            done = hansa.Handoff(state=state, last_offset=message.offset(), processed_at=time.time())
            if not is_alarm:
                work.note(done)
            else:
                # Written in one transaction with the state, and only while this process has the partition.
                alarm = hansa.Put(f"alarms/{work.partition}/{message.offset()}", name.encode())
                await work.save(done, operations=[alarm])


async def take_part(name: str, address: str, folder: str, kafka: str) -> None:
    mode: Mode = KafkaMode(kafka, TOPIC) if kafka else StoreMode()
    async with (
        hansa.open_store(address) as store,
        hansa.Members(store, hansa.NodeInfo(id=name), heartbeat_interval=0.3, heartbeat_timeout=1) as members,
        hansa.Worker(
            members,
            GROUP,
            mode=mode,
            save_interval=0.5,
            # Only used on a store: in a Kafka group the messages come from the topic.
            source=lambda work: lines_of(Path(folder) / work.partition, work.handoff.next_offset),
        ) as worker,
        asyncio.TaskGroup() as tasks,
    ):
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        leaving = tasks.create_task(leave(worker, asked))
        await worker.run(lambda work: monitor(work, store, name))
        leaving.cancel()


async def leave(worker: hansa.Worker, asked: asyncio.Event) -> None:
    """At SIGTERM hand everything over; then `run` ends, and the process with it."""
    await asked.wait()
    await worker.leave()


@dataclass
class Line:
    """A reading in a file, with the methods of a Kafka message."""

    number: int
    text: str

    def offset(self) -> int:
        return self.number

    def value(self) -> str:
        return self.text


async def lines_of(file: Path, offset: int) -> AsyncIterator[Line]:
    """The lines of a file from number `offset` on, also those that are written later."""
    with file.open() as lines:
        text, number = "", 0
        while True:
            text += lines.readline()
            if not text.endswith("\n"):
                await asyncio.sleep(READING_S)
                continue
            if number >= offset:
                yield Line(number, text)
            text, number = "", number + 1


# ---- the play: a store, readings, and workers that come and go -----------------------------------------


async def play(workers: int, kafka: str) -> None:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        serve = ("-m", "hansa.cli", "store", "--memory", "--listen", "127.0.0.1:0", "--json")
        server = await started(stack, *serve, stdout=PIPE)
        assert server.stdout is not None
        address = f"etcd://{json.loads(await server.stdout.readline())['address']}"
        store = await stack.enter_async_context(hansa.open_store(address))
        plant = hansa.Assignments(store, GROUP)
        named = zip(PARTITIONS, MACHINES, strict=True)
        await plant.define(*(hansa.Partition(name=name, resources=tuple(each)) for name, each in named))
        view = await stack.enter_async_context(plant.view())
        readings: Files | Topic = Topic(kafka) if kafka else Files(Path(folder))
        stack.enter_context(readings)

        async def join(name: str) -> Process:
            here = ("--worker", name, "--store", address, "--folder", folder, "--kafka", kafka)
            return await started(stack, __file__, *here)

        async with asyncio.timeout(85), asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell(view))
            first, *others = [await join(name) for name in NAMES[:workers]]
            await view.until(lambda _: set(view.counts) == set(NAMES[:workers]))
            tasks.create_task(measure(readings))
            await view.until(lambda _: saved(view) > 0.25)
            print(f"-- {NAMES[workers]} joins")
            newest = await join(NAMES[workers])
            await view.until(lambda _: saved(view) > 0.5 and NAMES[workers] in view.counts)
            print(f"-- {NAMES[0]} leaves")
            first.terminate()
            await first.wait()
            await view.until(lambda _: saved(view) > 0.75)
            print(f"-- {NAMES[workers]} is killed")
            newest.kill()
            await view.until(lambda _: saved(view) == 1.0)
            telling.cancel()
        await compare(plant, store)
        async with asyncio.timeout(20):
            for worker in others:
                worker.terminate()
                await worker.wait()


async def started(stack: AsyncExitStack, *command: str, stdout: int | None = None) -> Process:
    """Start a Python process; it is killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=stdout)

    async def end() -> None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    stack.push_async_callback(end)
    return process


async def measure(readings: "Files | Topic") -> None:
    """The plant: write one reading for each partition, again and again."""
    for number in range(READINGS):
        for partition in range(len(PARTITIONS)):
            readings.write(partition, json.dumps(reading(partition, number)))
        await asyncio.sleep(READING_S)


class Files:
    """The readings, one file for each partition."""

    def __init__(self, folder: Path) -> None:
        self._files = [(folder / partition).open("a") for partition in PARTITIONS]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def write(self, partition: int, text: str) -> None:
        self._files[partition].write(text + "\n")
        self._files[partition].flush()


class Topic:
    """The readings in a new Kafka topic, each in the partition of the same number."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": servers})
        if TOPIC in admin.list_topics(timeout=30).topics:
            sys.exit(f"topic {TOPIC!r} is there already: its readings would be counted, too")
        admin.create_topics([NewTopic(TOPIC, len(PARTITIONS), 1)])[TOPIC].result()
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 3}
        self._producer = Producer(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(30)

    def write(self, partition: int, text: str) -> None:
        self._producer.produce(TOPIC, text.encode(), partition=partition)
        self._producer.poll(0)


def saved(view: AssignmentView) -> float:
    """The share of all readings that the saved handoffs include."""
    found = [view.assignments[partition].last_offset + 1 for partition in PARTITIONS]
    return sum(found) / (len(PARTITIONS) * READINGS)


async def tell(view: AssignmentView) -> None:
    async for event in view.events():
        offset = -1 if event.handoff is None else event.handoff.last_offset
        match event:
            case PartitionRevoked():
                say(f"{event.node} hands {span(event.resources)} on after reading {offset}")
            case PartitionLost():
                say(f"{event.node} is gone; it saved {span(event.resources)} after reading {offset}")


def say(line: str) -> None:
    """Print a line in one piece: several processes print here."""
    print(f"{line}\n", end="", flush=True)


def span(machines: tuple[str, ...]) -> str:
    return f"{machines[0]} to {machines[-1]}" if machines else "no machines"


async def compare(plant: hansa.Assignments, store: hansa.Store) -> None:
    """Compare what the workers have counted with what there was to count."""
    counted = wanted = 0
    alarms = {item.key.decode() for item in (await store.scan("alarms/")).items}
    expected_alarms = set()
    for index, partition in enumerate(PARTITIONS):
        found = await plant.get(partition)
        assert found is not None
        assert found.handoff is not None
        machines = {name: Machine() for name in MACHINES[index]}
        for number in range(READINGS):
            name, value = reading(index, number)
            if machines[name].take(value):
                expected_alarms.add(f"alarms/{partition}/{number}")
        states = {name: asdict(each) for name, each in machines.items()}
        if json.loads(found.handoff.state) != states:
            sys.exit(f"{partition}: {found.handoff.state.decode()} instead of {states}")
        counted += sum(each["count"] for each in json.loads(found.handoff.state).values())
        wanted += READINGS
    if counted != wanted or alarms != expected_alarms:
        sys.exit(f"{counted} of {wanted} readings, {len(alarms)} of {len(expected_alarms)} alarms")
    print(f"{counted} readings of {sum(map(len, MACHINES))} machines, each counted once, in order;")
    print(f"{len(alarms)} alarms, each raised once")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--workers", type=int, default=2, choices=range(2, len(NAMES)))
    arguments.add_argument("--worker", default="", help=argparse.SUPPRESS)
    arguments.add_argument("--store", default="", help=argparse.SUPPRESS)
    arguments.add_argument("--folder", default="", help=argparse.SUPPRESS)
    arguments.add_argument(
        "--kafka", default="", metavar="SERVERS", help="in a Kafka group, on these brokers"
    )
    given = arguments.parse_args()
    if given.worker:
        asyncio.run(take_part(given.worker, given.store, given.folder, given.kafka))
    else:
        asyncio.run(play(given.workers, given.kafka))


if __name__ == "__main__":
    main()
