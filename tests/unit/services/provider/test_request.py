"""What a handler gets, what it may return, and what the caller is told when it fails."""

import functools

import pytest

from hansa.errors import BadArgument, HandlerFailed, InvariantBroken, ProviderBusy, TimedOut, error_from_code
from hansa.services.provider.work import Handler, Request, error_reply, reply_parts
from hansa.wire.business import ErrorReply, encode_error


async def of_task(request: Request) -> bytes:
    return b""


def of_thread(request: Request) -> bytes:
    return b""


class AsyncObject:
    async def __call__(self, request: Request) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("function", "is_plain"),
    [
        (of_task, False),
        (of_thread, True),
        (AsyncObject(), False),
        (functools.partial(of_task), False),
        (functools.partial(of_thread), True),
        (lambda request: b"", True),
    ],
)
def test_async_and_plain_functions_are_told_apart(function: object, is_plain: bool) -> None:
    assert Handler(0, function).is_plain is is_plain  # type: ignore[arg-type]


def test_a_request_shows_its_payload_and_what_time_is_left() -> None:
    request = Request([b"first", b"second"], 1, 2, b"gate", 10.0)
    assert request.payload == b"first"
    assert [request.remaining_s(now) for now in (8.0, 10.0, 12.0)] == [2.0, 0.0, 0.0]
    assert Request([], 1, 2, b"gate").remaining_s(0.0) is None


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        (b"x", [b"x"]),
        (None, [b""]),
        ([b"a", b"b"], [b"a", b"b"]),
        ((b"a", b"b"), [b"a", b"b"]),
        ([], []),
    ],
)
def test_bytes_lists_of_bytes_and_nothing_are_replies(reply: object, parts: list[bytes]) -> None:
    assert reply_parts(reply, 100, 100) == parts


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("text", "returned str"),
        (7, "returned int"),
        ([b"a", "b"], "a part of type str"),
        ({b"a": 1}, "returned dict"),
        (bytearray(b"x"), "returned bytearray"),
        (bytes(101), "too large"),
        ([bytes(60), bytes(60)], "too large"),
    ],
)
def test_anything_else_is_a_failure_of_the_handler(reply: object, text: str) -> None:
    with pytest.raises(HandlerFailed, match=text):
        reply_parts(reply, 100, 110)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.spec("DIS-26")
@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (HandlerFailed("too little", "insufficient-funds"), ErrorReply("insufficient-funds", "too little")),
        (HandlerFailed("no"), ErrorReply("handler-failed", "no")),
        (HandlerFailed("no", "a b"), ErrorReply("handler-failed", "a b: no")),
        (HandlerFailed("no", "x" * 1_000), ErrorReply("handler-failed", "x" * 1_000 + ": no")),
        (TimedOut("too late"), ErrorReply("timed-out", "too late")),
        (BadArgument("not so"), ErrorReply("bad-argument", "not so")),
        (InvariantBroken("us"), ErrorReply("invariant-broken", "us")),
        (ValueError("wrong"), ErrorReply("handler-failed", "ValueError: wrong")),
        (ValueError(), ErrorReply("handler-failed", "ValueError")),
        # "busy" would promise that nothing was started, and the caller would just send it again.
        (ProviderBusy("the other"), ErrorReply("unavailable", "ProviderBusy: the other")),
        (Unspeakable(), ErrorReply("handler-failed", "Unspeakable: (its text failed: RuntimeError)")),
    ],
)
def test_what_a_handler_raises_reaches_the_caller_by_its_word(error: Exception, reply: ErrorReply) -> None:
    assert error_reply(error) == reply
    assert encode_error(1, error_reply(error))  # Whatever it is, it can be sent.


@pytest.mark.spec("DIS-26")
def test_a_reason_arrives_as_the_reason() -> None:
    code, text = error_reply(HandlerFailed("too little", "insufficient-funds"))
    error = error_from_code(code, text)
    assert isinstance(error, HandlerFailed)
    assert (error.reason, str(error)) == ("insufficient-funds", "too little")
