"""Routing ids: five bytes that name a peer, and their text for people.

The first byte is 0x01 for an id that a hansa peer chose and 0x00 for one that a socket made up for a peer
that gave none. The specification's ids all begin with 0x00, which ZMTP keeps for generated ids: a libzmq
process that meets an explicit one beside an anonymous peer aborts. The number after it is big-endian, so ids
of one kind sort as bytes just as they do as numbers ("the lower id wins").
"""

from collections.abc import Container

from hansa.chance import Chance
from hansa.errors import BadArgument, InvariantBroken
from hansa.limits import ID_DRAWS_MAX, ROUTING_ID_BYTES_MAX

_CHOSEN = b"\x01"
_ANONYMOUS = b"\x00"
_UINT32_MAX = 0xFFFF_FFFF
_HEX_DIGITS = frozenset("0123456789abcdef")


def routing_id(number: int) -> bytes:
    """The routing id with this number. Raises `BadArgument` unless it is an unsigned 32-bit integer."""
    if not 0 <= number <= _UINT32_MAX:
        raise BadArgument(f"routing id number {number} is not in 0..{_UINT32_MAX}")
    return _CHOSEN + number.to_bytes(4, "big")


def precedence(peer: bytes) -> tuple[int, bytes]:
    """The sort key to compare two ids: the lower dials, and wins a topic. Ids without a number come last."""
    if len(peer) != 5 or peer[0] > 1:
        return _UINT32_MAX + 1, peer
    return int.from_bytes(peer[1:], "big"), peer


def new_routing_id(chance: Chance, taken: Container[bytes] = ()) -> bytes:
    """A random routing id that is not taken."""
    return _draw(_CHOSEN, chance, taken)


def anonymous_id(chance: Chance, taken: Container[bytes] = ()) -> bytes:
    """A random id, not taken, for a peer that gave none; it never equals a chosen one."""
    return _draw(_ANONYMOUS, chance, taken)


def check_routing_id(peer: bytes) -> bytes:
    """Return the id, or raise `BadArgument`: ZMTP allows 1 to 255 bytes."""
    if not 1 <= len(peer) <= ROUTING_ID_BYTES_MAX:
        raise BadArgument(f"a routing id has 1 to {ROUTING_ID_BYTES_MAX} bytes, not {len(peer)}")
    return peer


def format_id(peer: bytes) -> str:
    """The id for people: as text when it is plain ASCII text, else in hex, `01:0a0b0c0d`.

    Ids that peers chose go into logs and terminals, so nothing but visible ASCII passes as text, and text
    that imitates the hex form is shown in hex.
    """
    if not peer:
        return "(none)"
    if all(0x21 <= byte <= 0x7E for byte in peer):
        text = peer.decode("ascii")
        if not (text[2:3] == ":" and _HEX_DIGITS.issuperset(text[:2] + text[3:])) and text != "(none)":
            return text
    return f"{peer[:1].hex()}:{peer[1:].hex()}"


def _draw(prefix: bytes, chance: Chance, taken: Container[bytes]) -> bytes:
    for _ in range(ID_DRAWS_MAX):
        drawn = prefix + chance.uint32().to_bytes(4, "big")
        if drawn not in taken:
            return drawn
    raise InvariantBroken(
        f"{ID_DRAWS_MAX} routing ids drawn in a row were taken: the randomness repeats itself"
    )
