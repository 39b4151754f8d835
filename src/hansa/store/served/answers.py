"""etcd's requests about keys, carried out on a store: reads, changes, nested transactions, refusals. Pure.

A transaction is flattened before anything is done. All its conditions, also those of inner transactions, are
decided on the store as it is before, as etcd does. That leaves one list of operations, which is carried out
whole or not at all. No key is written twice in it, so a key's value before its put is its value before the
transaction.

Refusals have etcd's codes and words, by which clients distinguish them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    Compacted,
    FutureRevision,
    HansaError,
    LeaseLost,
    StoreUnavailable,
    UsageError,
)
from hansa.limits import STORE_TXN_BYTES_MAX, STORE_TXN_COUNT_MAX, STORE_VALUE_BYTES_MAX
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.messages import compare_from_message, item_to_message
from hansa.store.served.recorded import RecordedStore
from hansa.store.values import (
    Delete,
    DeleteResult,
    Event,
    Get,
    GetResult,
    KeyValue,
    Operation,
    Put,
    Result,
    is_within,
)


class RequestRefused(UsageError):
    """A request that is answered with an error status. `status` is the name of its gRPC code."""

    code = "refused"

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


INVALID: Final = "INVALID_ARGUMENT"
OUT_OF_RANGE: Final = "OUT_OF_RANGE"
EXHAUSTED: Final = "RESOURCE_EXHAUSTED"
AWAY: Final = "UNAVAILABLE"

COMPACTED: Final = (OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
FUTURE: Final = (OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
NO_LEASE: Final = ("NOT_FOUND", "etcdserver: requested lease not found")
LEASE_EXISTS: Final = ("FAILED_PRECONDITION", "etcdserver: lease already exists")
LEASE_TOO_LONG: Final = (OUT_OF_RANGE, "etcdserver: too large lease TTL")
EMPTY_KEY: Final = (INVALID, "etcdserver: key is not provided")
NO_KEY: Final = (INVALID, "etcdserver: key not found")
VALUE_GIVEN: Final = (INVALID, "etcdserver: value is provided")
LEASE_GIVEN: Final = (INVALID, "etcdserver: lease is provided")
TOO_MANY_OPERATIONS: Final = (INVALID, "etcdserver: too many operations in txn request")
DUPLICATE_KEY: Final = (INVALID, "etcdserver: duplicate key given in txn request")
BAD_SORT: Final = (INVALID, "etcdserver: invalid sort option")
TOO_LARGE: Final = (INVALID, "etcdserver: request is too large")
FULL: Final = (EXHAUSTED, "etcdserver: mvcc: database space exceeded")
BUSY: Final = (EXHAUSTED, "etcdserver: too many requests")
NO_AUTH: Final = ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled")
STOPPED: Final = (AWAY, "etcdserver: server stopped")
# It may or may not have been done: etcd says so when its answer is late, and clients know the words.
IN_DOUBT: Final = (AWAY, "etcdserver: request timed out")


def refusal_of(error: HansaError) -> RequestRefused:
    """The refusal that clients are told for an error of the store."""
    match error:
        case RequestRefused():
            return error
        case Compacted():
            return RequestRefused(*COMPACTED)
        case FutureRevision():
            return RequestRefused(*FUTURE)
        case LeaseLost():
            return RequestRefused(*NO_LEASE)
        case BadArgument():
            return RequestRefused(INVALID, f"hansa store: {error}")
        case AlreadyClosed():
            return RequestRefused(*STOPPED)
        case StoreUnavailable():
            # etcd's words, so that every client knows that nothing was done; then the reason.
            return RequestRefused(EXHAUSTED, f"{FULL[1]}: {error}")
    return RequestRefused("INTERNAL", f"hansa store: {error}")


_SORTS = {
    api.RangeRequest.KEY: lambda item: item.key,
    api.RangeRequest.VERSION: lambda item: item.version,
    api.RangeRequest.CREATE: lambda item: item.create_revision,
    api.RangeRequest.MOD: lambda item: item.mod_revision,
    api.RangeRequest.VALUE: lambda item: item.value,
}
_ORDERS = frozenset(api.RangeRequest.SortOrder.values())


# ---- single requests ---------------------------------------------------------------------------


def answer_range(store: RecordedStore, request: api.RangeRequest, *, revision: int) -> api.RangeResponse:
    """The keys of a range at a revision (0: now). Raises `RequestRefused` and what `Mvcc.scan` raises."""
    check_range(request)
    if not request.range_end and not _is_selective(request):
        # By far the most requests are of this kind.
        item = store.get(request.key, revision=revision)
        answer = api.RangeResponse()
        if item is not None:
            answer.count = 1
            if not request.count_only:
                answer.kvs.append(_shown(item, request))
        return answer
    found = store.scan(_get_of(request), revision=revision)
    return _range_answer(request, found.items, found.count)


def answer_put(store: RecordedStore, request: api.PutRequest) -> api.PutResponse:
    """Set a key. Raises `RequestRefused` and what `RecordedStore.perform` raises."""
    check_put(request)
    _, batch = _perform(store, (_put_of(store, request),))
    return _put_answer(request, batch[0])


def answer_delete(store: RecordedStore, request: api.DeleteRangeRequest) -> api.DeleteRangeResponse:
    """Delete a range. Raises `RequestRefused`."""
    if not request.key:
        raise RequestRefused(*EMPTY_KEY)
    _, events = _perform(store, (Delete(request.key, request.range_end),))
    return _delete_answer(request, events)


# ---- transactions ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Branch:
    """The branch of a transaction that was taken: its requests, in order, inner transactions as branches."""

    succeeded: bool
    steps: list[api.RequestOp | _Branch] = field(default_factory=list)


def answer_txn(store: RecordedStore, request: api.TxnRequest) -> api.TxnResponse:
    """Carry a transaction out. Raises `RequestRefused` and what `RecordedStore.perform` raises."""
    if request.ByteSize() > STORE_TXN_BYTES_MAX:
        raise RequestRefused(*TOO_LARGE)
    check_txn(request)
    branch = _chosen(store, request)
    # Reads of the past do not see the transaction, and so may be done first.
    past = {id(step): _past_answer(store, step) for step in _flat(branch) if _is_past(step)}
    operations = [_operation_of(store, step) for step in _flat(branch) if not _is_past(step)]
    results, events = _perform(store, operations)
    return _branch_answer(branch, iter(results), iter(events), past, store.revision)


def _chosen(store: RecordedStore, request: api.TxnRequest) -> _Branch:
    branch = _Branch(all(_holds(store, compare) for compare in request.compare))
    for step in request.success if branch.succeeded else request.failure:
        inner = step.WhichOneof("request") == "request_txn"
        branch.steps.append(_chosen(store, step.request_txn) if inner else step)
    return branch


def _holds(store: RecordedStore, message: api.Compare) -> bool:
    """Whether all keys of a compare's range fulfil it; if there are none, whether an absent key would."""
    if not message.range_end:
        compare = compare_from_message(message)
        return compare.holds(store.get(compare.key))
    one_key = api.Compare()
    one_key.CopyFrom(message)
    one_key.ClearField("range_end")
    compare = compare_from_message(one_key)
    items = store.scan(Get(message.key, message.range_end)).items
    return all(compare.holds(item) for item in items or (None,))


def _flat(branch: _Branch) -> Iterator[api.RequestOp]:
    for step in branch.steps:
        if isinstance(step, _Branch):
            yield from _flat(step)
        else:
            yield step


def _is_past(step: api.RequestOp) -> bool:
    return step.WhichOneof("request") == "request_range" and step.request_range.revision > 0


def _past_answer(store: RecordedStore, step: api.RequestOp) -> api.RangeResponse:
    return answer_range(store, step.request_range, revision=step.request_range.revision)


def _operation_of(store: RecordedStore, step: api.RequestOp) -> Operation:
    kind = step.WhichOneof("request")
    if kind == "request_put":
        return _put_of(store, step.request_put)
    if kind == "request_delete_range":
        return Delete(step.request_delete_range.key, step.request_delete_range.range_end)
    return _get_of(step.request_range)


def _branch_answer(
    branch: _Branch,
    results: Iterator[Result],
    events: Iterator[Event],
    past: dict[int, api.RangeResponse],
    revision: int,
) -> api.TxnResponse:
    answer = api.TxnResponse(succeeded=branch.succeeded)
    answer.header.revision = revision
    for step in branch.steps:
        part = answer.responses.add()
        if isinstance(step, _Branch):
            part.response_txn.CopyFrom(_branch_answer(step, results, events, past, revision))
            continue
        if id(step) in past:
            part.response_range.CopyFrom(past[id(step)])
        else:
            _step_answer(part, step, next(results), events)
        getattr(part, part.WhichOneof("response") or "").header.revision = revision
    return answer


def _step_answer(part: api.ResponseOp, step: api.RequestOp, result: Result, events: Iterator[Event]) -> None:
    if isinstance(result, GetResult):
        part.response_range.CopyFrom(_range_answer(step.request_range, result.items, result.count))
    elif isinstance(result, DeleteResult):
        deleted = [next(events) for _ in range(result.count)]
        part.response_delete_range.CopyFrom(_delete_answer(step.request_delete_range, deleted))
    else:
        part.response_put.CopyFrom(_put_answer(step.request_put, next(events)))


# ---- what may be asked -------------------------------------------------------------------------


def check_range(request: api.RangeRequest) -> None:
    """Raise `RequestRefused` for an impossible read."""
    if not request.key:
        raise RequestRefused(*EMPTY_KEY)
    if request.sort_target not in _SORTS or request.sort_order not in _ORDERS:
        raise RequestRefused(*BAD_SORT)


def check_put(request: api.PutRequest) -> None:
    """Raise `RequestRefused` for an impossible put."""
    if not request.key:
        raise RequestRefused(*EMPTY_KEY)
    if request.ignore_value and request.value:
        raise RequestRefused(*VALUE_GIVEN)
    if request.ignore_lease and request.lease:
        raise RequestRefused(*LEASE_GIVEN)
    if len(request.value) > STORE_TXN_BYTES_MAX:
        raise RequestRefused(*TOO_LARGE)


def check_txn(request: api.TxnRequest, count_max: int = STORE_TXN_COUNT_MAX) -> None:
    """Raise `RequestRefused` for a transaction that is too large, or that could write a key twice."""
    _check_parts(request, count_max)
    _written(request.success)
    _written(request.failure)


def _check_parts(request: api.TxnRequest, count_max: int) -> None:
    count = max(len(request.compare), len(request.success), len(request.failure))
    if count > count_max:
        raise RequestRefused(*TOO_MANY_OPERATIONS)
    if not all(compare.key for compare in request.compare):
        raise RequestRefused(*EMPTY_KEY)
    for step in (*request.success, *request.failure):
        kind = step.WhichOneof("request")
        if kind == "request_range":
            check_range(step.request_range)
        elif kind == "request_put":
            check_put(step.request_put)
        elif kind == "request_txn":
            # As etcd counts: an inner transaction may use what the outer one leaves of the bound.
            _check_parts(step.request_txn, count_max - count)
        elif not step.request_delete_range.key:
            raise RequestRefused(*EMPTY_KEY)


@dataclass(slots=True)
class _Written:
    """The keys and ranges that some requests may write."""

    puts: set[bytes] = field(default_factory=set)
    deletes: list[tuple[bytes, bytes]] = field(default_factory=list)

    def add(self, other: _Written) -> None:
        if self.puts & other.puts or self.meets(other) or other.meets(self):
            raise RequestRefused(*DUPLICATE_KEY)
        self.puts |= other.puts
        self.deletes += other.deletes

    def meets(self, other: _Written) -> bool:
        return any(is_within(key, *deleted) for deleted in self.deletes for key in other.puts)


def _written(steps: Sequence[api.RequestOp]) -> _Written:
    """What these steps may write, whichever branch inner ones take. A key twice raises `RequestRefused`."""
    found = _Written()
    for step in steps:
        kind = step.WhichOneof("request")
        if kind == "request_put":
            found.add(_Written(puts={step.request_put.key}))
        elif kind == "request_delete_range":
            found.add(
                _Written(deletes=[(step.request_delete_range.key, step.request_delete_range.range_end)])
            )
        elif kind == "request_txn":
            # Only one of the branches is carried out: both may write the same keys.
            then, otherwise = _written(step.request_txn.success), _written(step.request_txn.failure)
            found.add(_Written(then.puts | otherwise.puts, then.deletes + otherwise.deletes))
    return found


# ---- requests as operations, results as answers ------------------------------------------------


def _perform(
    store: RecordedStore, operations: Sequence[Operation]
) -> tuple[Sequence[Result], Sequence[Event]]:
    try:
        outcome, batch = store.perform(operations)
    except StoreUnavailable as error:
        raise RequestRefused(*FULL) from error
    return outcome.results, () if batch is None else batch.events


def _put_of(store: RecordedStore, request: api.PutRequest) -> Put:
    value, lease = request.value, request.lease
    if request.ignore_value or request.ignore_lease:
        before = store.get(request.key)
        if before is None:
            raise RequestRefused(*NO_KEY)
        value = before.value if request.ignore_value else value
        lease = before.lease if request.ignore_lease else lease
    if len(value) > STORE_VALUE_BYTES_MAX:
        raise RequestRefused(
            TOO_LARGE[0], f"{TOO_LARGE[1]}: a value has at most {STORE_VALUE_BYTES_MAX} bytes"
        )
    return Put(request.key, value, lease)


def _get_of(request: api.RangeRequest) -> Get:
    # One more than requested is not needed: a range knows its count.
    limit = 0 if _is_selective(request) else max(request.limit, 0)
    return Get(request.key, request.range_end, limit=1 if request.count_only else limit)


def _is_selective(request: api.RangeRequest) -> bool:
    """Whether all keys of the range must be looked at to find the requested ones."""
    return bool(
        request.sort_target
        or request.sort_order == api.RangeRequest.DESCEND
        or request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def _range_answer(request: api.RangeRequest, items: Sequence[KeyValue], count: int) -> api.RangeResponse:
    answer = api.RangeResponse(count=count)
    if request.count_only:
        return answer
    more = len(items) < count
    if _is_selective(request):
        items = _ordered(request, [item for item in items if _is_selected(request, item)])
        more = 0 < request.limit < len(items)
        items = items[: request.limit] if more else items
    answer.more = more
    answer.kvs.extend(_shown(item, request) for item in items)
    return answer


def _is_selected(request: api.RangeRequest, item: KeyValue) -> bool:
    return (
        (not request.max_mod_revision or item.mod_revision <= request.max_mod_revision)
        and item.mod_revision >= request.min_mod_revision
        and (not request.max_create_revision or item.create_revision <= request.max_create_revision)
        and item.create_revision >= request.min_create_revision
    )


def _ordered(request: api.RangeRequest, items: list[KeyValue]) -> list[KeyValue]:
    if request.sort_order or request.sort_target:
        # A request that names what to sort by, and no order, means ascending.
        is_falling = request.sort_order == api.RangeRequest.DESCEND
        items.sort(key=_SORTS[request.sort_target], reverse=is_falling)
    return items


def _shown(item: KeyValue, request: api.RangeRequest) -> api.KeyValue:
    message = item_to_message(item)
    if request.keys_only:
        message.ClearField("value")
    return message


def _put_answer(request: api.PutRequest, event: Event) -> api.PutResponse:
    answer = api.PutResponse()
    if request.prev_kv and event.before is not None:
        answer.prev_kv.CopyFrom(item_to_message(event.before))
    return answer


def _delete_answer(request: api.DeleteRangeRequest, events: Sequence[Event]) -> api.DeleteRangeResponse:
    answer = api.DeleteRangeResponse(deleted=len(events))
    if request.prev_kv:
        answer.prev_kvs.extend(item_to_message(event.before) for event in events if event.before is not None)
    return answer
