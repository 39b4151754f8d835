"""What the work of a group is divided into: `hansa assignments define` and `undefine` partitions of it.

`assign`, `find` and `unassign` are for single resources, each in one partition.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

from hansa.assignment.assignments import Assignments
from hansa.assignment.partition import Partition
from hansa.assignment.topology import Assignment
from hansa.cli.arguments import Number, Parameter, guess
from hansa.cli.assignments_board import facts
from hansa.cli.exit_status import FAILED, OK
from hansa.cli.log_lines import counted, visible
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions, Whole
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, no_group, no_partition
from hansa.errors import BadArgument, BadRecord, NotThere
from hansa.runtime.loops import run

PARTITIONS_COUNT_MAX: Final = 100_000


# ---- partitions ---------------------------------------------------------------------------------------


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
    defined = [_read_one(each, f"{name!r}, entry {number}") for number, each in enumerate(found, 1)]
    names = [each.name for each in defined]
    if twice := next((each for each in names if names.count(each) > 1), ""):
        raise BadArgument(f"{name!r} defines {twice!r} twice")
    if not defined:
        raise BadArgument(f"{name!r} defines nothing")
    return defined


def _read_one(found: Any, what: str) -> Partition:
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
        _tell_count(of, len(before) + new_count, new_count, len(wanted) - new_count, as_json=as_json)


def _tell_count(of: Assignments, count: int, new_count: int, changed_count: int, *, as_json: bool) -> None:
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

    What was handed on of it last stays in the store until it is swept: if the partition is defined again
    before that, its next owner goes on from there.

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
        _tell_count(of, len(before) - 1, 0, 0, as_json=as_json)


# ---- resources ----------------------------------------------------------------------------------------


def assign(
    group: str,
    resource: str,
    partition: str = "",
    /,
    *,
    resource_group: str = "",
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> None:
    """Assign a resource, a machine for example, to a partition, whose owner is told of it at once.

    Without a partition it stays where it is, or else goes to the one that has the fewest for its weight. A
    resource is in one partition at a time, also when two processes assign it at the same moment.

    Examples:

        hansa assignments assign plant press-7
        hansa assignments assign plant press-7 p3

    Parameters
    ----------
    group
        The group's name.
    resource
        The resource's id.
    partition
        Where to. Without one hansa chooses.
    resource_group
        Without a partition: choose among those that are bound to this resource group.
    as_json
        One JSON object for programs: who has its partition, and `resource`.
    """
    run(_assigned(group, resource, partition, resource_group, where, tls, as_json=as_json))


async def _assigned(
    group: str,
    resource: str,
    partition: str,
    resource_group: str,
    where: GroupOptions,
    tls: TlsOptions,
    *,
    as_json: bool,
) -> None:
    async with until_stopped(), where.open(tls) as store:
        of = where.group(store, group)
        try:
            found = await of.assign(resource, partition, resource_group=resource_group)
        except NotThere as error:
            if partition:
                raise await no_partition(of, partition) from error
            defined = {each.resource_group for each in (await of.partitions()).values()}
            if not defined:
                raise await no_group(of) from error
            raise NotThere(f"{error}.{guess(resource_group, defined)}") from error
        _tell_place(resource, found, as_json=as_json)


def find(
    group: str,
    resource: str,
    /,
    *,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Tell in which partition a resource is, and who has that. The status is 1 when it is in none.

    Examples:

        hansa assignments find plant press-7

    Parameters
    ----------
    group
        The group's name.
    resource
        The resource's id.
    as_json
        One JSON object for programs: who has its partition, and `resource`.
    """
    return run(_found(group, resource, where, tls, as_json=as_json))


async def _found(group: str, resource: str, where: GroupOptions, tls: TlsOptions, *, as_json: bool) -> int:
    found: Assignment | None = None
    async with until_stopped(), where.open(tls) as store:
        found = await where.group(store, group).look_up(resource)
        if found is None:
            _tell_none(group, resource, as_json=as_json)
        else:
            _tell_place(resource, found, as_json=as_json)
    return FAILED if found is None else OK


def unassign(
    group: str,
    resource: str,
    /,
    *,
    where: GroupOptions = HERE,
    as_json: AsJson = False,
    tls: TlsOptions = NO_TLS,
) -> int:
    """Take a resource from its partition: nobody has it from then on. The status is 1 when it was in none.

    Examples:

        hansa assignments unassign plant press-7

    Parameters
    ----------
    group
        The group's name.
    resource
        The resource's id.
    as_json
        One JSON object for programs.
    """
    return run(_unassigned(group, resource, where, tls, as_json=as_json))


async def _unassigned(
    group: str, resource: str, where: GroupOptions, tls: TlsOptions, *, as_json: bool
) -> int:
    was_there = False
    async with until_stopped(), where.open(tls) as store:
        was_there = await where.group(store, group).unassign(resource)
        if not was_there:
            _tell_none(group, resource, as_json=as_json)
        elif as_json:
            print(json.dumps({"resource": resource, "partition": ""}), flush=True)
        else:
            print(visible(f"{resource} is in no partition of {group} any more"), flush=True)
    return OK if was_there else FAILED


def _tell_place(resource: str, found: Assignment, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"resource": resource} | facts(found)), flush=True)
    else:
        who = f"which {found.owner} has" if found.owner else "which nobody has now"
        print(visible(f"{resource} is in {found.partition}, {who}"), flush=True)


def _tell_none(group: str, resource: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"resource": resource, "partition": ""}), flush=True)
    else:
        print(visible(f"{resource} is in no partition of {group}"), flush=True)
