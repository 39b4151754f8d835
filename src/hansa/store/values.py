"""The values that go into a store and come out of it.

Keys and values are bytes, and a key may be given as text (UTF-8). A range is a key and a `range_end`, as in
etcd: empty for the one key, `b"\\0"` for every key from this one on, else the first key that is not in it.
Values that a caller makes (`Put`, `Delete`, `Get`, `Compare`) are checked here, once, for every engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from hansa.errors import BadArgument
from hansa.limits import STORE_KEY_BYTES_MAX, STORE_TXN_BYTES_MAX, STORE_TXN_COUNT_MAX, STORE_VALUE_BYTES_MAX

FROM_KEY: Final = b"\0"
# Numbers have 64 bits with a sign, on the wire.
_NUMBER_END: Final = 2**63


class EventKind(Enum):
    """What happened to a key."""

    PUT = "put"
    DELETE = "delete"


class CompareTarget(Enum):
    """The property of a key that is compared."""

    CREATED = "create_revision"
    REVISION = "mod_revision"
    VERSION = "version"
    VALUE = "value"
    LEASE = "lease"


class CompareOperator(Enum):
    """The operator of a comparison."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    GREATER = ">"


OperatorText = Literal["=", "!=", "<", ">"]
_OPERATORS: Final = {operator.value: operator for operator in CompareOperator}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """A key as it is at some revision. `version` counts its puts since it was created; 0: deleted."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0

    @property
    def is_deleted(self) -> bool:
        return self.version == 0


@dataclass(frozen=True, slots=True, init=False)
class Put:
    """Set a key. `lease` 0 takes it off its former lease. Raises `BadArgument`."""

    key: bytes
    value: bytes
    lease: int

    def __init__(self, key: bytes | str, value: bytes, lease: int = 0) -> None:
        if not isinstance(value, bytes):
            raise BadArgument(f"put {key!r}: a value is bytes, not {type(value).__name__}")
        if len(value) > STORE_VALUE_BYTES_MAX:
            raise BadArgument(f"put {key!r}: {len(value)} bytes, a value has at most {STORE_VALUE_BYTES_MAX}")
        object.__setattr__(self, "key", as_key(key))
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "lease", as_lease(lease))


@dataclass(frozen=True, slots=True, init=False)
class Delete:
    """Delete a key or a range of them. Raises `BadArgument`."""

    key: bytes
    range_end: bytes

    def __init__(self, key: bytes | str, range_end: bytes | str = b"") -> None:
        object.__setattr__(self, "key", as_key(key))
        object.__setattr__(self, "range_end", as_bytes(range_end))


@dataclass(frozen=True, slots=True, init=False)
class Get:
    """Read a key or a range of them, in the order of keys, at most `limit` (0: all). Raises `BadArgument`."""

    key: bytes
    range_end: bytes
    limit: int
    keys_only: bool

    def __init__(
        self, key: bytes | str, range_end: bytes | str = b"", limit: int = 0, keys_only: bool = False
    ) -> None:
        if not 0 <= limit < _NUMBER_END:
            raise BadArgument(f"limit {limit}: give how many keys at most, or 0 for all")
        object.__setattr__(self, "key", as_key(key))
        object.__setattr__(self, "range_end", as_bytes(range_end))
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "keys_only", keys_only)


Operation = Put | Delete | Get


@dataclass(frozen=True, slots=True, init=False)
class Compare:
    """A condition on one key. An absent key has 0 everywhere and no value, which equals nothing.

    So every comparison of the value of an absent key fails, "!=" too. Raises `BadArgument`.
    """

    key: bytes
    target: CompareTarget
    operator: CompareOperator
    operand: int | bytes

    def __init__(
        self, key: bytes | str, target: CompareTarget, operator: CompareOperator, operand: int | bytes
    ) -> None:
        wanted = bytes if target is CompareTarget.VALUE else int
        # Not a bool either, which Python takes for a number.
        if not isinstance(operand, wanted) or isinstance(operand, bool):
            raise BadArgument(
                f"{target.value} of {key!r} is compared with {wanted.__name__}, not {operand!r}"
            )
        if isinstance(operand, int) and not -_NUMBER_END <= operand < _NUMBER_END:
            raise BadArgument(f"{target.value} of {key!r} is compared with {operand}, which it can never be")
        object.__setattr__(self, "key", as_key(key))
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "operator", operator)
        object.__setattr__(self, "operand", operand)

    @classmethod
    def absent(cls, key: bytes | str) -> "Compare":
        """The key is not there."""
        return cls(key, CompareTarget.CREATED, CompareOperator.EQUAL, 0)

    @classmethod
    def exists(cls, key: bytes | str) -> "Compare":
        """The key is there."""
        return cls(key, CompareTarget.CREATED, CompareOperator.GREATER, 0)

    @classmethod
    def created(cls, key: bytes | str, operator: OperatorText, revision: int) -> "Compare":
        """The revision at which the key was created: it stays the same until somebody deletes the key."""
        return cls(key, CompareTarget.CREATED, as_operator(operator), revision)

    @classmethod
    def revision(cls, key: bytes | str, operator: OperatorText, revision: int) -> "Compare":
        """The revision of the key's last put."""
        return cls(key, CompareTarget.REVISION, as_operator(operator), revision)

    @classmethod
    def version(cls, key: bytes | str, operator: OperatorText, version: int) -> "Compare":
        """How often the key was put since it was created."""
        return cls(key, CompareTarget.VERSION, as_operator(operator), version)

    @classmethod
    def value(cls, key: bytes | str, operator: OperatorText, value: bytes) -> "Compare":
        """The key's value, in the order of bytes."""
        return cls(key, CompareTarget.VALUE, as_operator(operator), value)

    @classmethod
    def lease(cls, key: bytes | str, operator: OperatorText, lease: int) -> "Compare":
        """The lease that the key is on; 0 for none."""
        return cls(key, CompareTarget.LEASE, as_operator(operator), lease)

    def holds(self, item: KeyValue | None) -> bool:
        """Whether the key as it is now (None: not there) fulfils the condition."""
        if self.target is CompareTarget.VALUE:
            return item is not None and _ordered(item.value, self.operator, self.operand)
        found: int = 0 if item is None else getattr(item, self.target.value)
        return _ordered(found, self.operator, self.operand)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """A key was put, at this revision."""

    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResult:
    """The number of deleted keys."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetResult:
    """The result of a `Get` inside a transaction; it sees what the transaction wrote before it."""

    items: tuple[KeyValue, ...]
    count: int
    more: bool


Result = PutResult | DeleteResult | GetResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a transaction: its branch (`then` on success), the revision after it, its results."""

    is_success: bool
    revision: int
    results: tuple[Result, ...]

    @property
    def items(self) -> tuple[KeyValue, ...]:
        """All keys that were read in it, in the order of its reads."""
        return tuple(item for read in self.results if isinstance(read, GetResult) for item in read.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The keys of a range. `revision` is the store's own now; `count` counts all, also beyond the limit."""

    revision: int
    items: tuple[KeyValue, ...]
    count: int
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of a key. A deleted `item` has only key and revision. `before` only if it was requested."""

    kind: EventKind
    item: KeyValue
    before: KeyValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchBatch:
    """All changes of one revision that a watcher wants, in the order they were made. Never split."""

    revision: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseInfo:
    """A lease: its remaining time, its granted time, and the keys on it, in order."""

    lease: int
    ttl_s: float
    granted_ttl_s: float
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """Which store answers, and how far it is."""

    engine: str
    name: str
    revision: int


def as_key(key: bytes | str) -> bytes:
    """A key as bytes. Raises `BadArgument` for an empty key and for one that is too long."""
    found = as_bytes(key)
    if not found:
        raise BadArgument("a key has at least one byte")
    return found


def as_bytes(text: bytes | str) -> bytes:
    """A key, a prefix or the end of a range, which may be empty, as bytes. Raises `BadArgument`."""
    # Nearly all are of this kind: each operation and each compare asks this (`make bench`, lock).
    if isinstance(text, bytes) and len(text) <= STORE_KEY_BYTES_MAX:
        return text
    try:
        found = text.encode("utf-8") if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise BadArgument(f"key {text!r} is no text that can be written as UTF-8") from error
    if not isinstance(found, bytes):
        raise BadArgument(f"a key is bytes or text, not {type(found).__name__}")
    if len(found) > STORE_KEY_BYTES_MAX:
        raise BadArgument(f"a key of {len(found)} bytes: it has at most {STORE_KEY_BYTES_MAX}")
    return found


def as_lease(lease: int) -> int:
    """A lease's number, or 0 for none. Raises `BadArgument`."""
    if not 0 <= lease < _NUMBER_END:
        raise BadArgument(f"lease {lease}: give what grant() returned, or 0 for none")
    return lease


def as_revision(revision: int) -> int:
    """A revision, or 0 for none in particular. Raises `BadArgument` for a number that no store can reach."""
    if not 0 <= revision < _NUMBER_END:
        raise BadArgument(f"revision {revision}: give one that the store told you, or 0 for now")
    return revision


def as_operator(text: str) -> CompareOperator:
    """The operator with this spelling. Raises `BadArgument`."""
    try:
        return _OPERATORS[text]
    except (KeyError, TypeError) as error:
        raise BadArgument(f"operator {text!r}: write =, !=, < or >") from error


def prefix_range(prefix: bytes | str) -> tuple[bytes, bytes]:
    """The key and the range end that include every key with this prefix. Raises `BadArgument`."""
    start = as_bytes(prefix)
    if not start:
        return FROM_KEY, FROM_KEY
    # The first key after all with the prefix: the last byte that can grow grows, and full bytes after it go.
    stem = start.rstrip(b"\xff")
    return start, stem[:-1] + bytes((stem[-1] + 1,)) if stem else FROM_KEY


def is_within(key: bytes, start: bytes, range_end: bytes) -> bool:
    """Whether a key is in a range."""
    if not range_end:
        return key == start
    return key >= start and (range_end == FROM_KEY or key < range_end)


def check_commit(
    compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation]
) -> None:
    """Raise `BadArgument` for a transaction that is too large, or in which a branch writes a key twice."""
    for part, what in ((compares, "compares"), (then, "operations"), (otherwise, "operations")):
        if len(part) > STORE_TXN_COUNT_MAX:
            raise BadArgument(f"a transaction with {len(part)} {what}: at most {STORE_TXN_COUNT_MAX}")
    # Loops, and no sums over generators: every commit is checked (`make bench`, lock).
    bytes_count = 0
    for compare in compares:
        operand = compare.operand
        bytes_count += len(compare.key) + (len(operand) if isinstance(operand, bytes) else 8)
    for branch in (then, otherwise):
        for operation in branch:
            bytes_count += len(operation.key)
            bytes_count += len(operation.value if isinstance(operation, Put) else operation.range_end)
        if len(branch) > 1:
            _check_branch(branch)
    if bytes_count > STORE_TXN_BYTES_MAX:
        raise BadArgument(f"a transaction of {bytes_count} bytes: it has at most {STORE_TXN_BYTES_MAX}")


def _check_branch(branch: Sequence[Operation]) -> None:
    deletes = [operation for operation in branch if isinstance(operation, Delete)]
    put: set[bytes] = set()
    for operation in branch:
        if not isinstance(operation, Put):
            continue
        if operation.key in put:
            raise BadArgument(f"a transaction puts {operation.key!r} twice")
        put.add(operation.key)
        for delete in deletes:
            if is_within(operation.key, delete.key, delete.range_end):
                raise BadArgument(f"a transaction puts {operation.key!r} and deletes it too")


def _ordered(found: int | bytes, operator: CompareOperator, operand: int | bytes) -> bool:
    if operator is CompareOperator.EQUAL:
        return found == operand
    if operator is CompareOperator.NOT_EQUAL:
        return found != operand
    # Both are of one type: `Compare` made sure of it.
    if operator is CompareOperator.LESS:
        return found < operand  # type: ignore[operator]
    return found > operand  # type: ignore[operator]
