"""A small mutation engine: seeds and what came of them, changed a little or joined, all from one seed."""

import random
from collections.abc import Iterator

from tests.fuzz.seeds import WORDS

KEPT_MAX = 2_000
_INTERESTING = (0, 1, 2, 3, 4, 5, 6, 7, 0x7F, 0x80, 0xFE, 0xFF)


def mutations(seeds: list[bytes], *, seed: int, bytes_max: int) -> Iterator[bytes]:
    """First the seeds, then inputs without end: mostly mutated, some random. Equal seeds, equal inputs."""
    chance = random.Random(seed)
    pool = list(seeds)
    yield from seeds
    while True:
        if chance.random() < 0.1:
            yield chance.randbytes(chance.randrange(64))
            continue
        data = bytearray(chance.choice(pool))
        for _ in range(1 + int(chance.expovariate(0.7))):
            _change(data, pool, chance)
        made = bytes(data[:bytes_max])
        if chance.random() < 0.02:
            if len(pool) < KEPT_MAX:
                pool.append(made)
            else:
                pool[chance.randrange(len(seeds), KEPT_MAX)] = made
        yield made


def _change(data: bytearray, pool: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    match chance.randrange(8):
        case 0 if data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        case 1 if data:
            data[at % len(data)] = chance.choice(_INTERESTING)
        case 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        case 3:
            del data[at : at + chance.randrange(1, 17)]
        case 4:
            data[at:at] = chance.choice(WORDS)
        case 5:
            data[at:at] = data[at : at + chance.randrange(1, 65)]
        case 6:
            other = chance.choice(pool)
            data[at:] = other[chance.randrange(len(other) + 1) :]
        case _ if data:
            data[at % len(data)] = chance.randrange(256)
