"""Random histories against a naive model that copies the whole store at every revision, on every engine."""

from dataclasses import replace

import pytest

from hansa.chance import Chance
from hansa.errors import Compacted
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, EventKind, KeyValue, Operation, Put, is_within, prefix_range
from tests.conformance.store.engines import StoreEngine, ours

pytestmark = pytest.mark.spec("CRD-01")

KEYS = [b"a", b"a/", b"a/1", b"a/2", b"b", b"\xff\xff"]
PREFIXES = [b"", b"a", b"a/", b"b", b"\xff"]
Snapshot = dict[bytes, KeyValue]
Change = tuple[EventKind, bytes, KeyValue | None]


class Model:
    """A copy of everything, and what changed, for every revision."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.oldest = revision
        self.snapshots: dict[int, Snapshot] = {revision: {}}
        self.changes: dict[int, list[Change]] = {}

    @property
    def now(self) -> Snapshot:
        return self.snapshots[self.revision]

    def apply(self, operations: list[Operation]) -> None:
        now, changes, revision = dict(self.now), list[Change](), self.revision + 1
        for operation in operations:
            if isinstance(operation, Put):
                old = now.get(operation.key)
                fresh = KeyValue(
                    key=operation.key,
                    value=operation.value,
                    create_revision=revision,
                    mod_revision=revision,
                    version=1,
                    lease=operation.lease,
                )
                now[operation.key] = (
                    fresh
                    if old is None
                    else replace(fresh, create_revision=old.create_revision, version=old.version + 1)
                )
                changes.append((EventKind.PUT, operation.key, old))
            elif isinstance(operation, Delete):
                for key in sorted(now):
                    if is_within(key, operation.key, operation.range_end):
                        changes.append((EventKind.DELETE, key, now.pop(key)))
        if changes:
            self.revision = revision
            self.snapshots[revision], self.changes[revision] = now, changes


def draw_branch(chance: Chance, leases: list[int]) -> list[Operation]:
    keys = list(KEYS)
    chance.shuffle(keys)
    branch: list[Operation] = []
    for key in keys[: chance.below(4)]:
        if chance.flip(0.3):
            branch.append(Delete(key))
        else:
            branch.append(Put(key, b"%d" % chance.below(3), chance.choose([0, *leases])))
    return branch


async def step(store: Store, model: Model, chance: Chance, leases: list[int]) -> None:
    kind = chance.below(10)
    if kind == 0:
        leases.append(await store.grant(60.0))
    elif kind == 1 and leases:
        lease = leases.pop(chance.below(len(leases)))
        held: list[Operation] = [Delete(key) for key in sorted(model.now) if model.now[key].lease == lease]
        await store.revoke(lease)
        model.apply(held)
    elif kind == 2 and model.revision > model.oldest and chance.flip(0.3):
        model.oldest += 1 + chance.below(model.revision - model.oldest)
        await store.compact(model.oldest)
    elif kind == 3:
        # Not everything: with it would go what an engine keeps about itself, and writes again.
        prefix = chance.choose([prefix for prefix in PREFIXES if prefix])
        count = sum(key.startswith(prefix) for key in model.now)
        assert await store.delete_prefix(prefix) == count
        model.apply([Delete(*prefix_range(prefix))])
    else:
        key = chance.choose(KEYS)
        known = model.now[key].mod_revision if key in model.now and chance.flip(0.7) else 0
        then, otherwise = draw_branch(chance, leases), draw_branch(chance, leases)
        outcome = await store.commit([Compare.revision(key, "=", known)], then, otherwise)
        found = model.now[key].mod_revision if key in model.now else 0
        assert outcome.is_success == (found == known)
        model.apply(then if outcome.is_success else otherwise)
        assert outcome.revision == model.revision


async def check_reads(store: Store, model: Model) -> None:
    for revision in range(model.oldest, model.revision + 1):
        for prefix in PREFIXES:
            scan = await store.scan(prefix, revision=revision)
            snapshot = model.snapshots[revision]
            assert ours(scan.items) == [snapshot[key] for key in sorted(snapshot) if key.startswith(prefix)]
    if model.oldest > min(model.snapshots):
        with pytest.raises(Compacted):
            await store.scan("", revision=model.oldest - 1)


async def check_watch(store: Store, model: Model, start: int, prefix: bytes) -> None:
    watch = store.watch(prefix, start_revision=start, before=True)
    for revision in range(start, model.revision + 1):
        wanted = [change for change in model.changes[revision] if change[1].startswith(prefix)]
        if not wanted:
            continue
        batch = await anext(watch)
        assert batch.revision == revision
        assert [(event.kind, event.item.key) for event in batch.events] == [change[:2] for change in wanted]
        # What was before the oldest revision an engine may have forgotten.
        if revision > model.oldest:
            assert [event.before for event in batch.events] == [change[2] for change in wanted]
    watch.close()


@pytest.mark.parametrize("seed", range(12))
async def test_a_random_history_is_as_copies_would_have_it(
    store: Store, engine: StoreEngine, seed: int
) -> None:
    chance = Chance.seeded(seed)
    model, leases = Model((await store.status()).revision), list[int]()
    live = store.watch("a", before=True)
    start = await live.ready()
    for _ in range(60):
        await step(store, model, chance, leases)
    assert (await store.status()).revision == model.revision
    await check_reads(store, model)
    oldest_told = model.oldest if engine.keeps_deletions else model.oldest + 1
    for prefix in PREFIXES:
        await check_watch(store, model, max(start, oldest_told), prefix)
    for revision in range(start, model.revision + 1):
        wanted = [change for change in model.changes[revision] if change[1].startswith(b"a")]
        if wanted:
            batch = await anext(live)
            assert batch.revision == revision
            assert [(event.kind, event.item.key) for event in batch.events] == [each[:2] for each in wanted]
            # etcd looks up what was before when it sends the event: a compaction may have come between.
            for event, (_, _, before) in zip(batch.events, wanted, strict=True):
                assert event.before == before or (event.before is None and revision <= model.oldest)
    live.close()
