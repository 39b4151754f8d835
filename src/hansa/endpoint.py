"""An endpoint, where a socket listens or dials, as text and as a value.

`tcp://host:port` and `tls://host:port` (IPv6 in brackets, `*` for every interface, port `*` or 0 for any free
one), `ipc:///path` (a Unix socket) and `inproc://name` (inside this process). Each endpoint has one spelling,
the one that `str()` gives, because service entries are keyed by it. Spellings that the operating system reads
in surprising ways (`127.1`, `0`, `010.0.0.1`) are refused, so that no wildcard slips through in disguise.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Literal

from hansa.errors import BadEndpoint, Unavailable
from hansa.limits import ENDPOINT_BYTES_MAX, UNIX_PATH_BYTES_MAX

IpVersion = Literal[4, 6]

_PORT_MAX = 65_535
_EXAMPLES = "write tcp://host:5555, tls://host:5555, ipc:///tmp/name.sock or inproc://name"
# \Z and not $: a dollar also matches before a trailing newline.
_PORT = re.compile(r"(?:0|[1-9][0-9]{0,4})\Z")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMERIC_LABEL = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_ZONE = re.compile(r"[A-Za-z0-9._~-]{1,32}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One endpoint, already checked: make it with `parse`. `host` of IPv6 is without brackets."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Read an endpoint. Raises `BadEndpoint`, whose text says what to write instead."""
        # In this order: the cheap length first; printable text can also be encoded.
        bytes_max = ENDPOINT_BYTES_MAX
        if len(text) > bytes_max or not text.isprintable() or len(text.encode("utf-8")) > bytes_max:
            raise _bad(text, f"use visible characters, at most {bytes_max} bytes")
        scheme, separator, rest = text.partition("://")
        scheme = scheme.lower()
        if not separator:
            raise _bad(text, _EXAMPLES)
        if scheme in ("tcp", "tls"):
            host, port = _read_address(text, rest)
            return cls(scheme=scheme, host=host, port=port)
        if scheme == "ipc":
            return cls(scheme=scheme, path=_read_unix_path(text, rest))
        if scheme == "inproc":
            if not rest or " " in rest:
                raise _bad(text, "give it a name without spaces, such as inproc://name")
            return cls(scheme=scheme, path=rest)
        raise _bad(text, f"the scheme is not known; {_EXAMPLES}")

    def __str__(self) -> str:
        if not self.host:
            return f"{self.scheme}://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """True when the host means every interface: for binding only, not for dialling or advertising."""
        if self.host == "*":
            return True
        address = _read_ip(self.host)
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        return address is not None and address.is_unspecified

    @property
    def is_dialable(self) -> bool:
        """True when others could connect to it: no wildcard, and the port is known."""
        return not self.host or (self.port != 0 and not self.is_wildcard)

    def with_host(self, host: str) -> "Endpoint":
        """The same endpoint on another host (IPv6 with or without brackets). Raises `BadEndpoint`."""
        if not self.host:
            raise BadEndpoint(f"endpoint {self} has no host to replace: only tcp and tls have one")
        bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return Endpoint.parse(f"{self.scheme}://{bracketed}:{self.port}")

    def with_port(self, port: int) -> "Endpoint":
        """The same endpoint on another port. Raises `BadEndpoint`."""
        if not self.host:
            raise BadEndpoint(f"endpoint {self} has no port to replace: only tcp and tls have one")
        if not 0 <= port <= _PORT_MAX:
            raise BadEndpoint(f"port {port} is not in 0..{_PORT_MAX}")
        return Endpoint(scheme=self.scheme, host=self.host, port=port)


def advertised(
    bind: Endpoint, given: str | None, default_route_host: Callable[[IpVersion | None], str]
) -> Endpoint:
    """The endpoint to advertise: the given one, else the bound one, else the bound port on the default route.

    `bind` is the endpoint after binding, with its real port. `default_route_host` is called for a wildcard
    only, with the IP version that the wildcard listens on (None for both); its `Unavailable` passes through.
    Raises `BadEndpoint` rather than ever returning an endpoint that nobody can dial.
    """
    if given:
        endpoint = Endpoint.parse(given)
        if not endpoint.is_dialable:
            raise BadEndpoint(
                f"{endpoint} cannot be advertised, nobody can dial it: give the host and port others reach"
            )
        return endpoint
    if bind.host and bind.port == 0:
        raise BadEndpoint(f"{bind} cannot be advertised before it is bound: its port is not known yet")
    if not bind.is_wildcard:
        return bind
    address = _read_ip(bind.host)
    version: IpVersion | None = None
    if address is not None:
        # 0.0.0.0 hears IPv4 only, and so does its IPv6-mapped form; :: is opened for IPv6 only.
        version = 6 if isinstance(address, IPv6Address) and address.ipv4_mapped is None else 4
    endpoint = bind.with_host(default_route_host(version))
    if not endpoint.is_dialable:
        raise Unavailable(f"no address of this machine to advertise for {bind}: give the advertised endpoint")
    return endpoint


def _bad(text: str, advice: str) -> BadEndpoint:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return BadEndpoint(f"bad endpoint {shown!a}: {advice}")


def _read_address(text: str, rest: str) -> tuple[str, int]:
    if "@" in rest:
        raise _bad(text, "leave out the user and password: hansa identifies peers by certificate")
    if "/" in rest:
        raise _bad(text, "leave out everything from the slash on")
    host, colon, port = rest.rpartition(":")
    if not colon or (rest.startswith("[") and rest.endswith("]")):
        raise _bad(text, "add a port, such as :5555, or :0 for any free one")
    if port != "*" and (_PORT.match(port) is None or int(port) > _PORT_MAX):
        raise _bad(text, f"the port is a number from 1 to {_PORT_MAX}, or * or 0 for any free one")
    return _read_host(text, host), 0 if port == "*" else int(port)


def _read_host(text: str, host: str) -> str:
    if host == "*":
        return host
    if host.startswith("[") and host.endswith("]"):
        return _read_ipv6(text, host[1:-1])
    if ":" in host:
        raise _bad(text, "put an IPv6 address into brackets, such as tcp://[::1]:5555")
    if not host:
        raise _bad(text, "name a host, or * for every interface")
    if not host.isascii():
        raise _bad(text, "write the host in ASCII (an international name in its xn-- form)")
    host = host.lower()
    # A closing dot marks a full name, to which no search domain is added.
    labels = host.removesuffix(".").split(".")
    if _NUMERIC_LABEL.match(labels[-1]) is not None:
        if not isinstance(_read_ip(host), IPv4Address):
            raise _bad(text, "a host that ends in a number is an IPv4 address, such as 192.0.2.10")
        return host
    if any(_LABEL.match(label) is None for label in labels):
        raise _bad(text, "a host is an IP address or a name of letters, digits, hyphens and dots")
    return host


def _read_ipv6(text: str, host: str) -> str:
    address = _read_ip(host)
    _, percent, zone = host.partition("%")
    if not isinstance(address, IPv6Address) or (percent and _ZONE.match(zone) is None):
        raise _bad(text, "in brackets goes an IPv6 address, such as [2001:db8::10] or [fe80::1%eth0]")
    # Spelled here because Python versions spell mapped addresses differently.
    return str(address) if address.ipv4_mapped is None else f"::ffff:{address.ipv4_mapped}{percent}{zone}"


def _read_unix_path(text: str, path: str) -> str:
    if not path.startswith("/") or path.endswith("/"):
        raise _bad(text, "give the whole path of the socket file, such as ipc:///tmp/name.sock")
    if len(path.encode("utf-8")) > UNIX_PATH_BYTES_MAX:
        raise _bad(text, f"a Unix socket's path has at most {UNIX_PATH_BYTES_MAX} bytes: shorten it")
    return path


def _read_ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return IPv6Address(host) if ":" in host else IPv4Address(host)
    except AddressValueError:
        return None
