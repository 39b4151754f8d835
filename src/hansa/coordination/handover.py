"""A hand-over: its record in the store, and who may write which step of it, when. Pure.

Each thing that can be handed over has one record, and at most one hand-over that is open. Each step is one
transaction that compares the record's revision; the drivers commit it, and this machine says what it is:

- OFFERED, by whoever asks, to a node, while somebody owns the thing.
- PREPARED, by the new owner: it is there, and ready to take.
- SEALED, by the old owner, with the state. Before this is sent the old owner has stopped to act, for good,
  unless it writes WITHDRAWN itself.
- TAKEN moves the ownership in the same transaction. The new owner writes it; of what a leader places, the
  leader does.
- DONE, by the new owner, when it has read the state.
- WITHDRAWN instead of any of them until it is TAKEN, by who must answer for it then: before SEALED by anybody
  who sees that it cannot go on; after SEALED by the old owner alone, or the leader.

Whoever is gone is replaced. An old owner that is gone before SEALED is followed as after any crash, and the
record is closed. A new owner that is gone after SEALED gives the thing back to the old one. If both are gone,
or the new one before DONE, whoever has its turn next (the heir) writes TAKEN and is given the sealed state.

No wall clock decides: each who takes part measures `timeout` from when it first saw the record.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

from hansa.coordination.member import from_json
from hansa.errors import BadRecord, invariant
from hansa.limits import HANDOVER_PAST_COUNT


class HandoverStep(Enum):
    """How far a hand-over is."""

    OFFERED = "offered"
    PREPARED = "prepared"
    SEALED = "sealed"
    TAKEN = "taken"
    DONE = "done"
    WITHDRAWN = "withdrawn"

    @property
    def is_open(self) -> bool:
        """Whether something is still to come."""
        return bool(NEXT_STEPS[self])

    @property
    def is_early(self) -> bool:
        """Whether the old owner still acts."""
        return self in (HandoverStep.OFFERED, HandoverStep.PREPARED)


NEXT_STEPS: Final[Mapping[HandoverStep, frozenset[HandoverStep]]] = {
    HandoverStep.OFFERED: frozenset({HandoverStep.PREPARED, HandoverStep.WITHDRAWN}),
    HandoverStep.PREPARED: frozenset({HandoverStep.SEALED, HandoverStep.WITHDRAWN}),
    HandoverStep.SEALED: frozenset({HandoverStep.TAKEN, HandoverStep.WITHDRAWN}),
    # Again by an heir, when who took it is gone.
    HandoverStep.TAKEN: frozenset({HandoverStep.TAKEN, HandoverStep.DONE}),
    HandoverStep.DONE: frozenset(),
    HandoverStep.WITHDRAWN: frozenset(),
}


# ---- the record ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PastHandover:
    """An earlier hand-over of the same thing, in short. `ended` is a wall time, for display."""

    number: int
    step: HandoverStep
    source: str
    target: str
    epoch: int
    next_epoch: int
    reason: str
    trouble: str
    ended: float

    def to_object(self) -> dict[str, Any]:
        """As JSON is made of it."""
        return {name: getattr(self, name) for name in self.__slots__} | {"step": self.step.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The record of a hand-over: of what, from whom to whom, why, how far it is, and since when.

    `kind` and `name` say of what; `number` counts the hand-overs of this thing. `source` and `target` are
    nodes. `asked_by` is who asked from outside, empty if the owner itself offered it. `epoch` is the old
    owner's, `next_epoch` the new one's, 0 until it is taken. The keys are those of their claims. `times` are
    wall times of the steps, for display. `state` is what is handed on, until it is done; if that is large
    `blob` names it instead. `size` is how many bytes it had. `retries` counts what was asked of the store
    more than once. `trouble` says why it was withdrawn, or what was lost. `past` has the hand-overs before
    this one, the newest first. `revision` is the store's when this was read from it.
    """

    kind: str
    name: str
    number: int
    step: HandoverStep
    source: str
    target: str
    epoch: int
    owner_key: str
    timeout: float
    asked_by: str = ""
    reason: str = ""
    next_epoch: int = 0
    target_key: str = ""
    taken_by: str = ""
    times: Mapping[HandoverStep, float] = field(default_factory=dict)
    state: bytes = b""
    blob: str = ""
    size: int = 0
    retries: int = 0
    trouble: str = ""
    past: tuple[PastHandover, ...] = ()
    revision: int = field(default=0, compare=False)

    @property
    def is_open(self) -> bool:
        """Whether something is still to come."""
        return self.step.is_open

    @property
    def what(self) -> str:
        """What is handed over, to say it in errors."""
        return f"{self.kind} {self.name!r}"

    @property
    def reached(self) -> HandoverStep:
        """The step that it is at; of one that was withdrawn, the step that it was at before."""
        before = [step for step in self.times if step is not HandoverStep.WITHDRAWN]
        return max(before, key=list(HandoverStep).index) if before else self.step

    def is_of(self, key: bytes, epoch: int) -> bool:
        """Whether the claim with this key and epoch is the owner, as far as this record goes.

        Both count: a key's name may come again when the claim before was given back.
        """
        if self.step in (HandoverStep.TAKEN, HandoverStep.DONE):
            return (self.target_key.encode(), self.next_epoch) == (key, epoch)
        return (self.owner_key.encode(), self.epoch) == (key, epoch)

    def to_object(self) -> dict[str, Any]:
        """As JSON is made of it, for people and for programs."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "revision"}
        return found | {
            "step": self.step.value,
            "times": {step.value: at for step, at in self.times.items()},
            "state": b64encode(self.state).decode(),
            "past": [each.to_object() for each in self.past],
        }

    def encode(self) -> bytes:
        return json.dumps(self.to_object()).encode()

    @classmethod
    def decode(cls, value: bytes, *, revision: int = 0) -> Handover:
        """Unknown fields are ignored. Raises `BadRecord`."""
        found = from_json(value, "a hand-over")
        try:
            fields = {name: found[name] for name in cls.__slots__ if name != "revision"}
            fields["step"] = step = HandoverStep(fields["step"])
            fields["times"] = {HandoverStep(name): float(at) for name, at in fields["times"].items()}
            fields["state"] = b64decode(fields["state"], validate=True)
            fields["past"] = tuple(_past(each) for each in fields["past"])
            _check_types(cls, fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRecord(f"no hand-over: {error!r:.200}") from error
        if step is HandoverStep.TAKEN and not fields["next_epoch"]:
            # It is the revision of this step: whoever wrote it could not know it yet.
            fields["next_epoch"] = revision
        return cls(**fields, revision=revision)


def _past(found: Any) -> PastHandover:
    fields = {name: found[name] for name in PastHandover.__slots__}
    fields["step"] = HandoverStep(fields["step"])
    _check_types(PastHandover, fields)
    return PastHandover(**fields)


_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {"str": str, "int": int, "float": (int, float)}


def _check_types(kind: type, fields: Mapping[str, Any]) -> None:
    for name, annotation in kind.__annotations__.items():
        wanted = _TYPES.get(annotation)
        if wanted is not None and name in fields and not isinstance(fields[name], wanted):
            raise ValueError(f"{name} is {fields[name]!r:.50}")


# ---- the steps ----------------------------------------------------------------------------------------


def offered(
    before: Handover | None,
    *,
    kind: str,
    name: str,
    source: str,
    target: str,
    epoch: int,
    owner_key: str,
    timeout: float,
    at: float,
    asked_by: str = "",
    reason: str = "",
) -> Handover:
    """A new hand-over, after the one that the record tells of now. One that is open there is given up."""
    number = 1
    past: tuple[PastHandover, ...] = ()
    if before is not None:
        if before.is_open:
            trouble = "another one was begun"
            before = replace(before, step=HandoverStep.WITHDRAWN, trouble=trouble)
        number, past = before.number + 1, (_summary(before, at), *before.past)[:HANDOVER_PAST_COUNT]
    return Handover(
        kind=kind,
        name=name,
        number=number,
        step=HandoverStep.OFFERED,
        source=source,
        target=target,
        epoch=epoch,
        owner_key=owner_key,
        timeout=timeout,
        asked_by=asked_by,
        reason=reason,
        times={HandoverStep.OFFERED: at},
        past=past,
    )


def advanced(record: Handover, step: HandoverStep, *, at: float, **changes: Any) -> Handover:
    """The record after its next step. The state stays until it was read, or is of no use any more."""
    invariant(step in NEXT_STEPS[record.step], f"{record.what}: {step} after {record.step}")
    if not step.is_open:
        changes |= {"state": b"", "blob": ""}
    return replace(record, step=step, times={**record.times, step: at}, **changes)


def _summary(record: Handover, at: float) -> PastHandover:
    return PastHandover(
        number=record.number,
        step=record.step,
        source=record.source,
        target=record.target,
        epoch=record.epoch,
        next_epoch=record.next_epoch,
        reason=record.reason,
        trouble=record.trouble,
        ended=record.times.get(record.step, at),
    )


# ---- who may write what -------------------------------------------------------------------------------


class Actor(Enum):
    """Who looks at a record, and may write its next step."""

    OWNER = auto()
    """Who gives it."""
    TARGET = auto()
    """Who is to have it, and takes it; and who has taken it."""
    PLACED = auto()
    """Who is to have it, where a leader moves it."""
    HEIR = auto()
    """Whose turn has come, because all before it are gone."""
    LEADER = auto()
    """Who places it on nodes."""
    OUTSIDER = auto()
    """Anybody else: who asked for it, or looks whether it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What somebody who looks at a record knows besides. `refusal` is why it will not go on with it.

    Of one that was taken, the target is who took it.
    """

    is_owner_here: bool = True
    is_target_here: bool = True
    is_over_time: bool = False
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The step to write now; of WITHDRAWN, why."""

    step: HandoverStep
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """Write this step if this is so."""

    when: Callable[[Facts], bool]
    step: HandoverStep
    trouble: Callable[[Handover, Facts], str] = lambda _record, _facts: ""


def _always(facts: Facts) -> bool:
    return True


_REFUSED = _Rule(
    when=lambda facts: bool(facts.refusal),
    step=HandoverStep.WITHDRAWN,
    trouble=lambda _record, facts: facts.refusal,
)
_TOO_LATE = _Rule(
    when=lambda facts: facts.is_over_time,
    step=HandoverStep.WITHDRAWN,
    trouble=lambda record, _facts: f"{_LATE[record.step]} within {record.timeout:g} s",
)
_LATE: Final[Mapping[HandoverStep, str]] = {
    HandoverStep.OFFERED: "the new owner was not there",
    HandoverStep.PREPARED: "the old owner did not give it",
    HandoverStep.SEALED: "the new owner did not take it",
}
_OWNER_GONE = _Rule(
    when=lambda facts: not facts.is_owner_here,
    step=HandoverStep.WITHDRAWN,
    trouble=lambda _record, _facts: "the old owner is gone",
)
_TARGET_GONE = _Rule(
    when=lambda facts: not facts.is_target_here,
    step=HandoverStep.WITHDRAWN,
    trouble=lambda _record, _facts: "the new owner is gone",
)
_FOLLOWED = _Rule(
    when=_always, step=HandoverStep.WITHDRAWN, trouble=lambda _record, _facts: "the old owner is gone"
)
_PREPARE = _Rule(when=_always, step=HandoverStep.PREPARED)
_SEAL = _Rule(when=_always, step=HandoverStep.SEALED)
_TAKE = _Rule(when=_always, step=HandoverStep.TAKEN)
_FINISH = _Rule(when=_always, step=HandoverStep.DONE)
_PLACE = _Rule(when=lambda facts: facts.is_target_here, step=HandoverStep.TAKEN)
_REPLACE = _Rule(when=lambda facts: not facts.is_target_here, step=HandoverStep.TAKEN)
_PLACED_BACK = _Rule(
    when=lambda facts: facts.is_owner_here and not facts.is_target_here,
    step=HandoverStep.WITHDRAWN,
    trouble=lambda _record, _facts: "the new owner is gone",
)

# For each step and each who looks at it the first rule that fits; none: there is nothing to write.
RULES: Final[Mapping[HandoverStep, Mapping[Actor, tuple[_Rule, ...]]]] = {
    HandoverStep.OFFERED: {
        Actor.OWNER: (_REFUSED, _TOO_LATE),
        Actor.TARGET: (_REFUSED, _TOO_LATE, _PREPARE),
        Actor.PLACED: (_REFUSED, _TOO_LATE, _PREPARE),
        Actor.HEIR: (_FOLLOWED,),
        Actor.LEADER: (_REFUSED, _OWNER_GONE, _TARGET_GONE, _TOO_LATE),
        Actor.OUTSIDER: (_REFUSED, _OWNER_GONE, _TOO_LATE),
    },
    HandoverStep.PREPARED: {
        Actor.OWNER: (_REFUSED, _TARGET_GONE, _TOO_LATE, _SEAL),
        Actor.TARGET: (_REFUSED, _TOO_LATE),
        Actor.PLACED: (_REFUSED, _TOO_LATE),
        Actor.HEIR: (_FOLLOWED,),
        Actor.LEADER: (_REFUSED, _OWNER_GONE, _TARGET_GONE, _TOO_LATE),
        Actor.OUTSIDER: (_REFUSED, _OWNER_GONE, _TOO_LATE),
    },
    HandoverStep.SEALED: {
        Actor.OWNER: (_TARGET_GONE, _TOO_LATE),
        Actor.TARGET: (_TAKE,),
        Actor.HEIR: (_TAKE,),
        Actor.LEADER: (_PLACE, _PLACED_BACK, _TAKE),
    },
    HandoverStep.TAKEN: {
        Actor.TARGET: (_FINISH,),
        Actor.PLACED: (_FINISH,),
        Actor.HEIR: (_TAKE,),
        Actor.LEADER: (_REPLACE,),
    },
    HandoverStep.DONE: {},
    HandoverStep.WITHDRAWN: {},
}


def decide(record: Handover, actor: Actor, facts: Facts) -> Decision | None:
    """What this actor must write now; None: nothing, wait."""
    for rule in RULES[record.step].get(actor, ()):
        if rule.when(facts):
            return Decision(step=rule.step, trouble=rule.trouble(record, facts))
    return None
