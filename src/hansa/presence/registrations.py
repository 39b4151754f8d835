"""The registrations of one provider: which registry is active, what it was told, and what it answered. Pure.

Theory of operation. A provider keeps a list of registries and speaks to one of them. When that registry
cannot be reached, disconnects or does not answer, the provider goes to the next in the list, round and round:
at once after one that worked, else after a delay that doubles. Every wanted service is registered again with
the new one.

Three delays spread the load of many providers. The very first registration of a service is sent at once.
After a failover, the services are registered again within `RETURN_S_MAX`. If a registry says that it does not
have an entry, the entry is registered again within `REREGISTER_S_MAX`. If a registry refuses a service which
some registry once accepted, it is asked again, ever more slowly, because the provider that holds the entry
may leave.

REGISTER_ACK names neither its question nor the service, so questions carry tokens. A registry without tokens
answers REGISTER only, in order: its answer belongs to the oldest REGISTER, and its silence about anything
else means yes. Heartbeats carry a token too, and a registry that lacks the entry answers with that token.

When a registry accepts an entry, it says after how much silence it removes it. Heartbeats are sent three
times as often, or at the interval that the provider was given if that is shorter. Each registry may have
another timeout.

The driver stamps its messages, so that a registry that reads one late knows that it is late. A registry that
knows a higher epoch, from a clock that is ahead, answers "behind" and names that epoch. The next stamp is
beyond it, and the question is repeated at once, a few times in a row; after that, "behind" is a refusal like
any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from hansa.chance import Chance
from hansa.limits import (
    BEHIND_MAX,
    FAILOVER_JITTER,
    FAILOVER_S_MAX,
    FAILOVER_S_MIN,
    GONE_SERVICES_MAX,
    HEARTBEAT_INTERVAL_S,
    REGISTRY_ANSWER_S_MAX,
    REREGISTER_S_MAX,
    RETURN_S_MAX,
)
from hansa.presence.provider_info import ProviderState, Registration, RegistrationTally, beat_s
from hansa.presence.statements import Stamps
from hansa.runtime.backoff import Backoff
from hansa.wire.registry import AckStatus, Heartbeat, Register, RegisterAck, Unregister, UpdateWeight

_UINT32_MAX = 0xFFFF_FFFF
# The beginning of a registry's answer to a heartbeat when it has no such entry.
_MISSING = "not registered"
# The beginning when it knows a later word about the entry.
_BEHIND = "behind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Connect to this registry, and to no other."""

    registry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUp:
    """End the connection to the active registry, because it does not answer."""

    registry: str


ProviderMessage: TypeAlias = Register | Unregister | Heartbeat | UpdateWeight


@dataclass(frozen=True, slots=True, kw_only=True)
class TellRegistry:
    """Tell the active registry."""

    message: ProviderMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The active registry has the service, with this weight."""

    registration: Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The registry refused what the program asked for."""

    registration: Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """No registry has our entry of the service any longer, as far as we can know."""

    service: str


Effect = Dial | HangUp | TellRegistry | Registered | Refused | Unregistered


class DialPhase(Enum):
    """The state of the connection to the active registry."""

    IDLE = "no registry to dial"
    DIALLING = "until it has shaken hands"
    UP = "connected"
    RESTING = "until the next dial"


class EntryStep(Enum):
    """The state of one entry at the active registry."""

    DUE = "REGISTER goes out at due_at"
    ASKED = "REGISTER is out"
    REGISTERED = "HEARTBEAT goes out at due_at"


@dataclass(slots=True, kw_only=True)
class WantedService:
    """A service that must be registered, and its state."""

    service: str
    endpoint: str
    weight: int
    backoff: Backoff
    step: EntryStep = EntryStep.DUE
    due_at: float = 0.0
    token: int = 0
    """The token of the newest REGISTER, then that of the heartbeats."""
    entered: str = ""
    """The endpoint as the active registry has it."""
    is_sent: bool = False
    """Whether some registry may have it."""
    is_accepted: bool = False
    """Whether some registry accepted it once."""
    is_asked_for: bool = True
    """Whether the program waits for the answer."""
    behind_count: int = 0
    """How often in a row REGISTER was behind."""
    answer: Registration | None = None
    """A registry's last answer about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What remains of an entry that is no longer wanted."""

    answer: Registration | None
    is_accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A question that a registry has not answered yet."""

    message: Register | Unregister | UpdateWeight
    answer_by: float


class Registrations:
    """Decides what to tell which registry and when. Every input returns its effects, in order."""

    def __init__(
        self, registries: Iterable[str] = (), *, heartbeat_interval_s: float | None, chance: Chance
    ) -> None:
        """Without an interval it sends heartbeats every 5 s, or as often as the registry needs them."""
        self.tally = RegistrationTally()
        self.stamps = Stamps()
        """For the driver: every message but heartbeats carries a stamp."""
        self.problems: dict[str, str] = {}
        """For each registry that failed since it last worked: the problem."""
        self._registries: list[str] = list(dict.fromkeys(registries))
        self._given_interval_s = heartbeat_interval_s
        self._beat_s = self._interval_s_max = (
            HEARTBEAT_INTERVAL_S if heartbeat_interval_s is None else heartbeat_interval_s
        )
        self._chance = chance
        self._backoff = self._new_backoff()
        self._phase = DialPhase.IDLE
        self._until = 0.0
        self._turn = 0
        self._dialled_at = 0.0
        self._worked = False
        self._knows_tokens: bool | None = None
        self._last_token = 0
        self._entries: dict[str, WantedService] = {}
        self._leaving: dict[tuple[str, str], int] = {}
        """Entries that are being taken back, and how often that was behind."""
        self._questions: dict[int, OpenQuestion] = {}
        self._gone: dict[str, Gone] = {}
        self._effects: list[Effect] = []
        self._is_started = False

    # -- what is

    @property
    def registries(self) -> tuple[str, ...]:
        return tuple(self._registries)

    @property
    def registry(self) -> str | None:
        """The active registry, while it is connected."""
        return self._registries[self._turn] if self._phase is DialPhase.UP else None

    @property
    def services(self) -> tuple[str, ...]:
        """The wanted services, registered or not."""
        return tuple(self._entries)

    def is_accepted(self, service: str) -> bool:
        """Whether some registry has accepted the service since it was wanted."""
        entry = self._entries.get(service)
        return entry is not None and entry.is_accepted

    def registration(self, service: str) -> Registration | None:
        """The last answer about this service; of former services only the last few are known."""
        known = self._entries.get(service) or self._gone.get(service)
        return None if known is None else known.answer

    def state(self, service: str) -> ProviderState:
        entry = self._entries.get(service)
        if entry is not None and entry.step is EntryStep.REGISTERED:
            return ProviderState.REGISTERED
        if entry is None and (gone := self._gone.get(service)) is not None and gone.is_accepted:
            return ProviderState.UNREGISTERED
        return ProviderState.CONNECTED if self._phase is DialPhase.UP else ProviderState.BOUND

    def deadline(self) -> float | None:
        """When `tick` has something to do, if nothing else happens before."""
        match self._phase:
            case DialPhase.IDLE:
                return None
            case DialPhase.DIALLING | DialPhase.RESTING:
                return self._until
            case DialPhase.UP:
                due = [entry.due_at for entry in self._entries.values() if entry.step is not EntryStep.ASKED]
                due += [question.answer_by for question in self._questions.values()]
                return min(due, default=None)

    # -- what the program wants

    def start(self, *, now: float) -> list[Effect]:
        """Begin with the first registry."""
        self._is_started = True
        if self._registries and self._phase is DialPhase.IDLE:
            self._dial(now)
        return self._taken()

    def add_registry(self, registry: str, *, now: float) -> list[Effect]:
        """Add a registry to choose from, as the last in line."""
        if registry not in self._registries:
            self._registries.append(registry)
        return self.start(now=now) if self._is_started else []

    def want(self, service: str, endpoint: str, weight: int, *, now: float) -> list[Effect]:
        """Register this service, or update it, and keep it registered until `unwant`."""
        entry = self._entries.get(service)
        if entry is None:
            entry = WantedService(
                service=service, endpoint=endpoint, weight=weight, backoff=self._new_backoff()
            )
            self._entries[service] = entry
            if (gone := self._gone.pop(service, None)) is not None:
                entry.answer = gone.answer
        elif entry.endpoint != endpoint:
            if entry.is_sent:
                self._leave(entry, now)
            entry.endpoint, entry.entered = endpoint, ""
        entry.weight = weight
        entry.is_asked_for = True
        entry.step = EntryStep.DUE
        entry.due_at = now
        if self._leaving.pop((service, endpoint), None) is not None:
            # Overtaken by this wish: a caller that waits for it must not wait in vain.
            self._effects.append(Unregistered(service=service))
        return self.tick(now=now)

    def unwant(self, service: str, *, now: float) -> list[Effect]:
        """Take the service back from every registry that may have it."""
        entry = self._forget(service)
        if entry.is_sent:
            self._leave(entry, now)
        else:
            self._effects.append(Unregistered(service=service))
        return self._taken()

    def reweight(self, service: str, weight: int, *, now: float) -> list[Effect]:
        """Change the weight. `Registered` is returned once the registry has it, whichever message told it."""
        entry = self._entries[service]
        entry.weight = weight
        if entry.step is EntryStep.REGISTERED:
            message = UpdateWeight(
                service=service, endpoint=entry.entered, weight=weight, token=self._new_token()
            )
            self._ask(message, now)
        elif entry.step is EntryStep.ASKED:
            entry.step, entry.due_at = EntryStep.DUE, now
        return self.tick(now=now)

    # -- what happens

    def connected(self, *, now: float) -> list[Effect]:
        """The dialled registry has shaken hands."""
        self._phase = DialPhase.UP
        self._knows_tokens = None
        self._beat_s = self._interval_s_max
        self._questions.clear()
        if not self._entries:
            self._success()
        for entry in self._entries.values():
            spread_s = self._chance.uniform(0.0, RETURN_S_MAX) if entry.is_accepted else 0.0
            entry.step, entry.due_at, entry.entered = EntryStep.DUE, now + spread_s, ""
        for service, endpoint in list(self._leaving):
            self._ask(Unregister(service=service, endpoint=endpoint, token=self._new_token()), now)
        return self.tick(now=now)

    def disconnected(self, problem: str, *, now: float) -> list[Effect]:
        """The dialled or connected registry is gone."""
        if self._phase in (DialPhase.DIALLING, DialPhase.UP):
            self._lose(problem, now)
        return self.tick(now=now)

    def ack(self, ack: RegisterAck, *, now: float) -> list[Effect]:
        """The active registry has answered, or said something unasked."""
        if self._phase is not DialPhase.UP:
            self.tally.stray_answers_count += 1
            return []
        question = None
        if ack.token is not None:
            self._knows_tokens = True
            question = self._questions.pop(ack.token, None)
        elif (token := self._oldest_register(ack)) is not None:
            self._knows_tokens = False
            question = self._questions.pop(token)
        match question:
            case None:
                self._hear_unasked(ack, now)
            case OpenQuestion(message=Register() as message):
                self._hear_registered(message, ack, now)
            case OpenQuestion(message=UpdateWeight() as message):
                self._hear_reweighted(message, ack, now)
            case OpenQuestion(message=Unregister() as message):
                self._hear_unregistered(message, ack, now)
        return self.tick(now=now)

    def tick(self, *, now: float) -> list[Effect]:
        """Do everything that is due."""
        if self._phase is DialPhase.UP:
            self._check_answers(now)
        elif self._phase is DialPhase.DIALLING and self._until <= now:
            self._give_up(f"did not shake hands within {REGISTRY_ANSWER_S_MAX} s", now)
        if self._phase is DialPhase.RESTING and self._until <= now:
            self._dial(now)
        if self._phase is DialPhase.UP:
            for entry in self._entries.values():
                if entry.due_at <= now:
                    self._speak(entry, now)
        return self._taken()

    # -- the active registry

    def _dial(self, now: float) -> None:
        self._phase = DialPhase.DIALLING
        self._dialled_at = now
        self._until = now + REGISTRY_ANSWER_S_MAX
        self._effects.append(Dial(registry=self._registries[self._turn]))

    def _give_up(self, problem: str, now: float) -> None:
        self.tally.unanswered_count += 1
        self._effects.append(HangUp(registry=self._registries[self._turn]))
        self._lose(problem, now)

    def _lose(self, problem: str, now: float) -> None:
        self.problems[self._registries[self._turn]] = problem
        if self._phase is DialPhase.UP:
            self.tally.failovers_count += 1
        else:
            self.tally.dials_failed_count += 1
        self._questions.clear()
        for entry in self._entries.values():
            entry.step = EntryStep.DUE
        self._phase = DialPhase.RESTING
        self._turn = (self._turn + 1) % len(self._registries)
        if self._worked:
            # At once, as the specification wants; but a registry that accepts all connections and then ends
            # them must not be dialled as fast as the network allows.
            self._until = max(now, self._dialled_at + FAILOVER_S_MIN)
        else:
            self._until = now + self._backoff.next_s()
        self._worked = False

    def _success(self) -> None:
        self._worked = True
        self._backoff.reset()
        self.problems.pop(self._registries[self._turn], None)

    # -- speaking

    def _speak(self, entry: WantedService, now: float) -> None:
        if entry.step is EntryStep.DUE:
            entry.step, entry.is_sent, entry.token = EntryStep.ASKED, True, self._new_token()
            self._ask(
                Register(
                    service=entry.service, endpoint=entry.endpoint, weight=entry.weight, token=entry.token
                ),
                now,
            )
        elif entry.step is EntryStep.REGISTERED:
            entry.due_at = now + self._beat_s
            self.tally.heartbeats_count += 1
            self._effects.append(
                TellRegistry(
                    message=Heartbeat(service=entry.service, endpoint=entry.entered, token=entry.token)
                )
            )

    def _leave(self, entry: WantedService, now: float) -> None:
        endpoint = entry.entered or entry.endpoint
        self._leaving[entry.service, endpoint] = 0
        if self._phase is not DialPhase.UP:
            return
        message = Unregister(service=entry.service, endpoint=endpoint, token=self._new_token())
        if self._knows_tokens is False:
            self._effects.append(TellRegistry(message=message))
            self._unregistered(message)  # Such a registry never answers this.
        else:
            self._ask(message, now)

    def _ask(self, message: Register | Unregister | UpdateWeight, now: float) -> None:
        if message.token is not None:
            self._questions[message.token] = OpenQuestion(
                message=message, answer_by=now + REGISTRY_ANSWER_S_MAX
            )
        self._effects.append(TellRegistry(message=message))

    def _check_answers(self, now: float) -> None:
        overdue = [token for token, question in self._questions.items() if question.answer_by <= now]
        for token in overdue:
            message = self._questions[token].message
            if isinstance(message, Register) or self._knows_tokens:
                self._give_up(f"did not answer within {REGISTRY_ANSWER_S_MAX} s", now)
                return
            # It knows no tokens, and such a registry does not confirm this.
            del self._questions[token]
            if isinstance(message, Unregister):
                self._unregistered(message)
            else:
                self._hear_reweighted(message, RegisterAck(status=AckStatus.OK), now)

    # -- listening

    def _oldest_register(self, ack: RegisterAck) -> int | None:
        """The REGISTER that an answer without a token answers; none, if this registry would use tokens."""
        if self._knows_tokens or (ack.status is AckStatus.OTHER and ack.error.startswith(_MISSING)):
            return None
        registers = (t for t, question in self._questions.items() if isinstance(question.message, Register))
        return next(registers, None)

    def _hear_registered(self, message: Register, ack: RegisterAck, now: float) -> None:
        entry = self._entries.get(message.service)
        if entry is None or entry.step is not EntryStep.ASKED or entry.token != message.token:
            return  # It is no longer wanted, or was asked again meanwhile: the newer question counts.
        if self._is_behind(ack) and entry.behind_count < BEHIND_MAX:
            entry.behind_count += 1
            entry.step, entry.due_at = EntryStep.DUE, now
            return
        entry.behind_count = 0
        registration = Registration(
            service=entry.service,
            endpoint=ack.endpoint or entry.endpoint,
            weight=message.weight,
            registry=self._registries[self._turn],
            status=ack.status,
            error=ack.error,
        )
        if ack.status is AckStatus.OK and (problem := self._agree(ack)) and not entry.is_accepted:
            entry.entered = registration.endpoint
            registration = replace(registration, status=AckStatus.OTHER, error=problem)
            self._leave(entry, now)
        entry.answer = registration
        if registration.status is not AckStatus.OK:
            self._hear_refused(entry, registration, now)
            return
        if entry.is_accepted:
            self.tally.reregistrations_count += 1
        else:
            self.tally.registrations_count += 1
        entry.step, entry.due_at = EntryStep.REGISTERED, now + self._beat_s
        entry.entered, entry.token = registration.endpoint, self._new_token()
        entry.is_accepted, entry.is_asked_for = True, False
        entry.backoff.reset()
        self._success()
        self._effects.append(Registered(registration=registration))

    def _agree(self, ack: RegisterAck) -> str:
        """Send heartbeats as often as the registry's timeout needs; returns what is wrong if that cannot be.

        That is for the program that registers. After a failover the entry is kept up all the same.
        """
        if ack.heartbeat_timeout_ms is None:
            return ""
        timeout_s = ack.heartbeat_timeout_ms / 1000
        self._beat_s = beat_s(timeout_s, self._interval_s_max)
        if self._given_interval_s is None or self._given_interval_s < timeout_s:
            return ""
        return (
            f"a heartbeat interval of {self._given_interval_s:g} s, which this provider was given, does not "
            f"fit this registry, which removes who was silent for {timeout_s:g} s: give a shorter interval "
            "or none, or raise the registry's timeout"
        )

    def _hear_refused(self, entry: WantedService, registration: Registration, now: float) -> None:
        self.tally.refusals_count += 1
        entry.step, entry.due_at = EntryStep.DUE, now + entry.backoff.next_s()
        if entry.is_asked_for:
            entry.is_asked_for = False
            self._effects.append(Refused(registration=registration))
        if not entry.is_accepted:
            self._forget(entry.service)

    def _hear_reweighted(self, message: UpdateWeight, ack: RegisterAck, now: float) -> None:
        entry = self._entries.get(message.service)
        if entry is None or entry.answer is None or entry.step is not EntryStep.REGISTERED:
            return  # It is being registered again, with its current weight.
        if self._is_behind(ack):
            # Not with this weight: a newer one may be on its way, and a later stamp would undo it.
            entry.step, entry.due_at = EntryStep.DUE, now
            return
        if ack.status is not AckStatus.OK:
            self._miss(entry, now)
            return
        entry.answer = replace(entry.answer, weight=message.weight)
        if message.weight == entry.weight:  # Otherwise a newer weight is on its way.
            self._effects.append(Registered(registration=entry.answer))

    def _hear_unregistered(self, message: Unregister, ack: RegisterAck, now: float) -> None:
        key = (message.service, message.endpoint)
        if self._is_behind(ack) and self._leaving.get(key, BEHIND_MAX) < BEHIND_MAX:
            self._leaving[key] += 1
            self._ask(replace(message, token=self._new_token()), now)
            return
        # Whatever the reason: an entry that was not there is not there.
        self._unregistered(message)

    def _unregistered(self, message: Unregister) -> None:
        if self._leaving.pop((message.service, message.endpoint), None) is not None:
            self._effects.append(Unregistered(service=message.service))

    def _is_behind(self, ack: RegisterAck) -> bool:
        """Whether the registry knows a later word about the entry; the next stamp is then beyond that."""
        if ack.status is not AckStatus.OTHER or ack.stamp is None or not ack.error.startswith(_BEHIND):
            return False
        self.tally.behind_count += 1
        self.stamps.step_over(ack.stamp)
        return True

    def _hear_unasked(self, ack: RegisterAck, now: float) -> None:
        """The registry does not have an entry; without a token its endpoint says which."""
        lost = [
            entry
            for entry in self._entries.values()
            if ack.status is not AckStatus.OK
            and entry.step is EntryStep.REGISTERED
            and (
                entry.token == ack.token
                if ack.token is not None
                else ack.endpoint in ("", entry.entered, entry.endpoint)
            )
        ]
        if not lost:
            self.tally.stray_answers_count += 1
        for entry in lost:
            self._miss(entry, now)

    def _miss(self, entry: WantedService, now: float) -> None:
        self.tally.missing_count += 1
        entry.step = EntryStep.DUE
        entry.due_at = now + self._chance.uniform(0.0, REREGISTER_S_MAX)

    # -- small things

    def _forget(self, service: str) -> WantedService:
        """The service is no longer wanted.

        Its last answer is kept, until enough other services have followed.
        """
        entry = self._entries.pop(service)
        self._gone[service] = Gone(answer=entry.answer, is_accepted=entry.is_accepted)
        if len(self._gone) > GONE_SERVICES_MAX:
            del self._gone[next(iter(self._gone))]
        return entry

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _new_token(self) -> int:
        self._last_token = (self._last_token + 1) & _UINT32_MAX
        return self._last_token

    def _new_backoff(self) -> Backoff:
        return Backoff(
            s_min=FAILOVER_S_MIN, s_max=FAILOVER_S_MAX, jitter=FAILOVER_JITTER, chance=self._chance
        )
