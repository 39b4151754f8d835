"""A store in a folder without an event loop, for tests that break the folder."""

from pathlib import Path
from typing import Any

from hansa.chance import Chance
from hansa.store.served.folder import Recovery, StoreFolder
from hansa.store.served.journal import encode_block
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.records import encode_record
from hansa.store.values import Put
from tests.support.store_views import view


class Kept:
    """A store whose records go into a folder, a block each, without a thread."""

    def __init__(self, path: Path, *, fsync: bool = True, give_up_damage: bool = False) -> None:
        self.folder = StoreFolder.open(path, Chance.seeded(3), fsync=fsync)
        self.store = RecordedStore(Chance.seeded(4))
        try:
            self.recovery: Recovery = self.folder.recover(self.store, now=0.0, give_up_damage=give_up_damage)
        except BaseException:
            self.folder.close()
            raise
        self.sequence = self.folder.next_sequence - 1

    def put(self, key: str, value: bytes = b"v") -> None:
        self.store.perform((Put(key, value),))
        self.flush()

    def flush(self) -> None:
        records = [encode_record(told.record) for told in self.store.taken()]
        self.folder.append(encode_block(self.sequence + 1, records))
        self.sequence += len(records)

    def mark(self) -> None:
        self.folder.mark_flushed(self.sequence)

    def rotate(self) -> None:
        self.folder.begin_segment(self.sequence + 1)

    def snapshot(self) -> None:
        self.folder.write_snapshot(self.store.image(), self.sequence)

    def close(self) -> tuple[Any, ...]:
        self.folder.close()
        return view(self.store)
