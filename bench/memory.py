"""What a process weighs, and how many files it may open."""

import gc
import os
import resource

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SPARE_FILES_COUNT = 200


def resident_bytes() -> int:
    """What this process has in RAM after a collection: objects of Python's and of the libraries."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def open_files_max() -> int:
    """Raise the limit of open files as far as it goes; how many connections that leaves room for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return (2**20 if hard == resource.RLIM_INFINITY else hard) - SPARE_FILES_COUNT
