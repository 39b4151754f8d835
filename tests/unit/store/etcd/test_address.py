"""Addresses of etcd groups, and stores made from them; a password shows nowhere."""

import pytest

from hansa.errors import AlreadyClosed, BadArgument, BadEndpoint, UsageError
from hansa.store.etcd.address import EtcdAddress
from hansa.store.etcd.client import EtcdStore
from hansa.store.opening import open_store
from hansa.transport import Tls

SECRET = "s3cret"


def test_an_address_names_all_members() -> None:
    address = EtcdAddress.parse("Alpha:2379,127.0.0.1:1,[::1]:65535")
    assert address == EtcdAddress(endpoints=("alpha:2379", "127.0.0.1:1", "[::1]:65535"))


def test_user_and_password_stand_before_the_hosts_and_may_hold_anything() -> None:
    address = EtcdAddress.parse("a%3Ada:p@ss%2C%3A%25@host:2379")
    assert (address.user, address.password) == ("a:da", "p@ss,:%")


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "host",
        "host:0",
        "*:2379",
        "host:2379,",
        "host:99999",
        "host:2379/path",
        "host:2379,HOST:2379",
        ",".join(f"host{number}:2379" for number in range(65)),
        f"ada:{SECRET}@",
        f"ada:{SECRET}@host",
        f"ada:{SECRET}@a:1,ada:{SECRET}@b:1",
        f"{SECRET}@host:2379",
        f":{SECRET}@host:2379",
    ],
)
def test_what_cannot_be_dialled_is_refused_without_telling_the_password(rest: str) -> None:
    with pytest.raises(BadEndpoint) as caught:
        open_store(f"etcd://{rest}")
    assert SECRET not in str(caught.value)


def test_a_store_is_made_with_what_the_address_says() -> None:
    store = open_store(f"etcd://ada:{SECRET}@host:2379,other:2379", try_timeout_s=0.5)
    assert isinstance(store, EtcdStore)
    assert store.name == "etcd://host:2379,other:2379"
    for shown in (
        repr(store),
        repr(EtcdAddress.parse(f"ada:{SECRET}@host:2379")),
        repr(store._caller.access),
    ):
        assert SECRET not in shown


def test_an_address_may_be_written_as_the_store_prints_it() -> None:
    store = open_store("http://host:2379/,http://other:2379")
    assert isinstance(store, EtcdStore)
    assert store.name == "etcd://host:2379,other:2379"
    with pytest.raises(BadEndpoint, match="--tls-cert"):
        open_store("https://host:2379")
    with pytest.raises(BadEndpoint, match="write https://"):
        open_store("http://host:2379", tls=Tls(cert="cert.pem", key="key.pem", ca="ca.pem"))


def test_an_unknown_kind_tells_the_known_ones_and_no_password() -> None:
    with pytest.raises(BadEndpoint, match="etcd://host:2379") as caught:
        open_store(f"zookeeper://ada:{SECRET}@host")
    assert SECRET not in str(caught.value)


def test_a_memory_store_takes_no_options() -> None:
    with pytest.raises(BadArgument):
        open_store("memory://docks", try_timeout_s=1.0)


async def test_a_store_is_used_inside_its_block() -> None:
    store = EtcdStore(["127.0.0.1:1"])
    with pytest.raises(UsageError, match="async with"):
        await store.get("k")
    async with store:
        pass
    with pytest.raises(AlreadyClosed):
        store.watch("k")
    with pytest.raises(AlreadyClosed):
        async with store:
            pass


def test_a_try_takes_time() -> None:
    with pytest.raises(BadArgument):
        EtcdStore(["host:1"], try_timeout_s=0.0)
