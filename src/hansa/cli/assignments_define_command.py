"""`hansa assignments define` and `undefine`: what the work of a group is divided into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

from hansa.assignment.assignments import Assignments
from hansa.assignment.partition import Partition
from hansa.cli.arguments import Number, Parameter, guess
from hansa.cli.log_lines import counted, visible
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions, Whole
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, no_partition
from hansa.errors import BadArgument, BadRecord
from hansa.runtime.loops import run

PARTITIONS_COUNT_MAX: Final = 100_000


def define(
    group: str,
    /,
    *,
    partitions: Annotated[Whole, Parameter(validator=Number(gte=0, lte=PARTITIONS_COUNT_MAX))] = 0,
    prefix: str = "p",
    file: Annotated[str, Parameter(metavar="FILE")] = "",
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Define the partitions that a group's work is divided into; its leader has each of them owned at once.

    --partitions defines p0, p1 and so on; those that are defined already stay as they are. A file says more
    of each: it is a JSON array of objects with `name`, and if need be `weight`, `role`, `zone`,
    `resourceGroup`, `pinned` and `resources` (an array of ids); what it names is from then on as it says,
    and nothing else changes.

    Examples:

        hansa assignments define orders --partitions 12
        hansa assignments define plant --file partitions.json

    Parameters
    ----------
    group
        The group's name.
    partitions
        How many.
    prefix
        What the names begin with, before their number.
    file
        The definitions, as JSON.
    as_json
        One JSON object for programs.
    """
    if bool(partitions) == bool(file):
        raise BadArgument("give --partitions COUNT, or --file FILE")
    found = read_file(file) if file else [Partition(name=f"{prefix}{number}") for number in range(partitions)]
    run(_defined(group, found, where, tls, is_file=bool(file), as_json=as_json))


def read_file(name: str) -> list[Partition]:
    """The definitions in a file. Raises BadArgument, which says what is wrong with which of them."""
    try:
        found = json.loads(Path(name).read_bytes())
    except OSError as error:
        raise BadArgument(f"{name!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadArgument(f"{name!r} is no JSON: {error}") from error
    if not isinstance(found, list):
        raise BadArgument(f'{name!r} has no JSON array: write [{{"name": "p0"}}, ...]')
    defined = [_one(each, f"{name!r}, entry {number}") for number, each in enumerate(found, 1)]
    names = [each.name for each in defined]
    if twice := next((each for each in names if names.count(each) > 1), ""):
        raise BadArgument(f"{name!r} defines {twice!r} twice")
    if not defined:
        raise BadArgument(f"{name!r} defines nothing")
    return defined


def _one(found: Any, what: str) -> Partition:
    known = Partition(name="any").to_object()
    if not isinstance(found, dict) or "name" not in found:
        raise BadArgument(f'{what}: a partition is an object with a name: {{"name": "p0"}}')
    if unknown := next((each for each in found if each not in known), ""):
        raise BadArgument(
            f"{what}: a partition has no {unknown!r}.{guess(unknown, known)} It has {', '.join(known)}"
        )
    try:
        return Partition.decode(json.dumps(found).encode())
    except BadRecord as error:
        raise BadArgument(f"{what}: {error.__cause__ or error}") from error


async def _defined(
    group: str,
    found: list[Partition],
    where: GroupOptions,
    tls: TlsOptions,
    *,
    is_file: bool,
    as_json: bool,
) -> None:
    async with until_stopped(), where.open(tls) as store:
        of = where.group(store, group)
        before = await of.partitions()
        wanted = [each for each in found if is_file or each.name not in before]
        await of.define(*wanted)
        new_count = sum(each.name not in before for each in wanted)
        _tell(of, len(before) + new_count, new_count, len(wanted) - new_count, as_json=as_json)


def _tell(of: Assignments, count: int, new_count: int, changed_count: int, *, as_json: bool) -> None:
    if as_json:
        found = {"cluster": of.cluster, "group": of.group, "partitions": count}
        print(json.dumps(found | {"new": new_count, "changed": changed_count}), flush=True)
        return
    changed = f", {changed_count} written over" if changed_count else ""
    print(
        visible(f"group {of.group}: {counted(count, 'partition')}, {new_count} of them new{changed}"),
        flush=True,
    )


def undefine(
    group: str,
    partition: str,
    /,
    *,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Remove a partition: its owner loses it, and no worker is given it.

    What was handed on of it last stays in the store until it is swept: whoever defines the partition again
    before that goes on from there.

    Examples:

        hansa assignments undefine orders p11

    Parameters
    ----------
    group
        The group's name.
    partition
        The partition's name.
    as_json
        One JSON object for programs.
    """
    run(_undefined(group, partition, where, tls, as_json=as_json))


async def _undefined(
    group: str, partition: str, where: GroupOptions, tls: TlsOptions, *, as_json: bool
) -> None:
    async with until_stopped(), where.open(tls) as store:
        of = where.group(store, group)
        before = await of.partitions()
        if partition not in before:
            raise await no_partition(of, partition)
        await of.undefine(partition)
        _tell(of, len(before) - 1, 0, 0, as_json=as_json)
