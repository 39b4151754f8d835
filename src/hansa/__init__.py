"""hansa: many Python processes acting as one system."""

from hansa.errors import (
    AddressInUse,
    AlreadyClosed,
    Backlogged,
    BadArgument,
    BadEndpoint,
    BadFrame,
    Fenced,
    HandshakeRefused,
    HansaError,
    InvariantBroken,
    LimitExceeded,
    PeerAway,
    PeerError,
    ProtocolViolation,
    TimedOut,
    Unavailable,
    UnknownPeer,
    UsageError,
    WouldBlock,
)

__version__ = "0.1.0"

__all__ = [
    "AddressInUse",
    "AlreadyClosed",
    "Backlogged",
    "BadArgument",
    "BadEndpoint",
    "BadFrame",
    "Fenced",
    "HandshakeRefused",
    "HansaError",
    "InvariantBroken",
    "LimitExceeded",
    "PeerAway",
    "PeerError",
    "ProtocolViolation",
    "TimedOut",
    "Unavailable",
    "UnknownPeer",
    "UsageError",
    "WouldBlock",
    "__version__",
]
