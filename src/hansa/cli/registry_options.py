"""Options that several commands share, in the same words: where registries are, and the form of output."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

PUB: Final = "tcp://127.0.0.1:5550"
ROUTER: Final = "tcp://127.0.0.1:5551"


def split_at_commas(kind: object, text: str, **_: object) -> list[str]:
    """`HANSA_PUB=tcp://a:5550,tcp://b:5550` names two; spaces around them mean nothing."""
    return [word.strip() for word in text.split(",") if word.strip()]


ENDPOINT: Final = Parameter(metavar="ENDPOINT")
ENDPOINTS: Final = Parameter(metavar="ENDPOINT", negative="", show_default=False)
SECONDS: Final = Parameter(metavar="SECONDS", validator=Number(gt=0, lt=1e9))

Pubs: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(metavar="ENDPOINT", negative="", env_var="HANSA_PUB", env_var_split=split_at_commas),
]
Routers: TypeAlias = Annotated[
    tuple[str, ...],
    Parameter(metavar="ENDPOINT", negative="", env_var="HANSA_ROUTER", env_var_split=split_at_commas),
]
AsJson: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
MsgId: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lt=0xFFFF))]
