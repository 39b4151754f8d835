"""The books of a registry cluster: the offers of providers, who shows them, and the requests of callers.

Every registration and every change of weight takes a weight that no other has, so that an entry says by
itself which offer it belongs to. An offer ends when its provider has unregistered it and a registry has said
yes; the tombstone that this registry then tells says up to which epoch the offer's claims are dead.

A registry or caller that has heard that tombstone, and shows the offer as gone, must never show it again,
whatever was stopped or cut off meanwhile and however wrong the clocks are. Two things are no resurrection: a
registry or caller that has not heard the tombstone cannot know, and an offer that its provider makes again is
another offer.

A request ends once. One that ended as "not started" is never carried out, not even later. A reply comes from
a provider that carried the request out, and answers this request. Only an idempotent request may be carried
out more than once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hansa.errors import Backlogged, HansaError, NoProvider, ProviderBusy, ProviderDraining
from hansa.testing.world import World
from hansa.wire.listing import ServiceList

Entry = tuple[str, str, bytes, int]
"""A provider as it is shown: service, endpoint, routing id, weight."""
_Key = tuple[str, str]

# Errors that say that no provider carried the request out.
NOT_STARTED = (NoProvider, ProviderBusy, ProviderDraining, Backlogged)


@dataclass(slots=True, kw_only=True)
class Offer:
    """One service that one provider offers, from the call of `register` until it is taken back."""

    number: int
    service: str
    endpoint: str
    routing_id: bytes
    weights: list[int] = field(default_factory=list)
    epochs: set[int] = field(default_factory=set)
    """The epochs under which registries have listed it."""
    withdrawn_by: str = ""
    """The life of the registry that acknowledged its end."""
    dead_epoch: int | None = None
    """The epoch up to which its claims are dead, as that registry told."""

    def __str__(self) -> str:
        return f"offer {self.number} ({self.service} at {self.endpoint})"


@dataclass(slots=True, kw_only=True)
class View:
    """What one life of a registry or a discovery shows, and the removals that it has heard."""

    who: str
    shown: dict[int, Offer] = field(default_factory=dict)
    tombstones: dict[_Key, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)


class Offers:
    """Opens and ends offers, and judges every view."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_weight: dict[int, Offer] = {}
        self._withdrawn: dict[int, Offer] = {}
        self._offers_count = 0
        self._list_seqs: dict[int, tuple[int, str]] = {}
        self._tombstones: dict[tuple[int, int], dict[_Key, int]] = {}

    # Called by providers.

    def open(self, service: str, endpoint: str, routing_id: bytes) -> Offer:
        """A provider is about to register a service that it does not offer now."""
        self._offers_count += 1
        return Offer(number=self._offers_count, service=service, endpoint=endpoint, routing_id=routing_id)

    def weigh(self, offer: Offer) -> int:
        """A weight for the offer that no other offer has."""
        weight = len(self._by_weight) + 1
        self._by_weight[weight] = offer
        offer.weights.append(weight)
        return weight

    def withdraw(self, offer: Offer, registry_life: str) -> None:
        """The registry has acknowledged that it removed the offer."""
        offer.withdrawn_by = registry_life
        self._withdrawn[offer.number] = offer

    # Called for registries.

    def heard_list(self, life: str, view: View, told: ServiceList) -> None:
        """A registry has told this list; its view is what the list says."""
        self._check_order(life, told)
        tombstones: dict[_Key, int] = {}
        for stone in told.tombstones:
            key = (stone.service, stone.endpoint)
            tombstones[key] = max(stone.epoch, tombstones.get(key, 0))
        entries: list[Entry] = []
        for service, providers in told.services.items():
            for one in providers:
                offer = self._find(life, (service, one.endpoint, one.routing_id, one.weight))
                offer.epochs.add(one.epoch)
                entries.append((service, one.endpoint, one.routing_id, one.weight))
                if one.epoch <= tombstones.get((service, one.endpoint), -1):
                    self._world.fail("nothing buried is listed", f"{life} lists {offer} under its tombstone")
        self._tombstones[told.registry_id, told.list_seq] = tombstones
        for offer in self._withdrawn.values():
            if offer.withdrawn_by == life and offer.dead_epoch is None:
                # A lower one belongs to an earlier offer at the same endpoint.
                epoch = tombstones.get((offer.service, offer.endpoint), -1)
                if offer.epochs and epoch >= max(offer.epochs):
                    offer.dead_epoch = epoch
        self._learn(view, tombstones)
        self.look(view, entries)

    def _check_order(self, life: str, told: ServiceList) -> None:
        list_seq, former = self._list_seqs.get(told.registry_id, (-1, life))
        # Within a life a newcomer is told the last list once more.
        if told.list_seq < list_seq or (told.list_seq == list_seq and former != life):
            self._world.fail(
                "the numbers of lists grow",
                f"registry {told.registry_id}: {told.list_seq} of {life} after {list_seq} of {former}",
            )
        self._list_seqs[told.registry_id] = told.list_seq, life

    # Called for views.

    def heard_lists(self, view: View, lists_heard: Mapping[int, int]) -> None:
        """A discovery follows these lists, registry id and number; not all of them had a witness."""
        for numbered in lists_heard.items():
            self._learn(view, self._tombstones.get(numbered, {}))

    def look(self, view: View, entries: Iterable[Entry]) -> None:
        """Judge everything that a view shows now."""
        shown: dict[int, Offer] = {}
        keys: set[_Key] = set()
        for entry in entries:
            offer = self._find(view.who, entry)
            shown[offer.number] = offer
            if entry[:2] in keys:
                self._world.fail("one entry per key", f"{view.who} shows {offer} twice")
            keys.add(entry[:2])
            if offer.number in view.gone:
                self._world.fail(
                    "what was removed does not come back",
                    f"{view.who} knew that {offer} was removed, and shows it again; epochs "
                    f"{sorted(offer.epochs)}, dead up to {offer.dead_epoch}",
                )
        view.shown = shown
        for number, offer in self._withdrawn.items():
            if number in shown or number in view.gone or offer.dead_epoch is None:
                continue
            if view.tombstones.get((offer.service, offer.endpoint), -1) >= offer.dead_epoch:
                view.gone.add(number)

    @staticmethod
    def _learn(view: View, tombstones: Mapping[_Key, int]) -> None:
        for key, epoch in tombstones.items():
            view.tombstones[key] = max(epoch, view.tombstones.get(key, 0))

    def _find(self, who: str, entry: Entry) -> Offer:
        service, endpoint, routing_id, weight = entry
        offer = self._by_weight.get(weight)
        if offer is None or (service, endpoint, routing_id) != (
            offer.service,
            offer.endpoint,
            offer.routing_id,
        ):
            self._world.fail("only what was offered is shown", f"{who} shows {entry}; {offer or 'nothing'}")
        return offer


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
