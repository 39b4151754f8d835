"""Whatever lists come, are lost or fall silent: kept step by step equals worked out afresh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.limits import REGISTRY_GRACE_S
from hansa.services.discovery.directory import Directory
from hansa.services.discovery.events import (
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceState,
    ServiceUnavailable,
    WeightChanged,
)
from hansa.wire.listing import ListReader, ProviderEntry, ServiceList, Tombstone, encode_list

SILENCE_S = 10.0
SERVICES = ("mail", "pay", "user")
Shown = dict[str, dict[str, tuple[bytes, int]]]
Claims = dict[tuple[str, str], ProviderEntry]

entries = st.builds(
    ProviderEntry,
    endpoint=st.sampled_from(["a", "b", "c"]),
    routing_id=st.sampled_from([b"1", b"2"]),
    weight=st.integers(1, 2),
    epoch=st.integers(0, 3),
)
services = st.dictionaries(st.sampled_from(SERVICES), st.lists(entries, max_size=3).map(tuple))
tombstones = st.lists(
    st.builds(
        Tombstone,
        service=st.sampled_from(SERVICES),
        endpoint=st.sampled_from(["a", "b"]),
        epoch=st.integers(0, 3),
    ),
    max_size=2,
).map(tuple)
sources = st.sampled_from([b"s1", b"s2", b"s3"])
# A list's number is drawn as the step from the registry's last: mostly newer, else few lists would count.
numbers = st.sampled_from([-1, 0, 1, 1, 2])
lists = st.tuples(services, tombstones, st.sampled_from([False, False, True])).map(
    lambda drawn: ServiceList(
        registry_id=0, list_seq=0, services=drawn[0], tombstones=drawn[1], is_settling=drawn[2]
    )
)
steps = st.lists(
    st.tuples(st.just("hear"), st.integers(1, 3), numbers, lists, sources)
    | st.tuples(st.just("again"), sources, st.integers(0, 2))
    | st.tuples(st.just("lost"), sources)
    | st.tuples(st.just("wait"), st.sampled_from([1.0, 4.0, SILENCE_S]))
    | st.tuples(st.just("subscribe"), st.sampled_from(SERVICES))
    | st.tuples(st.just("unsubscribe"), st.sampled_from(SERVICES))
    | st.tuples(st.just("subscribe_all")),
    max_size=30,
)


def carry(former: ServiceList, told: ServiceList) -> dict[str, tuple[ProviderEntry, ...]]:
    """What a settling registry said before and has neither said again nor taken back."""
    graves = {(stone.service, stone.endpoint): stone.epoch for stone in told.tombstones}
    result = {}
    for service in {*former.services, *told.services}:
        again = list(told.services.get(service, ()))
        ends = [entry.endpoint for entry in again]
        for entry in former.services.get(service, ()):
            if entry.endpoint not in ends and entry.epoch > graves.get((service, entry.endpoint), -1):
                again.append(entry)
        result[service] = tuple(again)
    return result


@dataclass
class Told:
    """What one registry said last, in the naive model."""

    heard: ServiceList
    at: float
    sources: set[bytes]
    lost_at: float = 0.0

    @property
    def ends_at(self) -> float:
        silent_at = self.at + SILENCE_S
        return silent_at if self.sources else min(silent_at, self.lost_at + REGISTRY_GRACE_S)


@dataclass
class Naive:
    """The rules of the directory, worked out afresh after every step."""

    voices: dict[int, Told] = field(default_factory=dict)
    ended: dict[int, tuple[int, float]] = field(default_factory=dict)
    claims: Claims = field(default_factory=dict)
    memory: Claims = field(default_factory=dict)
    graves: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)

    def hear(self, heard: ServiceList, source: bytes, now: float) -> None:
        self.end_voices(now)
        registry = heard.registry_id
        voice = self.voices.get(registry)
        seq, ended_at = self.ended.get(registry, (0, -1e9))
        least = voice.heard.list_seq if voice else (seq if now - ended_at < SILENCE_S else 0)
        if heard.list_seq >= least:
            for other in self.voices:
                if other != registry:
                    self.leave(other, source, now)
            if not heard.is_settling:
                self.memory = {}
            if voice is not None and heard.list_seq == voice.heard.list_seq:
                heard = voice.heard
            elif voice is not None:
                if heard.is_settling:
                    heard = replace(heard, services=carry(voice.heard, heard))
                self.bury([stone for stone in voice.heard.tombstones if stone not in heard.tombstones], now)
            known = voice.sources if voice else set()
            self.voices[registry] = Told(heard, now, known | {source})
        self.work_out()

    def lost(self, source: bytes, now: float) -> None:
        self.end_voices(now)
        for registry in self.voices:
            self.leave(registry, source, now)
        self.work_out()

    def leave(self, registry: int, source: bytes, now: float) -> None:
        voice = self.voices[registry]
        if voice.sources == {source}:
            voice.lost_at = now
        voice.sources.discard(source)
        self.remember()

    def tick(self, now: float) -> None:
        self.end_voices(now)
        self.work_out()

    def bury(self, stones: Iterable[Tombstone], now: float) -> None:
        for stone in stones:
            key = (stone.service, stone.endpoint)
            epoch, _ = self.graves.get(key, (0, 0.0))
            self.graves[key] = (max(epoch, stone.epoch), now + SILENCE_S)

    def end_voices(self, now: float) -> None:
        self.graves = {key: grave for key, grave in self.graves.items() if grave[1] > now}
        for registry, voice in list(self.voices.items()):
            if now >= voice.ends_at:
                del self.voices[registry]
                self.ended[registry] = (voice.heard.list_seq, now)
                self.bury(voice.heard.tombstones, now)
                self.remember()

    @property
    def registries_heard(self) -> tuple[int, ...]:
        return tuple(sorted(registry for registry, voice in self.voices.items() if voice.sources))

    def remember(self) -> None:
        if not self.registries_heard:
            self.memory = self.claims

    def work_out(self) -> None:
        if not self.registries_heard:
            return
        best: Claims = {}
        for registry in sorted(self.voices):
            for service, listed in self.voices[registry].heard.services.items():
                for entry in listed:
                    key = (service, entry.endpoint)
                    if key not in best or entry.epoch > best[key].epoch:
                        best[key] = entry
        stones = [
            ((s.service, s.endpoint), s.epoch) for v in self.voices.values() for s in v.heard.tombstones
        ]
        stones += [(key, epoch) for key, (epoch, _) in self.graves.items()]
        self.claims = {
            key: entry
            for key, entry in (self.memory | best).items()
            if not any(key == buried and epoch >= entry.epoch for buried, epoch in stones)
        }

    def shown(self, all_but: set[str] | None) -> Shown:
        view: Shown = {}
        for (service, endpoint), entry in self.claims.items():
            if service in self.wanted or (all_but is not None and service not in all_but):
                view.setdefault(service, {})[endpoint] = (entry.routing_id, entry.weight)
        return view


class Follower:
    """Knows only events, and checks that each makes sense where it comes."""

    def __init__(self) -> None:
        self.view: Shown = {}
        self.available: set[str] = set()

    def apply(self, events: list[DiscoveryEvent]) -> None:
        for event in events:
            match event:
                case ProviderAdded(provider=p):
                    assert p.endpoint not in self.view.setdefault(p.service, {})
                    self.view[p.service][p.endpoint] = (p.routing_id, p.weight)
                case ProviderRemoved(provider=p):
                    assert self.view[p.service].pop(p.endpoint) == (p.routing_id, p.weight)
                case WeightChanged(provider=p, weight_before=before):
                    assert self.view[p.service][p.endpoint] == (p.routing_id, before)
                    assert p.weight != before
                    self.view[p.service][p.endpoint] = (p.routing_id, p.weight)
                case ServiceAvailable(service=service):
                    assert service not in self.available
                    assert self.view[service]
                    self.available.add(service)
                case ServiceUnavailable(service=service):
                    self.available.remove(service)
                    assert self.view[service] == {}
        self.view = {service: providers for service, providers in self.view.items() if providers}
        assert self.view.keys() == self.available


@settings(max_examples=400)
@given(steps)
def test_step_by_step_equals_afresh_and_events_lead_to_what_is_shown(
    history: list[tuple[object, ...]],
) -> None:
    directory, naive, follower = Directory(silence_s=SILENCE_S), Naive(), Follower()
    readers: dict[bytes, ListReader] = {}
    last: dict[bytes, ServiceList] = {}
    seqs: dict[int, int] = {}
    all_but: set[str] | None = None
    now = 0.0

    def hear(heard: ServiceList, source: bytes) -> list[DiscoveryEvent]:
        # Through the wire and a reader, so that unchanged services are the same tuple, as in real life.
        read = readers.setdefault(source, ListReader()).read(encode_list(heard))
        assert isinstance(read, ServiceList)
        last[source] = heard
        naive.hear(heard, source, now)
        return directory.hear(read, source=source, now=now)

    for step in history:
        events: list[DiscoveryEvent] = []
        match step:
            case ("hear", int() as registry, int() as more, ServiceList() as heard, bytes() as source):
                seqs[registry] = max(0, seqs.get(registry, 1) + more)
                events = hear(replace(heard, registry_id=registry, list_seq=seqs[registry]), source)
            case ("again", bytes() as source, int() as more) if source in last:
                before = last[source]
                seqs[before.registry_id] = before.list_seq + more
                events = hear(replace(before, list_seq=before.list_seq + more), source)
            case ("lost", bytes() as source):
                readers.pop(source, None)
                naive.lost(source, now)
                events = directory.lost(source, now=now)
            case ("wait", float() as seconds):
                now += seconds
                naive.tick(now)
                events = directory.tick(now=now)
            case ("subscribe", str() as service):
                naive.wanted.add(service)
                if all_but is not None:
                    all_but.discard(service)
                events = directory.subscribe(service)
            case ("unsubscribe", str() as service):
                naive.wanted.discard(service)
                if all_but is not None:
                    all_but.add(service)
                events = directory.unsubscribe(service)
            case ("subscribe_all",):
                all_but = set()
                events = directory.subscribe_all()
        follower.apply(events)
        shown = {
            service: {p.endpoint: (p.routing_id, p.weight) for p in providers}
            for service, providers in directory.services.items()
        }
        assert shown == naive.shown(all_but) == follower.view
        assert directory.registries_heard == naive.registries_heard
        assert directory.deadline() == min((voice.ends_at for voice in naive.voices.values()), default=None)
        for service in SERVICES:
            assert (directory.state(service) is ServiceState.AVAILABLE) == (service in shown)
            in_order = [provider.endpoint for provider in directory.providers(service)]
            assert in_order == sorted(shown.get(service, {}))
        deadline = directory.deadline()
        assert deadline is None or deadline > now
