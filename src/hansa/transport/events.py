"""The events of a socket's connections, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CloseReason(StrEnum):
    """Why a connection ended or never began. The words are stable: metrics and tests count by them."""

    CLOSED_BY_US = "closed-by-us"
    CLOSED_BY_PEER = "closed-by-peer"
    CONNECTION_LOST = "connection-lost"
    CONNECT_FAILED = "connect-failed"
    HANDSHAKE_TIMEOUT = "handshake-timeout"
    HEARTBEAT_TIMEOUT = "heartbeat-timeout"
    PROTOCOL_VIOLATION = "protocol-violation"
    BAD_VERSION = "bad-version"
    BAD_MECHANISM = "bad-mechanism"
    BAD_SOCKET_TYPE = "bad-socket-type"
    ID_IN_USE = "id-in-use"
    ID_NOT_ALLOWED = "id-not-allowed"
    REFUSED_BY_PEER = "refused-by-peer"
    FRAME_TOO_LARGE = "frame-too-large"
    MESSAGE_TOO_LARGE = "message-too-large"
    TOO_MANY_PARTS = "too-many-parts"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    TOO_MANY_HANDSHAKING = "too-many-handshaking"
    TOO_MANY_SUBSCRIPTIONS = "too-many-subscriptions"
    TAKEN_OVER = "taken-over"
    NOT_READING = "not-reading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A peer has shaken hands and can be written to."""

    peer: bytes
    address: str
    outbound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """A peer that was connected is gone.

    `in_doubt_count` messages were handed to the connection and not confirmed since: each may or may not have
    arrived, and they are the last ones. `unsent_count` more were never handed over and are lost; it is 0 if
    they wait for the peer to return.
    """

    peer: bytes
    address: str
    reason: CloseReason
    detail: str
    unsent_count: int
    in_doubt_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeFailed:
    """A connection ended before it was usable. `peer` is empty if it did not get as far as an id."""

    peer: bytes
    address: str
    reason: CloseReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesLost:
    """Messages that waited for a peer and never leave: it came back under another id, or the socket ends."""

    peer: bytes
    address: str
    count: int


SocketEvent = Connected | Disconnected | HandshakeFailed | MessagesLost
