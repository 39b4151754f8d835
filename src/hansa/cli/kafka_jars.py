"""Apache Kafka's jars, fetched once through Maven, and the Java that runs them.

Everything is in one folder that the caller chooses: the jars in a folder named for the version, which is
moved there when it is complete, and, while they are fetched, Maven's own files, so that a fetch that was
broken off continues. Two processes that need Kafka at the same time fetch it once.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from hansa.errors import KafkaRefused, KafkaUnavailable
from hansa.limits import KAFKA_FETCH_S_MAX, KAFKA_LOG_TAIL_BYTES, KAFKA_TOOL_S_MAX
from hansa.runtime.tasks import in_thread
from hansa.runtime.tied_process import tied

VERSION: Final = "4.1.0"
FETCHED_BYTES_ABOUT: Final = 43_000_000
JAVA_VERSION_MIN: Final = 17
_SCALA: Final = "2.13"
# The version of slf4j's interface with which Kafka is built. Without an implementation of it a broker that
# ends does not say why.
_SLF4J: Final = "1.7.36"
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_JARS_NEEDED: Final = (
    f"kafka_{_SCALA}-{VERSION}.jar",
    f"kafka-clients-{VERSION}.jar",
    f"slf4j-simple-{_SLF4J}.jar",
)
_INSTALL_JAVA: Final = (
    "install one (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk), or name "
    "its folder with JAVA_HOME"
)
_INSTALL_MAVEN: Final = "install it (Debian, Ubuntu: apt install maven; macOS: brew install maven)"
_PRINTED_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_LOOK_S: Final = 0.2
_LINES_MAX: Final = 6

_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>hansa</groupId>
  <artifactId>kafka-for-development</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_{_SCALA}</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>{_SLF4J}</version>
    </dependency>
  </dependencies>
</project>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProgram:
    """A Kafka that can be started: its jars, and the Java for them."""

    jars: Path
    java: str
    version: str = VERSION

    def command(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """The command line that runs a main class of Kafka."""
        return [self.java, *options, "-cp", str(self.jars / "*"), main, *arguments]


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for files that can be fetched again."""
    cache = env.get("XDG_CACHE_HOME", "")
    # A relative path must be ignored, says the specification of these variables.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "hansa" / "kafka"


def fetched_jars(folder: Path) -> Path | None:
    """The folder with the jars, if they were fetched."""
    jars = folder / f"kafka-{VERSION}"
    return jars if jars.is_dir() else None


async def get_kafka(folder: Path, on_progress: Callable[[int], object] = lambda _: None) -> KafkaProgram:
    """The Kafka of this folder, fetched through Maven if it is not there.

    `on_progress` is called with the bytes that were fetched so far, Maven's own included, some times a
    second. Raises `KafkaRefused`, which says what to install, and `KafkaUnavailable` when it cannot be
    fetched. Cancelling it ends Maven; what was fetched is kept for the next try.
    """
    java = await find_java()
    jars = fetched_jars(folder)
    if jars is None:
        maven = find_maven()
        try:
            async with _alone(folder, on_progress):
                # Another process may have fetched it while this one waited.
                jars = fetched_jars(folder) or await _fetch(folder, maven, on_progress)
        except OSError as error:
            raise KafkaRefused(f"Kafka cannot be kept in {folder}: {error}; choose another folder") from error
    return KafkaProgram(jars=jars.resolve(), java=java)


async def find_java(env: Mapping[str, str] = os.environ) -> str:
    """The Java of JAVA_HOME, else of PATH. Raises `KafkaRefused` when there is none, or an old one."""
    home = env.get("JAVA_HOME", "")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else env.get("PATH"))
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise KafkaRefused(
            f"Kafka needs Java {JAVA_VERSION_MIN} or newer, and there is no java {where}; {_INSTALL_JAVA}"
        )
    try:
        printed, _ = in_thread(lambda: _printed_version(java), "java -version")
        check_java(await printed, java)
    except OSError as error:
        raise KafkaRefused(f"{java} cannot be run: {error}; {_INSTALL_JAVA}") from error
    return java


def _printed_version(java: str) -> str:
    """Raises OSError, also when it takes too long."""
    try:
        said = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=KAFKA_TOOL_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(str(error)) from error
    return said.stdout.decode(errors="replace")


def check_java(printed: str, java: str) -> None:
    """Raise `KafkaRefused` unless `java -version` printed a version that runs Kafka."""
    match = _PRINTED_VERSION.search(printed)
    if match is None:
        first = "".join(printed.strip().splitlines()[:1])
        raise KafkaRefused(f"{java} does not say which Java it is, but {first[:200]!r}; {_INSTALL_JAVA}")
    # Up to Java 8 the version was written as 1.8.
    version = int(match[2] or 0) if match[1] == "1" else int(match[1])
    if version < JAVA_VERSION_MIN:
        raise KafkaRefused(
            f"{java} is Java {version}, and Kafka {VERSION} needs {JAVA_VERSION_MIN} or newer; "
            f"{_INSTALL_JAVA}"
        )


def find_maven(env: Mapping[str, str] = os.environ) -> str:
    """The mvn on the PATH. Raises `KafkaRefused`, which says what to install."""
    maven = shutil.which("mvn", path=env.get("PATH"))
    if maven is None:
        raise KafkaRefused(
            f"Kafka is fetched through Maven, and there is no mvn on the PATH; {_INSTALL_MAVEN}"
        )
    return maven


async def ended_within(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for the end of a process; returns its status, or None if it was killed after this time.

    Cancelling it kills the process, too. A process with a group of its own is killed with the group.
    """
    outcome, thread = in_thread(process.wait, f"end of process {process.pid}")
    try:
        async with asyncio.timeout(seconds):
            return await outcome
    except TimeoutError:
        return None
    finally:
        if process.poll() is None:
            _kill(process)
        thread.join()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL, also to processes that it started in its own group, and wait for its end."""
    with suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


# ---- fetching ----------------------------------------------------------------------------------------


async def _fetch(folder: Path, maven: str, on_progress: Callable[[int], object]) -> Path:
    """Raises `KafkaUnavailable`, with the end of Maven's output."""
    part, repository, log = folder / "part", folder / "maven", folder / "maven.log"
    process = _start_maven(maven, part, repository, log)
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(_tell_progress(folder, on_progress), name="progress of a fetch")
        status = await ended_within(process, KAFKA_FETCH_S_MAX)
        telling.cancel()
    jars = part / "jars"
    missing = [name for name in _JARS_NEEDED if not (jars / name).exists()]
    if status != 0 or missing:
        raise KafkaUnavailable(failure(status, missing, log_tail(log)))
    whole = folder / f"kafka-{VERSION}"
    jars.rename(whole)
    for rest in (part, repository):
        shutil.rmtree(rest, ignore_errors=True)
    return whole


def _start_maven(maven: str, part: Path, repository: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start Maven, which copies the jars into `jars` of the folder `part`; that is emptied before."""
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    (part / "pom.xml").write_text(_POM, encoding="utf-8")
    command = [
        *(maven, "--batch-mode", "--no-transfer-progress", "--strict-checksums"),
        # Not the user's: the files that hansa fetches are in one folder, and are deleted with it.
        f"-Dmaven.repo.local={repository.resolve()}",
        *(f"{_PLUGIN}:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"),
    ]
    with log.open("wb") as said:
        return subprocess.Popen(
            tied(command),
            cwd=part,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for this program, which ends Maven in order.
            process_group=0,
        )


def failure(status: int | None, missing: Sequence[str], said: str) -> str:
    """A failed fetch as a sentence, with Maven's last words as the reason."""
    how = f"Maven did not fetch Kafka {VERSION}"
    if status is None:
        how += f" within {KAFKA_FETCH_S_MAX:g} s, and was ended; try again, it goes on where it was"
    elif status == 0:
        how += f" whole ({', '.join(missing)} are missing)"
    else:
        how += "; is there a network? What was fetched is kept for the next try"
    return f"{how}. Its last words: {maven_errors(said)}"


def maven_errors(said: str) -> str:
    """Why Maven failed: the first of its error lines, which names the cause; the others give advice."""
    lines = [line.removeprefix("[ERROR]").strip() for line in said.splitlines() if "[ERROR]" in line]
    found = [line for line in lines if line] or [line for line in said.splitlines() if line.strip()][-3:]
    return found[0] if lines and found else "; ".join(found) or "(it said nothing)"


def log_tail(path: Path) -> str:
    """The last few lines of a log, without Java's stacks."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - KAFKA_LOG_TAIL_BYTES))
            text = file.read(KAFKA_LOG_TAIL_BYTES).decode(errors="replace")
    except OSError as error:
        return f"(its log cannot be read: {error})"
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\t")]
    return "\n".join(lines[-_LINES_MAX * 4 :])


@asynccontextmanager
async def _alone(folder: Path, on_progress: Callable[[int], object]) -> AsyncIterator[None]:
    """Only one process at a time is inside; the kernel lets the next one in when this one ends."""
    with _lock_file(folder) as lock:
        while not _locked(lock):
            on_progress(_fetched_bytes(folder))
            await asyncio.sleep(_LOOK_S)
        yield


def _lock_file(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / "lock").open("wb")


def _locked(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _tell_progress(folder: Path, on_progress: Callable[[int], object]) -> None:
    while True:
        on_progress(_fetched_bytes(folder))
        await asyncio.sleep(_LOOK_S)


def _fetched_bytes(folder: Path) -> int:
    count = 0
    for path, _, names in os.walk(folder / "maven"):
        for name in names:
            with suppress(OSError):  # It was renamed meanwhile.
                count += os.stat(os.path.join(path, name)).st_size
    return count
