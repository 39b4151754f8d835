"""The books of requests: who asked, which provider carried the request out, how it ended.

A request ends once. One that ended as "not started" is never carried out, not even later. A reply comes from
a provider that carried the request out, and answers this request. Only an idempotent request may be carried
out more than once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hansa.errors import Backlogged, HansaError, NoProvider, ProviderBusy, ProviderDraining
from hansa.testing.world import World

# Errors that say that no provider carried the request out.
NOT_STARTED = (NoProvider, ProviderBusy, ProviderDraining, Backlogged)


@dataclass(slots=True, kw_only=True)
class Errand:
    """One request, from the call to its end."""

    number: int
    caller: str
    service: str
    idempotent: bool
    is_large: bool = False
    """Whether its reply is larger than the buffers on its way."""
    done_by: list[str] = field(default_factory=list)
    outcome: str = ""
    not_started: bool = False

    def __str__(self) -> str:
        return f"request {self.number} of {self.caller} to {self.service}"

    @property
    def payload(self) -> bytes:
        return f"{self.number} {self.service}".encode()


class Errands:
    """Opens requests, and judges each of their steps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._errands: list[Errand] = []

    def open(self, caller: str, service: str, *, idempotent: bool, is_large: bool = False) -> Errand:
        """A caller is about to send a request."""
        errand = Errand(
            number=len(self._errands),
            caller=caller,
            service=service,
            idempotent=idempotent,
            is_large=is_large,
        )
        self._errands.append(errand)
        return errand

    def carried_out(self, life: str, services: tuple[str, ...], payload: bytes) -> Errand:
        """A handler has begun to run."""
        number, _, service = payload.decode("ascii", "replace").partition(" ")
        errand = self._errands[int(number)] if number.isdigit() else None
        if errand is None or errand.payload != payload:
            self._world.fail("only what was asked is carried out", f"{life} got {payload!r}")
        if service not in services:
            self._world.fail("only providers of a service are asked", f"{errand} came to {life}")
        if errand.not_started:
            self._world.fail(
                "what was not started is not carried out",
                f"{errand} ended as {errand.outcome}; {life} has it",
            )
        errand.done_by.append(life)
        if len(errand.done_by) > 1 and not errand.idempotent:
            self._world.fail("nothing is carried out twice", f"{errand}: by {', '.join(errand.done_by)}")
        return errand

    def replied(self, errand: Errand, parts: list[bytes]) -> None:
        """The request has ended with a reply."""
        self._end(errand, "a reply")
        life = parts[1].decode("ascii", "replace") if len(parts) == 2 + errand.is_large else ""
        if parts[:1] != [errand.payload]:
            self._world.fail("a reply answers its request", f"{errand} got {parts[:2]!r}")
        if life not in errand.done_by:
            self._world.fail(
                "a reply comes from who did it", f"{errand} got {parts[:2]!r}, done by {errand.done_by}"
            )

    def failed(self, errand: Errand, error: HansaError) -> None:
        """The request has ended with an error."""
        self._end(errand, error.code)
        # For an idempotent request only the last try was not started.
        errand.not_started = isinstance(error, NOT_STARTED) and not errand.idempotent
        if errand.not_started and errand.done_by:
            self._world.fail(
                "what was not started is not carried out", f"{errand}: {error}; done by {errand.done_by}"
            )

    def given_up(self, errand: Errand) -> None:
        """The caller was cancelled."""
        self._end(errand, "given up")

    def unended(self, *, excused: set[str]) -> list[str]:
        """Requests without an outcome, except those of the excused lives."""
        return [str(one) for one in self._errands if not one.outcome and one.caller not in excused]

    def waiting(self, callers: set[str]) -> list[str]:
        """Requests of these lives that have no outcome yet."""
        return [str(one) for one in self._errands if not one.outcome and one.caller in callers]

    def _end(self, errand: Errand, outcome: str) -> None:
        if errand.outcome:
            self._world.fail("a request ends once", f"{errand}: {errand.outcome}, then {outcome}")
        errand.outcome = outcome
