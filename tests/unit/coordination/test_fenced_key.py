"""Guarded storage in the store: old owners are refused, and the fence is raised before the read."""

import asyncio
from typing import Any

import pytest

from hansa.coordination.fencing import FENCE_MAX, FencedKey, decode_fence, encode_fence
from hansa.coordination.lock import Lock
from hansa.coordination.session import Session
from hansa.errors import BadArgument, BadRecord, Conflict, NotHeld, StaleFence, TimedOut
from hansa.store.values import Outcome
from tests.support.virtual_store import TroubledStore, virtual


@pytest.mark.spec("CRD-10")
@virtual
async def test_a_stale_owner_cannot_write_or_read_to_write(store: TroubledStore) -> None:
    cargo = FencedKey(store, "cargo")
    assert await cargo.take(7) is None
    await cargo.write(7, b"salt")
    assert await cargo.take(9) == b"salt"
    for call in (cargo.write(7, b"herring"), cargo.take(7), cargo.take(8)):
        with pytest.raises(StaleFence, match=r"fence [78] is stale, fence 9 was raised"):
            await call
    assert await cargo.take(9) == b"salt"
    await cargo.write(9, b"cloth")
    item = await store.get("cargo")
    assert item is not None
    assert item.value == b"cloth"


@pytest.mark.spec("CRD-10")
@virtual
async def test_the_fence_is_raised_before_the_value_is_read(store: TroubledStore) -> None:
    cargo = FencedKey(store, "cargo")
    await cargo.take(1)
    await cargo.write(1, b"0")
    async with asyncio.TaskGroup() as tasks:
        old = tasks.create_task(_write(cargo, 1, b"old"))
        new = tasks.create_task(cargo.take(2))
    # Either the old owner wrote before the new one read, or it did not write at all.
    assert (old.result(), new.result()) in ((True, b"old"), (False, b"0"))


async def _write(cargo: FencedKey, fence: int, value: bytes) -> bool:
    try:
        await cargo.write(fence, value)
    except StaleFence:
        return False
    return True


@virtual
async def test_who_never_took_it_cannot_write(store: TroubledStore) -> None:
    cargo = FencedKey(store, "cargo")
    with pytest.raises(NotHeld, match=r"take\(5\) before.*fence is at 0"):
        await cargo.write(5, b"")
    await cargo.take(3)
    with pytest.raises(NotHeld, match="fence is at 3"):
        await cargo.write(5, b"")
    # Also where another object has taken it: this one has not read what it would overwrite.
    with pytest.raises(NotHeld, match="fence is at 3"):
        await FencedKey(store, "cargo").write(3, b"")


@virtual
async def test_a_lost_answer_is_cleared_up_by_taking_again(store: TroubledStore) -> None:
    cargo = FencedKey(store, "cargo")
    store.lost_answers_count = 1
    with pytest.raises(TimedOut):
        await cargo.take(1)
    assert await cargo.take(1) is None
    store.lost_answers_count = 1
    with pytest.raises(TimedOut):
        await cargo.write(1, b"salt")
    assert await cargo.take(1) == b"salt"


@virtual
async def test_the_first_two_owners_of_all_do_not_miss_each_other(store: TroubledStore) -> None:
    for number in range(10):
        cargo = FencedKey(store, f"cargo/{number}")

        async def own(fence: int, cargo: FencedKey = cargo) -> bool:
            try:
                await cargo.take(fence)
                await cargo.write(fence, b"%d" % fence)
            except StaleFence:
                return False
            return True

        async with asyncio.TaskGroup() as tasks:
            owners = [tasks.create_task(own(fence)) for fence in (1, 2, 3)]
        assert owners[2].result()
        assert await cargo.take(3) == b"3"


@virtual
async def test_fences_of_a_lock_fit(store: TroubledStore) -> None:
    async with Session(store) as session:
        cargo = FencedKey(store, "cargo")
        lock = Lock(session, "cargo")
        for number in range(5):
            async with lock as hold:
                assert await cargo.take(hold.fence) == (b"%d" % number if number else None)
                await cargo.write(hold.fence, b"%d" % (number + 1))


def test_the_order_of_written_fences_is_that_of_numbers() -> None:
    fences = [1, 9, 10, 255, 256, 2**32, FENCE_MAX]
    texts = [encode_fence(fence) for fence in fences]
    assert texts == sorted(texts)
    assert [decode_fence(text) for text in texts] == fences
    for text in (b"", b"1", b"x" * 16, b"0" * 17):
        with pytest.raises(BadRecord):
            decode_fence(text)


@virtual
async def test_what_is_no_fence_is_refused(store: TroubledStore) -> None:
    cargo = FencedKey(store, "cargo")
    for fence in (0, -1, FENCE_MAX + 1):
        with pytest.raises(BadArgument):
            await cargo.take(fence)
        with pytest.raises(BadArgument):
            await cargo.write(fence, b"")
    await store.put("cargo/fence", b"zzz")
    with pytest.raises(BadRecord):
        await cargo.take(1)


@pytest.mark.spec("CRD-10")
@virtual
async def test_a_write_that_was_given_up_does_not_come_late_over_a_newer_one(store: TroubledStore) -> None:
    cargo = FencedKey(store, "cargo")
    await cargo.take(1)
    sent: list[tuple[Any, Any]] = []
    commit = store.commit

    async def keeps_it(compares: Any, then: Any = (), otherwise: Any = (), **options: Any) -> Outcome:
        sent.append((compares, then))
        raise TimedOut("it waits in the network")

    store.commit = keeps_it  # type: ignore[method-assign]
    with pytest.raises(TimedOut):
        await cargo.write(1, b"salt")
    store.commit = commit  # type: ignore[method-assign]
    assert await cargo.take(1) is None
    await cargo.write(1, b"cloth")
    assert not (await store.commit(*sent[0])).is_success
    assert await cargo.take(1) == b"cloth"
    # And if it comes before the newer one, that one is refused, and not lost.
    await store.put("cargo", b"late")
    with pytest.raises(Conflict):
        await cargo.write(1, b"wool")
    assert await cargo.take(1) == b"late"
    with pytest.raises(NotHeld):
        await FencedKey(store, "cargo").write(1, b"never taken here")


@pytest.mark.spec("CRD-17")
@virtual
async def test_an_owner_whose_fence_the_store_forgot_takes_it_again(store: TroubledStore) -> None:
    """The store went back in time, and the key with it; another owner has a higher fence than this one."""
    cargo = FencedKey(store, "cargo")
    await store.put("cargo/fence", encode_fence(5))
    await cargo.take(9)
    await cargo.write(9, b"salt")
    for forgotten in (store.put("cargo/fence", encode_fence(5)), store.delete("cargo/fence")):
        await forgotten
        with pytest.raises(Conflict, match="went back in time"):
            await cargo.write(9, b"herring")
        await cargo.take(9)
        await cargo.write(9, b"herring")
    # Another fence than the one that was taken is still the caller's mistake.
    with pytest.raises(NotHeld):
        await cargo.write(10, b"cloth")
    assert await cargo.take(11) == b"herring"
    with pytest.raises(StaleFence):
        await cargo.write(9, b"cloth")
