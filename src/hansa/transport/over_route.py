"""Finds the address of the interface on the default route: what a wildcard bind advertises."""

import socket
from collections.abc import Callable
from ipaddress import ip_address

from hansa.endpoint import IpVersion
from hansa.errors import Unavailable

Probe = Callable[[IpVersion], str]

# Addresses set aside for documentation: nobody lives there, so it is the default route that leads to them.
_FAR_AWAY: dict[IpVersion, str] = {4: "203.0.113.1", 6: "2001:db8::1"}
_DISCARD_PORT = 9


def probe_route(version: IpVersion) -> str:
    """The local address a packet to the outside would carry. Raises `OSError` when there is no route.

    Connecting a datagram socket only asks the kernel's routing table: no packet is sent, and nothing waits.
    """
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probing:
        probing.connect((_FAR_AWAY[version], _DISCARD_PORT))
        host: str = probing.getsockname()[0]
        return host


def default_route_host(version: IpVersion | None = None, *, probe: Probe = probe_route) -> str:
    """This machine's address on its default route: of the given IP version, or of IPv4 before IPv6.

    Raises `Unavailable` when no route leads outside or only through an address that others cannot dial.
    """
    versions: tuple[IpVersion, ...] = (4, 6) if version is None else (version,)
    found: list[str] = []
    cause: OSError | None = None
    for each in versions:
        try:
            host = probe(each)
        except OSError as failed:
            found.append(f"IPv{each}: {failed.strerror or failed}")
            cause = failed
            continue
        if _can_be_dialed(host):
            return host
        found.append(f"IPv{each}: only {host}, which others cannot dial")
    raise Unavailable(
        f"cannot find this machine's address on its default route ({'; '.join(found)}): "
        "give the endpoint to advertise, or bind to an address instead of a wildcard"
    ) from cause


def _can_be_dialed(host: str) -> bool:
    address = ip_address(host)
    # A link-local IPv6 address means something else on every interface, so it cannot be told to others.
    zoned = address.version == 6 and address.is_link_local
    return not (zoned or address.is_unspecified or address.is_loopback)
