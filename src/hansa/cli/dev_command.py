"""`hansa dev`: servers for development, as they are in production."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from hansa.cli.arguments import Number, Parameter
from hansa.cli.kafka_broker import KafkaBroker
from hansa.cli.kafka_jars import FETCHED_BYTES_ABOUT, VERSION, cache_folder, fetched_jars, get_kafka
from hansa.cli.log_lines import LogLines
from hansa.cli.registry_options import AsJson, Whole
from hansa.cli.stop_signals import until_stopped
from hansa.errors import BadArgument
from hansa.runtime.loops import run

PORT: Final = 9092
_PROGRESS_INTERVAL_S: Final = 2.0
_MEGABYTE: Final = 1_000_000


def kafka(
    *,
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65_535))] = PORT,
    data: Annotated[str | None, Parameter(metavar="FOLDER")] = None,
    folder: Annotated[str | None, Parameter(metavar="FOLDER", env_var="HANSA_KAFKA")] = None,
    setting: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUE")] = (),
    as_json: AsJson = False,
) -> None:
    """Run a real Apache Kafka broker on this machine, for development.

    It is one process, broker and controller in one (KRaft), and listens on 127.0.0.1 alone, without
    encryption and logins: it is not for production. The first time it is fetched through Maven, about 43 MB;
    later it starts within seconds. It needs Java 17 or newer, and Maven (mvn) for the first time. It runs
    until SIGTERM or Ctrl-C.

    Examples:

        hansa dev kafka
        hansa dev kafka --port 0 --json
        hansa dev kafka --data kafka-data --setting auto.create.topics.enable=false

    Parameters
    ----------
    port
        Where clients connect; port 0 takes any free one, and the ready line tells which.
    data
        The folder that keeps topics and groups from one start to the next. Without it they end with the
        broker.
    folder
        Where Kafka itself is kept once it is fetched; a folder of the user's cache unless given.
    setting
        A setting of the broker, as in its server.properties; repeat it for each.
    """
    wanted = _Wanted(
        port=port,
        data=None if data is None else Path(data),
        folder=cache_folder() if folder is None else Path(folder),
        settings=settings_of(setting),
    )
    run(_serve(wanted, as_json=as_json))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    port: int
    data: Path | None
    folder: Path
    settings: dict[str, str]


def settings_of(texts: tuple[str, ...]) -> dict[str, str]:
    """The settings by name. Raises `BadArgument`."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadArgument(f"--setting {text!r}: write it as name=value")
        if name in settings:
            raise BadArgument(f"--setting: {name} is there twice")
        settings[name] = value
    return settings


async def _serve(wanted: _Wanted, *, as_json: bool) -> None:
    """Run a broker until a signal says stop. Raises what fetching and starting it raise, and why it ended."""
    with LogLines(as_json=as_json) as log:
        # A signal also ends a long fetch or start.
        async with until_stopped():
            if fetched_jars(wanted.folder) is None:
                _say_fetching(wanted.folder, log)
            program = await get_kafka(wanted.folder, _Progress(log))
            log.tell("starting", f"Apache Kafka {program.version} is starting", version=program.version)
            async with KafkaBroker(
                program, folder=wanted.data, port=wanted.port, settings=wanted.settings
            ) as broker:
                _say_ready(broker, wanted.data, log)
                raise await broker.ended()
        log.tell("stopped", "broker stopped")


class _Progress:
    """Reports how much was fetched, every few seconds."""

    def __init__(self, log: LogLines) -> None:
        self._log = log
        self._next_s = time.monotonic() + _PROGRESS_INTERVAL_S

    def __call__(self, bytes_count: int) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _PROGRESS_INTERVAL_S
            said = f"fetched {bytes_count / _MEGABYTE:.0f} MB, with what Maven itself needs"
            self._log.tell("fetched", said, bytes_count=bytes_count)


def _say_fetching(folder: Path, log: LogLines) -> None:
    log.tell(
        "fetching",
        f"fetching Apache Kafka {VERSION} through Maven, about {FETCHED_BYTES_ABOUT / _MEGABYTE:.0f} MB;"
        f" it is kept in {folder}",
        version=VERSION,
        bytes_count=FETCHED_BYTES_ABOUT,
        folder=str(folder),
    )


def _say_ready(broker: KafkaBroker, data: Path | None, log: LogLines) -> None:
    kept = "its data ends with it" if data is None else f"its data is kept in {data}"
    log.tell(
        "ready",
        f"broker ready: {broker.address}, Apache Kafka {broker.version}, {kept}",
        address=broker.address,
        version=broker.version,
        data=None if data is None else str(data),
        log=str(broker.log_path),
        pid=os.getpid(),
        broker_pid=broker.pid,
    )
    if not log.as_json:
        log.tell("hint", f"programs use it as bootstrap.servers={broker.address}")
