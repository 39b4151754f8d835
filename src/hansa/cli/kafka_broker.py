"""One Apache Kafka broker as a process on this machine, for development and tests.

It is broker and controller in one (KRaft), listens on this machine alone, and has no encryption and no
logins. `properties`, the request to the broker and the reading of its answer are pure; `KafkaBroker` starts
the process, waits until it answers, and ends it.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self
from uuid import uuid4

from hansa.cli.kafka_jars import KafkaProgram, ended_within, log_tail
from hansa.errors import AddressInUse, BadArgument, HansaError, KafkaRefused, KafkaUnavailable, UsageError
from hansa.limits import (
    KAFKA_ANSWER_BYTES_MAX,
    KAFKA_ASK_S_MAX,
    KAFKA_START_S_MAX,
    KAFKA_STOP_S_MAX,
    KAFKA_TOOL_S_MAX,
)
from hansa.runtime.tasks import in_thread
from hansa.runtime.tied_process import tied

HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.05
_NODE: Final = "1"
_SETTING: Final = re.compile(r"[a-z][a-z0-9._-]*\Z")
# The settings that make it this broker; the caller may give all others.
_OURS: Final = frozenset(
    {"process.roles", "node.id", "controller.quorum.voters", "listeners", "advertised.listeners"}
    | {"controller.listener.names", "listener.security.protocol.map", "log.dirs", "log.dir"}
)
# A single broker needs no copies; and the 50 partitions that Kafka makes for itself, so that many brokers can
# share them, would only take time here.
_ALONE: Final = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # What the compaction of topics remembers keys in is taken when the broker starts. Of the 128 MiB that
    # servers have, 8 are enough here: 130 of 354 MB of memory are saved, and 0.2 of 2.0 s of CPU.
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    # A broker that is started after a kill -9 waits until the controller has given up the previous one.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    # A developer who starts the members of a group by hand does not want to wait for more of them.
    "group.initial.rebalance.delay.ms": "0",
}
_HEAP_MB: Final = 512
# Beside the heap: a small and quick start instead of the last bit of speed.
_JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
# Texts in the log of a broker that ended, and the errors that they mean.
_REASONS: Final[tuple[tuple[str, type[HansaError], str], ...]] = (
    ("Address already in use", AddressInUse, "port {port} is taken: choose another port"),
    ("Failed to acquire lock", KafkaRefused, "another broker uses {folder}: choose another folder"),
    ("No space left on device", KafkaUnavailable, "the disk of {folder} is full"),
    ("OutOfMemoryError", KafkaUnavailable, "it has used up its memory"),
)

# A Metadata request (key 3, version 1) about no topic, of a client "hansa": the cheapest one that tells which
# brokers serve. Its length comes first. The broker answers nothing before it has registered with its
# controller.
METADATA_REQUEST: Final = struct.pack(">ihhih5si", 19, 3, 1, 1, 5, b"hansa", 0)


def properties(
    *, port: int, controller_port: int, data: Path, settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The contents of server.properties. Raises `BadArgument` for a setting that the caller may not give."""
    for name, value in (settings or {}).items():
        if name in _OURS:
            raise BadArgument(f"{name} is given by hansa: the broker is one process on {HOST}")
        if not _SETTING.match(name) or "\n" in value or "\\" in value:
            raise BadArgument(f"{name}={value!r} is no setting of a broker")
    return {
        "process.roles": "broker,controller",
        "node.id": _NODE,
        "controller.quorum.voters": f"{_NODE}@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        **_ALONE,
        **(settings or {}),
    }


def new_cluster_id(random: bytes | None = None) -> str:
    """16 bytes as 22 characters, the way Kafka writes its ids."""
    import base64

    text = base64.urlsafe_b64encode(uuid4().bytes if random is None else random)[:22].decode()
    # An id that begins with a hyphen would be taken for an option.
    return text if text[0] != "-" else "A" + text[1:]


def brokers_in(answer: bytes) -> list[tuple[str, int]]:
    """The brokers that an answer to `METADATA_REQUEST` names: host and port. Raises ValueError."""
    try:
        _, count = struct.unpack_from(">ii", answer)
        place, found = 8, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", answer, place + 4)
            if length < 0:
                raise ValueError("it names a broker without a host")
            host = answer[place + 6 : place + 6 + length].decode()
            place += 6 + length
            port, rack_length = struct.unpack_from(">ih", answer, place)
            place += 6 + max(0, rack_length)
            found.append((host, port))
        return found
    except struct.error as error:
        raise ValueError("it is no answer to a Metadata request") from error


def reason(said: str, *, port: int, folder: Path) -> HansaError:
    """The reason why a broker ended, from the end of its log."""
    kind, text = next(
        ((kind, text.format(port=port, folder=folder)) for word, kind, text in _REASONS if word in said),
        (KafkaUnavailable, "it does not say why in words that hansa knows"),
    )
    return kind(f"the Kafka broker ended: {text}. The end of its log:\n{said or '(it is empty)'}")


class KafkaBroker:
    """A broker: `async with KafkaBroker(program) as broker`. Entering waits until it answers at `address`.

    `folder` keeps its data, its log and its properties; without one they are deleted at the end. `settings`
    are the broker's own, beside or instead of hansa's. Port 0 takes any free one, which is the broker's until
    the block ends, also while it is stopped. Within the block it may be stopped or killed and started again,
    with the same data and address. Leaving the block stops it; it never outlives this process (on Linux;
    elsewhere a kill -9 leaves it). Start it from a thread that lives as long as it.

    Entering raises `AddressInUse`, `KafkaRefused` (the folder is another broker's, or cannot be used),
    `KafkaUnavailable` (it ended or does not answer, with the end of its log) and `BadArgument`.
    """

    def __init__(
        self,
        program: KafkaProgram,
        *,
        folder: Path | None = None,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        heap_mb: int = _HEAP_MB,
    ) -> None:
        # An impossible setting is reported before anything is started.
        properties(port=port, controller_port=0, data=Path(), settings=settings)
        if not 0 <= port <= 65_535:
            raise BadArgument(f"{port} is no port: give one of 1 to 65535, or 0 for any that is free")
        self._program = program
        self._given_folder = folder
        self._given_port = port
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._folder = Path()
        self._lock: IO[bytes] | None = None
        self._ports: list[socket.socket] = []
        self._port = 0
        self._controller_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        try:
            self._take_folder()
            self._take_ports()
            await self.start()
        except BaseException:
            self._give_back()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.stop()
        finally:
            self._give_back()

    @property
    def address(self) -> str:
        """Where clients connect: their `bootstrap.servers`."""
        return f"{HOST}:{self._port}"

    @property
    def version(self) -> str:
        return self._program.version

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def log_path(self) -> Path:
        """Its log since its last start. The log of the run before is beside it."""
        return self._folder / "broker.log"

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self) -> None:
        """Start it, again if need be, and wait until it answers. Raises as entering the block does."""
        if self.pid is not None:
            raise UsageError(f"the broker at {self.address} runs already")
        data = self._folder / "data"
        path = self._folder / "server.properties"
        lines = properties(
            port=self._port,
            controller_port=self._controller_port,
            data=data.resolve(),
            settings=self._settings,
        )
        path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")
        if self.log_path.exists():
            self.log_path.replace(self._folder / "broker.log.before")
        if not (data / "meta.properties").exists():
            await self._format(path)
        self._process = self._spawn("kafka.Kafka", str(path))
        try:
            await self._wait_until_it_answers(self._process)
        except BaseException:
            self.kill()
            raise

    async def stop(self) -> None:
        """End it in order, or by force when that takes too long. Does nothing if it has ended."""
        if (process := self._process) is None:
            return
        process.terminate()
        await ended_within(process, KAFKA_STOP_S_MAX)

    def kill(self) -> None:
        """Send SIGKILL, and wait for its end. Does nothing if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def ended(self) -> HansaError:
        """Wait until it has ended; returns the reason, from its log, and does not raise it."""
        if (process := self._process) is not None:
            await in_thread(process.wait, f"end of process {process.pid}")[0]
        return self._failure()

    # ---- inside ----

    def _failure(self) -> HansaError:
        return reason(log_tail(self.log_path), port=self._port, folder=self._folder)

    def _take_folder(self) -> None:
        if self._given_folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="hansa-kafka-"))
            return
        try:
            self._given_folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self._given_folder / "lock").open("wb")
            # Kafka has a lock too, and looks at it late: by then the controller of the second broker has
            # become active on the first one's log of the cluster.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise KafkaRefused(f"another broker uses {self._given_folder}: choose another folder") from error
        except OSError as error:
            raise KafkaRefused(
                f"Kafka cannot keep its data in {self._given_folder}: {error}; choose another folder"
            ) from error
        self._folder = self._given_folder

    def _take_ports(self) -> None:
        for port in (self._given_port, 0):
            holding = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._ports.append(holding)
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holding.bind((HOST, port))
            except OSError as error:
                raise AddressInUse(
                    f"port {port} of {HOST} cannot be used ({error.strerror}): choose another port"
                ) from error
        self._port, self._controller_port = (holding.getsockname()[1] for holding in self._ports)
        if sys.platform != "linux":
            # On Linux a port that is bound, without listening, is given to no program that asks for any port,
            # and the broker can still listen there. On other systems it could not.
            self._close_ports()

    def _close_ports(self) -> None:
        while self._ports:
            self._ports.pop().close()

    def _give_back(self) -> None:
        self.kill()
        self._close_ports()
        if self._lock is not None:
            self._lock.close()
        if self._given_folder is None and self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _format(self, path: Path) -> None:
        arguments = ("format", "--cluster-id", new_cluster_id(), "--config", str(path))
        status = await ended_within(self._spawn("kafka.tools.StorageTool", *arguments), KAFKA_TOOL_S_MAX)
        if status != 0:
            raise KafkaRefused(
                f"Kafka cannot keep its data in {self._folder}; choose another folder. The end of its log:\n"
                f"{log_tail(self.log_path)}"
            )

    def _spawn(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = (f"-Xmx{self._heap_mb}m", *_JAVA_OPTIONS)
        try:
            with self.log_path.open("ab") as log:
                return subprocess.Popen(
                    tied(self._program.command(main, *arguments, options=options)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # The folder is free when the broker has ended too, whatever ends this program.
                    pass_fds=() if self._lock is None else (self._lock.fileno(),),
                    # Ctrl-C is for this program, which ends the broker in order.
                    process_group=0,
                )
        except OSError as error:
            raise KafkaUnavailable(f"the Kafka broker cannot be started: {error}") from error

    async def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + KAFKA_START_S_MAX
        while not await self._answers():
            if process.poll() is not None:
                raise self._failure()
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"the Kafka broker does not answer {KAFKA_START_S_MAX:g} s after its start. The end of "
                    f"its log:\n{log_tail(self.log_path)}"
                )
            await asyncio.sleep(_LOOK_S)

    async def _answers(self) -> bool:
        """Whether the broker says that it serves."""
        try:
            async with asyncio.timeout(KAFKA_ASK_S_MAX):
                reader, writer = await asyncio.open_connection(HOST, self._port)
                try:
                    writer.write(METADATA_REQUEST)
                    (length,) = struct.unpack(">i", await reader.readexactly(4))
                    if not 0 <= length <= KAFKA_ANSWER_BYTES_MAX:
                        return False
                    return (HOST, self._port) in brokers_in(await reader.readexactly(length))
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (OSError, EOFError, ValueError, TimeoutError):
            return False
