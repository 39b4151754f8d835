"""The default route: found, missing, or leading nowhere. Holds with and without a network."""

import errno
import socket
from ipaddress import ip_address

import pytest

from hansa.endpoint import Endpoint, IpVersion, advertised
from hansa.errors import BadEndpoint, Unavailable
from hansa.transport.system_network import Probe, default_route_host, probe_route


def routes(**found: str) -> Probe:
    """A machine with these addresses on its routes, by `v4` and `v6`; no route for what is left out."""

    def probe(version: IpVersion) -> str:
        host = found.get(f"v{version}")
        if host is None:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        return host

    return probe


def test_ipv4_comes_before_ipv6() -> None:
    assert default_route_host(probe=routes(v4="192.0.2.10", v6="2001:db8::10")) == "192.0.2.10"
    assert default_route_host(probe=routes(v6="2001:db8::10")) == "2001:db8::10"


def test_only_the_version_asked_for_is_answered() -> None:
    assert default_route_host(6, probe=routes(v4="192.0.2.10", v6="2001:db8::10")) == "2001:db8::10"
    with pytest.raises(Unavailable):
        default_route_host(6, probe=routes(v4="192.0.2.10"))
    with pytest.raises(Unavailable):
        default_route_host(4, probe=routes(v6="2001:db8::10"))


@pytest.mark.spec("DIS-27")
def test_without_a_route_the_error_says_what_to_do() -> None:
    with pytest.raises(Unavailable) as refused:
        default_route_host(probe=routes())
    assert "IPv4: Network is unreachable; IPv6: Network is unreachable" in str(refused.value)
    assert "give the endpoint to advertise" in str(refused.value)
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.retryable


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "::", "::1", "fe80::1"])
def test_an_address_that_others_cannot_dial_is_not_an_answer(host: str) -> None:
    with pytest.raises(Unavailable, match="cannot dial"):
        default_route_host(4, probe=routes(v4=host))


def test_a_useless_ipv4_address_gives_way_to_ipv6() -> None:
    assert default_route_host(probe=routes(v4="127.0.0.1", v6="2001:db8::10")) == "2001:db8::10"


@pytest.mark.spec("DIS-27")
def test_this_machine_advertises_an_address_of_its_own_or_says_clearly_that_it_has_none() -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        bound = Endpoint.parse("tcp://0.0.0.0:0").with_port(listening.getsockname()[1])
        try:
            probe_route(4)
        except OSError:
            with pytest.raises(Unavailable, match="give the endpoint to advertise"):
                advertised(bound, None, default_route_host)
        else:
            found = advertised(bound, None, default_route_host)
            assert found.port == bound.port
            assert not found.is_wildcard
            assert ip_address(found.host).version == 4
            # It is really ours: what listens on every interface answers there.
            socket.create_connection((found.host, found.port), timeout=5).close()


@pytest.mark.parametrize("version", [4, 6])
def test_the_probe_gives_an_address_of_the_version_or_an_oserror(version: IpVersion) -> None:
    try:
        host = probe_route(version)
    except OSError:
        return
    assert ip_address(host).version == version


def test_a_host_that_is_no_address_never_reaches_an_endpoint() -> None:
    with pytest.raises(BadEndpoint):
        advertised(Endpoint.parse("tcp://*:5555"), None, lambda version: "not an address")
