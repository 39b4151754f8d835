"""One method of a gRPC service: its name, its messages, and the form in which they go over the wire.

Both sides of a method are made from the same declaration: the stub that calls it over a channel, and on the
server the functions that decode a request and encode its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError

from hansa.errors import BadFrame

if TYPE_CHECKING:
    # Only calls load gRPC: modules that only declare methods are also imported by programs that never call.
    import grpc
    import grpc.aio

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Form:
    """How messages become bytes. `decoder` returns the function that reads messages of one type.

    Decoding raises what the form says; a server answers it as it answers any `HansaError` of a method.
    """

    encode: Callable[[Any], bytes]
    decoder: Callable[[type[Any]], Callable[[bytes], Any]]


def _protobuf_decoder(kind: type[Any]) -> Callable[[bytes], Any]:
    read = kind.FromString

    def decode(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError as error:
            raise BadFrame(f"this is no {kind.__name__}: {error}") from error

    return decode


PROTOBUF: Final = Form(encode=methodcaller("SerializeToString"), decoder=_protobuf_decoder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Generic[RequestT, ResponseT]):
    """A method by its service and its name, with the types of a request and of its answer."""

    service: str
    name: str
    request: type[RequestT]
    response: type[ResponseT]
    form: Form = PROTOBUF

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    def stub(self, channel: grpc.aio.Channel) -> grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]:
        """The stub for one question. A stream of one question and one answer is the same on the wire."""
        return channel.unary_unary(
            self.path,
            request_serializer=self.form.encode,
            response_deserializer=self.form.decoder(self.response),
        )

    def blocking_stub(self, channel: grpc.Channel) -> grpc.UnaryUnaryMultiCallable[RequestT, ResponseT]:
        """As `stub`, for a thread without an event loop."""
        return channel.unary_unary(
            self.path,
            request_serializer=self.form.encode,
            response_deserializer=self.form.decoder(self.response),
        )

    def stream_stub(
        self, channel: grpc.aio.Channel
    ) -> grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]:
        """The stub that opens a stream of questions and a stream of answers."""
        return channel.stream_stream(
            self.path,
            request_serializer=self.form.encode,
            response_deserializer=self.form.decoder(self.response),
        )
