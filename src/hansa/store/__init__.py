"""The store: keys with revisions, transactions, leases and watches, on several engines.

    async with open_store("memory://docks") as store:
        taken = await store.commit([Compare.absent("berth/1")], then=[Put("berth/1", b"cog")])

Not part of what `hansa` exports yet, so without a list of its own.
"""

from hansa.store.on_memory import MemoryStore as MemoryStore
from hansa.store.opening import open_store as open_store
from hansa.store.store import Store as Store
from hansa.store.store import Watch as Watch
from hansa.store.values import Compare as Compare
from hansa.store.values import CompareOperator as CompareOperator
from hansa.store.values import CompareTarget as CompareTarget
from hansa.store.values import Delete as Delete
from hansa.store.values import DeleteResult as DeleteResult
from hansa.store.values import Event as Event
from hansa.store.values import EventKind as EventKind
from hansa.store.values import Get as Get
from hansa.store.values import GetResult as GetResult
from hansa.store.values import KeyValue as KeyValue
from hansa.store.values import LeaseInfo as LeaseInfo
from hansa.store.values import Outcome as Outcome
from hansa.store.values import Put as Put
from hansa.store.values import PutResult as PutResult
from hansa.store.values import Scan as Scan
from hansa.store.values import StoreStatus as StoreStatus
from hansa.store.values import WatchBatch as WatchBatch
