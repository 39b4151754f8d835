"""`hansa assignments assign`, `find` and `unassign`: single resources, each in one partition."""

from __future__ import annotations

import json

from hansa.assignment.topology import Assignment
from hansa.cli.arguments import guess
from hansa.cli.assignments_board import facts
from hansa.cli.exit_status import FAILED, OK
from hansa.cli.log_lines import visible
from hansa.cli.registry_options import NO_TLS, AsJson, TlsOptions
from hansa.cli.stop_signals import until_stopped
from hansa.cli.store_options import HERE, GroupOptions, no_group, no_partition
from hansa.errors import NotThere
from hansa.runtime.loops import run


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
    """Assign a resource, a machine for example, to a partition; whoever has that is told of it at once.

    Without a partition it stays where it is, or else goes to the one that has the fewest for its weight. A
    resource is in one partition at a time, whoever assigns it at the same moment.

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
        _tell(resource, found, as_json=as_json)


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
            _tell(resource, found, as_json=as_json)
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


def _tell(resource: str, found: Assignment, *, as_json: bool) -> None:
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
