"""Endpoints: reading, spelling, wildcards, and what is advertised."""

import string
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.endpoint import Endpoint, IpVersion, advertised
from hansa.errors import BadEndpoint, Unavailable


def no_route_needed(version: IpVersion | None) -> str:
    raise AssertionError("the default route was asked for and should not be")


def no_route(version: IpVersion | None) -> str:
    raise Unavailable("no route")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://127.0.0.1:5555", "127.0.0.1", 5555),
        ("tcp://payment-server:1", "payment-server", 1),
        ("tcp://a.b-c.d_e.example:65535", "a.b-c.d_e.example", 65535),
        ("tcp://service.namespace.svc.cluster.local.:80", "service.namespace.svc.cluster.local.", 80),
        ("tcp://3com.example:80", "3com.example", 80),
        ("tcp://xn--bcher-kva.example:80", "xn--bcher-kva.example", 80),
        ("tls://10.0.0.1:7", "10.0.0.1", 7),
        ("tcp://*:5555", "*", 5555),
        ("tcp://*:0", "*", 0),
        ("tcp://0.0.0.0:5555", "0.0.0.0", 5555),
        ("tcp://[::]:5555", "::", 5555),
        ("tcp://[::1]:5555", "::1", 5555),
        ("tcp://[2001:db8::10]:5555", "2001:db8::10", 5555),
        ("tcp://[fe80::1%eth0]:5555", "fe80::1%eth0", 5555),
        ("tcp://[fe80::1%3]:5555", "fe80::1%3", 5555),
        ("tcp://[::ffff:192.0.2.1]:5555", "::ffff:192.0.2.1", 5555),
    ],
)
def test_an_address_is_read_and_spelled_back(text: str, host: str, port: int) -> None:
    endpoint = Endpoint.parse(text)
    assert (endpoint.scheme, endpoint.host, endpoint.port, endpoint.path) == (text[:3], host, port, "")
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("TCP://Payment-Server:5555", "tcp://payment-server:5555"),
        ("tcp://*:*", "tcp://*:0"),
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:0"),
        ("tcp://[2001:DB8:0:0:0:0:0:10]:1", "tcp://[2001:db8::10]:1"),
        ("tcp://[::FFFF:C000:0201]:1", "tcp://[::ffff:192.0.2.1]:1"),
        ("tcp://[::ffff:c000:201%eth0]:1", "tcp://[::ffff:192.0.2.1%eth0]:1"),
        ("tcp://[FE80::1%Eth0]:1", "tcp://[fe80::1%Eth0]:1"),
    ],
)
def test_spellings_of_one_endpoint_become_one(text: str, canonical: str) -> None:
    assert str(Endpoint.parse(text)) == canonical
    assert Endpoint.parse(canonical) == Endpoint.parse(text)


@pytest.mark.parametrize("text", ["ipc:///tmp/hansa.sock", "ipc:///run/mit Leerzeichen/ö.sock", "ipc:///a"])
def test_a_unix_socket_is_a_whole_path(text: str) -> None:
    endpoint = Endpoint.parse(text)
    assert (endpoint.scheme, endpoint.host, endpoint.port) == ("ipc", "", 0)
    assert endpoint.path == text.removeprefix("ipc://")
    assert str(endpoint) == text


@pytest.mark.parametrize("text", ["inproc://registry", "inproc://zone:12/a"])
def test_a_place_in_this_process_is_a_name(text: str) -> None:
    endpoint = Endpoint.parse(text)
    assert (endpoint.scheme, endpoint.path) == ("inproc", text.removeprefix("inproc://"))
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "write tcp://"),
        ("localhost:5555", "write tcp://"),
        ("tcp:/localhost:5555", "write tcp://"),
        ("://localhost:5555", "scheme"),
        ("http://localhost:5555", "scheme"),
        (" tcp://localhost:5555", "scheme"),
        ("udp://localhost:5555", "scheme"),
        ("tcp://", "port"),
        ("tcp://localhost", "port"),
        ("tcp://[::1]", "port"),
        ("tcp://:5555", "name a host"),
        ("tcp://localhost:", "port"),
        ("tcp://localhost:port", "port"),
        ("tcp://localhost:65536", "port"),
        ("tcp://localhost:99999999", "port"),
        ("tcp://localhost:-1", "port"),
        ("tcp://localhost:+1", "port"),
        ("tcp://localhost:05555", "port"),
        ("tcp://localhost:5_5", "port"),
        ("tcp://localhost:0x50", "port"),
        ("tcp://localhost: 5555", "port"),
        ("tcp://localhost:5555 ", "port"),
        ("tcp://localhost:\u0665\u0665", "port"),
        ("tcp://localhost:**", "port"),
        ("tcp://localhost:5555/", "slash"),
        ("tcp://localhost:5555/path", "slash"),
        ("tcp://localhost/path:5555", "slash"),
        ("tcp://user@localhost:5555", "user and password"),
        ("tcp://user:secret@localhost:5555", "user and password"),
        ("tcp://local host:5555", "letters"),
        ("tcp://-host:5555", "letters"),
        ("tcp://host-:5555", "letters"),
        ("tcp://a..b:5555", "letters"),
        ("tcp://.:5555", "letters"),
        ("tcp://.host:5555", "letters"),
        ("tcp://host..:5555", "letters"),
        ("tcp://ho?st:5555", "letters"),
        ("tcp://ho#st:5555", "letters"),
        ("tcp://*.example:5555", "letters"),
        ("tcp://" + "a" * 64 + ":5555", "letters"),
        ("tcp://bücher.example:5555", "ASCII"),
        ("tcp://\u2460:5555", "ASCII"),
        ("tcp://127.1:5555", "IPv4"),
        ("tcp://0:5555", "IPv4"),
        ("tcp://0x7f.1:5555", "IPv4"),
        ("tcp://0x0:5555", "IPv4"),
        ("tcp://127.0.0.01:5555", "IPv4"),
        ("tcp://256.0.0.1:5555", "IPv4"),
        ("tcp://1.2.3.4.:5555", "IPv4"),
        ("tcp://1.2.3.4.5:5555", "IPv4"),
        ("tcp://host.123:5555", "IPv4"),
        ("tcp://::1:5555", "brackets"),
        ("tcp://2001:db8::10:5555", "brackets"),
        ("tcp://[]:5555", "IPv6"),
        ("tcp://[127.0.0.1]:5555", "IPv6"),
        ("tcp://[localhost]:5555", "IPv6"),
        ("tcp://[::g]:5555", "IPv6"),
        ("tcp://[1::2::3]:5555", "IPv6"),
        ("tcp://[fe80::1%]:5555", "IPv6"),
        ("tcp://[fe80::1%eth 0]:5555", "IPv6"),
        ("tcp://[fe80::1%a%b]:5555", "IPv6"),
        ("tcp://[fe80::1%" + "e" * 33 + "]:5555", "IPv6"),
        ("tcp://[::1:5555", "brackets"),
        ("tcp://::1]:5555", "brackets"),
        ("ipc://", "whole path"),
        ("ipc://relative/path.sock", "whole path"),
        ("ipc://@abstract", "whole path"),
        ("ipc://*", "whole path"),
        ("ipc:///tmp/", "whole path"),
        ("ipc:///" + "a" * 107, "107 bytes"),
        ("inproc://", "name"),
        ("inproc://two words", "name"),
        ("tcp://localhost:5555\n", "visible"),
        ("tcp://local\x00host:5555", "visible"),
        ("tcp://localhost:5555\u202e", "visible"),
        ("ipc:///tmp/\udcff.sock", "visible"),
        ("inproc://" + "a" * 247, "255 bytes"),
        ("inproc://" + "ö" * 124, "255 bytes"),
        ("tcp://" + "a" * 10_000_000, "255 bytes"),
    ],
)
def test_a_bad_endpoint_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(BadEndpoint) as refused:
        Endpoint.parse(text)
    assert advice in str(refused.value)
    assert str(refused.value).isascii()
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


def test_the_longest_endpoints_are_read() -> None:
    assert Endpoint.parse("inproc://" + "a" * 246).path == "a" * 246
    assert Endpoint.parse("ipc:///" + "a" * 106).path == "/" + "a" * 106
    assert Endpoint.parse("tcp://" + "a" * 63 + ":5555").host == "a" * 63


@given(st.text(max_size=40) | st.text("tcpliner:/[]*.%@0123456789abf", max_size=40).map("tcp://".__add__))
def test_any_text_is_an_endpoint_or_refused(text: str) -> None:
    try:
        endpoint = Endpoint.parse(text)
    except BadEndpoint:
        return
    assert Endpoint.parse(str(endpoint)) == endpoint
    assert str(Endpoint.parse(str(endpoint))) == str(endpoint)
    assert len(str(endpoint).encode()) <= 255


labels = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=12).map("n".__add__)
hosts = (
    st.just("*")
    | st.lists(labels, min_size=1, max_size=4).map(".".join)
    | st.integers(0, 2**32 - 1).map(lambda number: str(IPv4Address(number)))
    | st.integers(0, 2**128 - 1).map(lambda number: f"[{IPv6Address(number)}]")
    | st.integers(0, 2**32 - 1).map(lambda number: f"[::ffff:{IPv4Address(number)}]")
)


@given(st.sampled_from(["tcp", "tls"]), hosts, st.integers(0, 65535))
def test_every_address_comes_back_from_its_spelling(scheme: str, host: str, port: int) -> None:
    endpoint = Endpoint.parse(f"{scheme}://{host}:{port}")
    assert endpoint.port == port
    assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "host",
    ["*", "0.0.0.0", "[::]", "[0:0::0:0]", "[::0.0.0.0]", "[::ffff:0.0.0.0]", "[::ffff:0:0]", "[::%eth0]"],
)
def test_every_spelling_of_all_interfaces_is_a_wildcard(host: str) -> None:
    endpoint = Endpoint.parse(f"tcp://{host}:5555")
    assert endpoint.is_wildcard
    assert not endpoint.is_dialable


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.1", "[::ffff:127.0.0.1]", "zero"])
def test_a_concrete_host_is_no_wildcard(host: str) -> None:
    assert not Endpoint.parse(f"tcp://{host}:5555").is_wildcard
    assert Endpoint.parse(f"tcp://{host}:5555").is_dialable
    assert not Endpoint.parse(f"tcp://{host}:0").is_dialable


@pytest.mark.parametrize("text", ["ipc:///tmp/a.sock", "inproc://a"])
def test_paths_and_names_are_always_dialable(text: str) -> None:
    assert Endpoint.parse(text).is_dialable
    assert not Endpoint.parse(text).is_wildcard


def test_host_and_port_can_be_replaced() -> None:
    endpoint = Endpoint.parse("tls://*:0")
    assert str(endpoint.with_port(5555)) == "tls://*:5555"
    assert str(endpoint.with_host("10.0.0.1").with_port(5555)) == "tls://10.0.0.1:5555"
    assert str(endpoint.with_host("2001:DB8::1")) == "tls://[2001:db8::1]:0"
    assert str(endpoint.with_host("[::1]")) == "tls://[::1]:0"
    assert str(endpoint) == "tls://*:0"


@pytest.mark.parametrize("host", ["", "a b", "a/b", "a:1", "user@a", "[::1"])
def test_a_bad_replacement_host_is_refused(host: str) -> None:
    with pytest.raises(BadEndpoint):
        Endpoint.parse("tcp://*:5555").with_host(host)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_bad_replacement_port_is_refused(port: int) -> None:
    with pytest.raises(BadEndpoint):
        Endpoint.parse("tcp://*:5555").with_port(port)


@pytest.mark.parametrize("text", ["ipc:///tmp/a.sock", "inproc://a"])
def test_what_has_no_host_cannot_be_given_one(text: str) -> None:
    with pytest.raises(BadEndpoint):
        Endpoint.parse(text).with_host("localhost")
    with pytest.raises(BadEndpoint):
        Endpoint.parse(text).with_port(1)


@pytest.mark.spec("DIS-27")
def test_a_wildcard_bind_advertises_the_default_routes_address() -> None:
    found = advertised(Endpoint.parse("tcp://*:5555"), None, lambda version: "192.168.1.10")
    assert str(found) == "tcp://192.168.1.10:5555"


@pytest.mark.spec("DIS-27")
@pytest.mark.parametrize(
    "given_endpoint", ["tcp://payment-server:5555", "tls://203.0.113.10:443", "tcp://[::1]:7"]
)
@pytest.mark.parametrize("bind", ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://10.0.0.1:5555", "tcp://*:0"])
def test_a_given_endpoint_is_advertised_as_it_is(bind: str, given_endpoint: str) -> None:
    assert str(advertised(Endpoint.parse(bind), given_endpoint, no_route_needed)) == given_endpoint


@pytest.mark.spec("DIS-27")
@pytest.mark.parametrize(
    "bind", ["tcp://192.168.1.10:5555", "tcp://127.0.0.1:5555", "tls://host:1", "ipc:///a"]
)
def test_a_concrete_bind_is_advertised_as_it_is(bind: str) -> None:
    assert str(advertised(Endpoint.parse(bind), None, no_route_needed)) == bind
    assert str(advertised(Endpoint.parse(bind), "", no_route_needed)) == bind


@pytest.mark.spec("DIS-27")
@pytest.mark.parametrize(
    "unreachable", ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://[::]:5555", "tcp://host:0"]
)
def test_a_given_wildcard_is_never_advertised(unreachable: str) -> None:
    with pytest.raises(BadEndpoint, match="nobody can dial"):
        advertised(Endpoint.parse("tcp://10.0.0.1:5555"), unreachable, no_route_needed)


@pytest.mark.spec("DIS-27")
@pytest.mark.parametrize("bind", ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://[::]:5555"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "*"])
def test_a_wildcard_found_on_the_default_route_is_never_advertised(bind: str, host: str) -> None:
    with pytest.raises(Unavailable):
        advertised(Endpoint.parse(bind), None, lambda version: host)


@pytest.mark.spec("DIS-27")
def test_without_a_route_a_wildcard_is_not_advertised_at_all() -> None:
    with pytest.raises(Unavailable):
        advertised(Endpoint.parse("tcp://*:5555"), None, no_route)


@pytest.mark.parametrize(
    ("bind", "version"), [("*", None), ("0.0.0.0", 4), ("[::ffff:0.0.0.0]", 4), ("[::]", 6), ("[::%eth0]", 6)]
)
def test_the_route_is_asked_for_the_ip_version_that_is_listened_on(
    bind: str, version: IpVersion | None
) -> None:
    asked: list[IpVersion | None] = []

    def route(wanted: IpVersion | None) -> str:
        asked.append(wanted)
        return "2001:db8::10" if wanted == 6 else "192.0.2.10"

    found = advertised(Endpoint.parse(f"tcp://{bind}:5555"), None, route)
    assert asked == [version]
    assert str(found) == ("tcp://[2001:db8::10]:5555" if version == 6 else "tcp://192.0.2.10:5555")


def test_a_port_that_is_not_known_yet_is_not_advertised() -> None:
    with pytest.raises(BadEndpoint, match="before it is bound"):
        advertised(Endpoint.parse("tcp://10.0.0.1:0"), None, no_route_needed)
