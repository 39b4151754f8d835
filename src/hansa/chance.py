"""The only source of randomness. Code that draws is given a `Chance`, so that a seed replays a history.

Draws are built on raw bits and floats only: `random.shuffle` and friends may change their use of the
generator between Python versions, and a seed found on one version must replay on another.
"""

import random
from collections.abc import MutableSequence, Sequence
from hashlib import sha256
from typing import TypeVar

from hansa.errors import BadArgument

T = TypeVar("T")


class Chance:
    """A stream of random draws: `seeded` for replay, `system` for production."""

    __slots__ = ("_key", "_source")

    def __init__(self, source: random.Random, key: bytes | None) -> None:
        self._source = source
        self._key = key

    @classmethod
    def seeded(cls, seed: int | str | bytes) -> "Chance":
        """The same seed gives the same draws, in every process and on every Python version."""
        if isinstance(seed, int):
            tagged = b"int:" + str(seed).encode("ascii")
        elif isinstance(seed, str):
            tagged = b"str:" + seed.encode("utf-8", "surrogatepass")
        else:
            tagged = b"bytes:" + seed
        return cls._from_key(sha256(tagged).digest())

    @classmethod
    def system(cls) -> "Chance":
        """Draws from the operating system: unpredictable, fit for tokens and ids."""
        return cls(random.SystemRandom(), None)

    @classmethod
    def _from_key(cls, key: bytes) -> "Chance":
        return cls(random.Random(int.from_bytes(key, "big")), key)

    def fork(self, name: str) -> "Chance":
        """A child stream that depends on the seed and the name only, not on what was drawn before.

        So one component's extra draw does not shift its neighbours' draws. A child of `system` is `system`.
        """
        if self._key is None:
            return Chance.system()
        return Chance._from_key(sha256(self._key + name.encode("utf-8", "surrogatepass")).digest())

    def uniform(self, low: float, high: float) -> float:
        """A float from low (included) to high."""
        return low + (high - low) * self._source.random()

    def below(self, n: int) -> int:
        """An integer from 0 to n - 1, all equally likely. Raises `BadArgument` unless n is positive."""
        if n <= 0:
            raise BadArgument(f"below({n}): there is no integer from 0 to {n - 1}; n must be at least 1")
        bits = n.bit_length()
        drawn = self._source.getrandbits(bits)
        # Drawing again keeps it fair; each draw fits with a probability of at least one half.
        while drawn >= n:
            drawn = self._source.getrandbits(bits)
        return drawn

    def uint32(self) -> int:
        """Any unsigned 32-bit integer."""
        return self._source.getrandbits(32)

    def uint64(self) -> int:
        """Any unsigned 64-bit integer."""
        return self._source.getrandbits(64)

    def token(self, n: int) -> bytes:
        """n random bytes."""
        if n < 0:
            raise BadArgument(f"token({n}): the number of bytes cannot be negative")
        return self._source.getrandbits(8 * n).to_bytes(n, "little") if n else b""

    def choose(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely. Raises `BadArgument` when there is none."""
        if not options:
            raise BadArgument("choose(): there is nothing to choose from")
        return options[self.below(len(options))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put the items into a random order, in place, all orders equally likely."""
        draw = self._source.getrandbits
        for last in range(len(items) - 1, 0, -1):
            # As `below` does, which would be a call for each: the simulator shuffles at every turn.
            bits = (last + 1).bit_length()
            while (other := draw(bits)) > last:
                pass
            items[last], items[other] = items[other], items[last]

    def flip(self, probability: float) -> bool:
        """True with the given probability: never at 0.0, always at 1.0."""
        return self._source.random() < probability
