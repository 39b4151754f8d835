"""Opening a store by its address."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from hansa.errors import BadArgument, BadEndpoint
from hansa.store.memory import MemoryStore
from hansa.store.store import Store
from hansa.transport.environment import Environment

# Weak: a memory store lives as long as somebody holds it; one that nobody can reach again is not kept.
_memory_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()


def open_store(address: str, *, environment: Environment | None = None, **options: Any) -> Store:
    """The store at an address; open it with `async with`.

    `memory://name` is one store per name in this process, for as long as anybody holds it; once it was
    closed, the name stands for a new and empty one. `etcd://host:2379,host2:2379` is an etcd group, with
    `user:password@` before the hosts if it needs a login; the options go to `EtcdStore`. With TLS:
    `environment=Environment(tls=...)`. `http://host:2379`, as etcd and `hansa store` print it, is the same
    without TLS, `https://` with it. Raises `BadEndpoint`, which says what to write, and never a password.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        raise BadEndpoint(f"an address of a store begins with its kind: {_KNOWN}")
    opener = _OPENERS.get(scheme)
    if opener is None:
        raise BadEndpoint(f"there is no store of the kind {scheme!r}: {_KNOWN}")
    return opener(rest, environment or Environment(), options)


def _open_memory(name: str, environment: Environment, options: dict[str, Any]) -> Store:
    if not name or not name.isprintable() or " " in name:
        raise BadEndpoint(f"store 'memory://{name}': give it a name without spaces; {_KNOWN}")
    if environment.tls is not None or options:
        raise BadArgument("a store in memory takes no options: it may be open already, with others")
    store = _memory_stores.get(name)
    if store is None or store.is_closed:
        store = MemoryStore(environment=environment, name=name)
        _memory_stores[name] = store
    return store


def _open_etcd(rest: str, environment: Environment, options: dict[str, Any]) -> Store:
    # Imported here, because gRPC takes longer to load than all of hansa.
    from hansa.store.etcd.client import EtcdStore
    from hansa.store.etcd.members import EtcdAddress

    address = EtcdAddress.parse(rest)
    if address.user is not None:
        options = {"user": address.user, "password": address.password, **options}
    return EtcdStore(address.endpoints, environment=environment, **options)


def _open_raft(rest: str, environment: Environment, options: dict[str, Any]) -> Store:
    # Imported here, because few programs need it, and not every system has what it needs (fcntl).
    from hansa.store.raft.raft_store import open_raft_store

    if environment.tls is not None or options:
        raise BadArgument("the store of a raft group takes no options")
    return open_raft_store(rest, environment)


def _open_url(rest: str, environment: Environment, options: dict[str, Any], *, is_encrypted: bool) -> Store:
    if (environment.tls is not None) != is_encrypted:
        raise BadEndpoint(
            "a store at https:// needs credentials: environment=Environment(tls=...), or --tls-cert,"
            " --tls-key and --tls-ca"
            if is_encrypted
            else "credentials were given, and a store at http:// speaks no TLS: write https://"
        )
    # Every address of a list has its own scheme, as in `etcdctl --endpoints`.
    kind = "https://" if is_encrypted else "http://"
    hosts = [host.removeprefix(kind).removesuffix("/") for host in rest.split(",")]
    return _open_etcd(",".join(hosts), environment, options)


_OPENERS: dict[str, Callable[[str, Environment, dict[str, Any]], Store]] = {
    "memory": _open_memory,
    "etcd": _open_etcd,
    "raft": _open_raft,
    "http": partial(_open_url, is_encrypted=False),
    "https": partial(_open_url, is_encrypted=True),
}
_KNOWN = "write memory://name, etcd://host:2379,host2:2379, or raft://host:2390,host2:2390/app"
