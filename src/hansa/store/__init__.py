"""The store: keys with revisions, transactions, leases and watches, on several engines.

async with open_store("memory://docks") as store:
    taken = await store.commit([Compare.absent("berth/1")], then=[Put("berth/1", b"cog")])

- `store`, `values`: the one interface, and its arguments and results; `opening`: from an address to a store.
- `mvcc`, `leases`, `watching`, `engine`: a whole store as one machine, without a disk or a socket.
- `blobs`: byte strings too large for one value, in pieces, on any store. `ages`: how old keys are.
- `memory`: that machine on an event loop; the simulator's store uses its `EngineStore`, too.
- `etcd/`: the client of an etcd group. `served/`: `hansa store`, with its journal on disk. `raft/`: a group
  of etcd members that hansa starts and watches.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.store.blobs import Blob, Blobs
    from hansa.store.memory import MemoryStore
    from hansa.store.opening import open_store
    from hansa.store.store import Keeping, Store, Watch
    from hansa.store.values import (
        Compare,
        CompareOperator,
        CompareTarget,
        Delete,
        DeleteResult,
        Event,
        EventKind,
        Get,
        GetResult,
        KeyValue,
        LeaseInfo,
        Outcome,
        Put,
        PutResult,
        Scan,
        StoreStatus,
        WatchBatch,
    )
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.store.blobs": "Blob Blobs",
            "hansa.store.memory": "MemoryStore",
            "hansa.store.opening": "open_store",
            "hansa.store.store": "Keeping Store Watch",
            "hansa.store.values": (
                "Compare CompareOperator CompareTarget Delete DeleteResult Event EventKind Get GetResult "
                "KeyValue LeaseInfo Outcome Put PutResult Scan StoreStatus WatchBatch"
            ),
        },
    )

__all__ = [
    "Blob",
    "Blobs",
    "Compare",
    "CompareOperator",
    "CompareTarget",
    "Delete",
    "DeleteResult",
    "Event",
    "EventKind",
    "Get",
    "GetResult",
    "Keeping",
    "KeyValue",
    "LeaseInfo",
    "MemoryStore",
    "Outcome",
    "Put",
    "PutResult",
    "Scan",
    "Store",
    "StoreStatus",
    "Watch",
    "WatchBatch",
    "open_store",
]
