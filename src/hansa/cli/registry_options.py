"""Options that several commands share, in the same words: registries' addresses, credentials, output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from hansa.cli.arguments import Number, Parameter
from hansa.errors import BadArgument
from hansa.transport import Environment, Tls

PUB: Final = "tcp://127.0.0.1:5550"
ROUTER: Final = "tcp://127.0.0.1:5551"


def read_whole(text: str) -> int:
    """A whole number, also as 0x1f. The parser's own reading rounds: `--count 1.5` would be 2."""
    try:
        return int(text) if text.isdecimal() else int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None


ENDPOINT: Final = Parameter(metavar="ENDPOINT")
SECONDS: Final = Parameter(metavar="SECONDS", validator=Number(gt=0, lt=1e9))

_MANY: Final = "endpoint of a registry; repeat it for each, or set"
_PUBS: Final = f"The PUB {_MANY} HANSA_PUB with commas between."
_ROUTERS: Final = f"The ROUTER {_MANY} HANSA_ROUTER with commas between."
Pubs: TypeAlias = Annotated[tuple[str, ...], Parameter(metavar="ENDPOINT", env_var="HANSA_PUB", about=_PUBS)]
Routers: TypeAlias = Annotated[
    tuple[str, ...], Parameter(metavar="ENDPOINT", env_var="HANSA_ROUTER", about=_ROUTERS)
]
Whole: TypeAlias = Annotated[int, Parameter(converter=read_whole)]
_AS_JSON: Final = "Tell everything as JSON, an object a line, for programs."
AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", about=_AS_JSON)]

_FILE: Final = {"metavar": "FILE"}


@dataclass(frozen=True, kw_only=True)
class TlsOptions:
    """Who this process is, for `tls://` endpoints and for stores: all three files, or none.

    Parameters
    ----------
    tls_cert
        This process's certificate, for tls:// endpoints and for stores.
    tls_key
        The certificate's private key.
    tls_ca
        The authority that signed the certificates of all.
    """

    tls_cert: Annotated[str | None, Parameter(env_var="HANSA_TLS_CERT", **_FILE)] = None
    tls_key: Annotated[str | None, Parameter(env_var="HANSA_TLS_KEY", **_FILE)] = None
    tls_ca: Annotated[str | None, Parameter(env_var="HANSA_TLS_CA", **_FILE)] = None

    def environment(self) -> Environment:
        """Raises BadArgument when some are given and others are not."""
        if self.tls_cert and self.tls_key and self.tls_ca:
            return Environment(tls=Tls(cert=self.tls_cert, key=self.tls_key, ca=self.tls_ca))
        if self.tls_cert or self.tls_key or self.tls_ca:
            raise BadArgument("TLS is mutual: give --tls-cert, --tls-key and --tls-ca together")
        return Environment()


NO_TLS: Final = TlsOptions()

MsgId: TypeAlias = Annotated[Whole, Parameter(validator=Number(gte=0, lt=0xFFFF))]
