"""From a store's address to the store."""

from weakref import WeakValueDictionary

from hansa.errors import BadEndpoint
from hansa.store.on_memory import MemoryStore
from hansa.store.store import Store

_KNOWN = "write memory://name"
# Weak: a memory store lives as long as somebody holds it, and what nobody can reach again is not kept.
_memory_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()


def open_store(address: str) -> Store:
    """The store at an address; open it with `async with`.

    `memory://name` is one store per name in this process, for as long as anybody holds it; once it was
    closed, the name stands for a new and empty one. Raises `BadEndpoint`, which says what to write.
    """
    scheme, separator, name = address.partition("://")
    if not separator:
        raise BadEndpoint(f"store {address!r}: {_KNOWN}")
    if scheme != "memory":
        raise BadEndpoint(f"store {address!r}: there is no store of the kind {scheme!r}; {_KNOWN}")
    if not name or not name.isprintable() or " " in name:
        raise BadEndpoint(f"store {address!r}: give it a name without spaces; {_KNOWN}")
    store = _memory_stores.get(name)
    if store is None or store.is_closed:
        store = MemoryStore(name=name)
        _memory_stores[name] = store
    return store
