"""Balancers: which provider gets the next request. Pure.

Each balancer is one small decision: the gateway gives it members and chance, and it returns one of them. The
members are the providers that the gateway is connected to; there is at least one. Members that were tried
already, or that are suspected, are left out while there are others. A balancer belongs to one service of one
gateway: it may keep state about members by their endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import log
from typing import Protocol, TypeVar

from hansa.chance import Chance

# How many times the member count a round may grow to while members come and go.
_SERVED_ROUNDS_MAX = 4


class Choice(Protocol):
    """What a balancer may know of a member."""

    @property
    def endpoint(self) -> str:
        """Its name among the members."""
        ...

    @property
    def weight(self) -> int:
        """Its share, at least 1."""
        ...

    @property
    def in_flight_count(self) -> int:
        """Requests that this gateway sent it and that have no outcome yet."""
        ...


M = TypeVar("M", bound=Choice)


class Balancer(Protocol):
    """How to choose among members. Write your own: any object with this method will do."""

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        """Choose one of `members`, which is never empty. `key` is the caller's, None when there is none.

        It is called for every request, in the event loop, and must neither block nor change the members.
        """
        ...


class RoundRobin:
    """Each member in its turn, from a random first one, so that many short-lived callers spread out.

    When members come or go, it continues after those of this round that are still there, so that no member
    that stays is passed over, and hardly any is served twice in a round.
    """

    def __init__(self) -> None:
        self._served: list[Choice] = []
        self._count = 0
        self._at = 0

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        count = len(members)
        if count == 1:
            return members[0]
        # Hot path of the gateway (`make bench`, case gateway): while the last member served is still in its
        # place, the one after it is next.
        at, served = self._at, self._served
        if count == self._count and members[at] is served[-1]:
            at += 1
        else:
            at = self._resume(members, chance)
            self._count = count
        if at == count:
            at = 0
            served.clear()
        self._at = at
        chosen = members[at]
        served.append(chosen)
        return chosen

    def _resume(self, members: Sequence[Choice], chance: Chance) -> int:
        """The place to continue at when members changed."""
        served = self._served
        if not served:
            at = chance.below(len(members))
            served.extend(members[:at])  # As if the round had begun with the first.
            return at
        places = {member.endpoint: place for place, member in enumerate(members)}
        if len(served) > _SERVED_ROUNDS_MAX * len(members):
            # Members are always new, and the round never ends. Forget those that left.
            present = {member.endpoint: member for member in served if member.endpoint in places}
            served[:] = present.values() or served[-1:]
        return 1 + max(places.get(member.endpoint, -1) for member in served)


class Weighted:
    """Each member as often as its weight says, spread evenly: 5, 1, 1 gives a a b a c a a, not a a a a a b c.

    Smooth weighted round robin: every member earns its weight, the richest is chosen and pays the sum of
    weights. A changed weight counts from the next request on; weight 0 counts as 1.
    """

    def __init__(self) -> None:
        self._credits: dict[str, int] = {}
        self._total = 0

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        best = members[0]
        if len(members) == 1:
            return best
        total = sum(member.weight or 1 for member in members)
        if total < self._total or len(self._credits) > len(members):
            self._forget(members, total)
        self._total = total
        credits, best_credit = self._credits, None
        for member in members:
            credit = credits.get(member.endpoint, 0) + (member.weight or 1)
            credits[member.endpoint] = credit
            if best_credit is None or credit > best_credit:
                best, best_credit = member, credit
        credits[best.endpoint] -= total
        return best

    def _forget(self, members: Sequence[Choice], total: int) -> None:
        """Drop members that left, and limit what was earned or owed under larger weights to one round now."""
        self._credits = {
            member.endpoint: max(-total, min(total, self._credits.get(member.endpoint, 0)))
            for member in members
        }


class TwoChoices:
    """Of two members drawn at random the one with fewer requests in flight.

    Almost as even as comparing all members, at a constant cost, and slow providers automatically get less.
    """

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        count = len(members)
        if count == 1:
            return members[0]
        one = chance.below(count)
        other = chance.below(count - 1)
        if other >= one:
            other += 1
        first, second = members[one], members[other]
        return second if second.in_flight_count < first.in_flight_count else first


class Rendezvous:
    """The same key goes to the same member, in every gateway and process, in proportion to weights.

    Highest random weight: each member scores by a hash of key and endpoint, the highest wins. When a member
    leaves only its keys move; when one comes it takes some keys, and the others exchange none. Requests
    without a key go round robin. Costs one hash per member.
    """

    def __init__(self) -> None:
        self._keyless = RoundRobin()

    def choose(self, members: Sequence[M], key: bytes | None, chance: Chance) -> M:
        if key is None:
            return self._keyless.choose(members, key, chance)
        if len(members) == 1:
            return members[0]
        keyed = blake2b(b"%d:%b" % (len(key), key), digest_size=8)
        # By endpoint where scores are equal, so that the order of members never matters.
        return max(members, key=lambda member: (_score(keyed, member), member.endpoint))


def _score(keyed: blake2b, member: Choice) -> float:
    drawn = keyed.copy()
    drawn.update(member.endpoint.encode("utf-8", "surrogatepass"))
    # 52 bits and a half: a float strictly between 0 and 1, so that its logarithm is below 0.
    share = ((int.from_bytes(drawn.digest(), "little") >> 12) + 0.5) / (1 << 52)
    # The chance to be highest is then exactly the member's share of all weights.
    return -(member.weight or 1) / log(share)
