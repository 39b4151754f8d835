"""A provider's registrations with a time that the test sets, and a registry whose answers it gives."""

from typing import TypeVar

from hansa.chance import Chance
from hansa.presence.provider_info import Registration
from hansa.presence.registrations import Dial, Effect, Registered, Registrations, TellRegistry
from hansa.wire.registry import AckStatus, Heartbeat, Register, RegisterAck, Unregister, UpdateWeight

T = TypeVar("T")

A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"
HERE = "tcp://here:5555"
BEAT_S = 5.0
OK = AckStatus.OK


class Played:
    """A machine, its time, and a registry's answers."""

    def __init__(self, *registries: str, seed: int = 1, interval_s: float | None = BEAT_S) -> None:
        self.machine = Registrations(registries, heartbeat_interval_s=interval_s, chance=Chance.seeded(seed))
        self.now = 1_000.0

    def start(self) -> list[Effect]:
        return self.machine.start(now=self.now)

    def connected(self) -> list[Effect]:
        return self.machine.connected(now=self.now)

    def lost(self, problem: str = "gone") -> list[Effect]:
        return self.machine.disconnected(problem, now=self.now)

    def want(self, service: str = "pay", endpoint: str = HERE, weight: int = 1) -> list[Effect]:
        return self.machine.want(service, endpoint, weight, now=self.now)

    def unwant(self, service: str = "pay") -> list[Effect]:
        return self.machine.unwant(service, now=self.now)

    def answer(
        self,
        effects: list[Effect],
        status: AckStatus = OK,
        error: str = "",
        *,
        token: bool = True,
        timeout_ms: int | None = None,
    ) -> list[Effect]:
        """The registry answers the one message in these effects."""
        message = sent(effects)
        ack = RegisterAck(
            status=status,
            endpoint=message.endpoint,
            error=error,
            token=message.token if token else None,
            heartbeat_timeout_ms=timeout_ms,
        )
        return self.machine.ack(ack, now=self.now)

    def pass_time(self) -> tuple[float, list[Effect]]:
        """Let time go to the next deadline; how long that was, and what happened."""
        deadline = self.machine.deadline()
        assert deadline is not None
        passed_s, self.now = deadline - self.now, deadline
        return passed_s, self.machine.tick(now=self.now)

    def registered(self, service: str = "pay") -> Registration:
        """Start, connect and register; the outcome."""
        self.start()
        self.connected()
        return outcome(self.answer(self.want(service)), Registered).registration


def sent(effects: list[Effect]) -> Register | Unregister | Heartbeat | UpdateWeight:
    messages = [effect.message for effect in effects if isinstance(effect, TellRegistry)]
    assert len(messages) == 1, effects
    return messages[0]


def outcome(effects: list[Effect], kind: type[T]) -> T:
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, effects
    return found[0]


def dialled(effects: list[Effect]) -> list[str]:
    return [effect.registry for effect in effects if isinstance(effect, Dial)]
