"""The store: keys with revisions, transactions, leases and watches, on several engines.

async with open_store("memory://docks") as store:
    taken = await store.commit([Compare.absent("berth/1")], then=[Put("berth/1", b"cog")])
"""

from hansa.store.on_memory import MemoryStore
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

__all__ = [
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
