"""Where an etcd group is, and who asks it, as text: `etcd://user:password@host:2379,host2:2379`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from hansa.endpoint import Endpoint
from hansa.errors import BadEndpoint
from hansa.limits import STORE_ENDPOINTS_MAX

ETCD_EXAMPLE = "write etcd://host:2379,host2:2379, or etcd://user:password@host:2379"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAddress:
    """The members of a group, and the user. The password shows nowhere."""

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> "EtcdAddress":
        """Read what stands behind `etcd://`. Raises `BadEndpoint`, without the password in it."""
        credentials, at, hosts = text.rpartition("@")
        user, colon, password = credentials.partition(":")
        if at and (not user or not colon or "," in credentials):
            raise BadEndpoint(
                "an etcd address names user:password once, before the first host, and writes a comma or a"
                f" colon in them as %2C or %3A; {ETCD_EXAMPLE}"
            )
        return cls(
            endpoints=checked_endpoints(hosts.split(",")),
            user=unquote(user) if at else None,
            password=unquote(password) if at else None,
        )


def checked_endpoints(endpoints: Sequence[str]) -> tuple[str, ...]:
    """Hosts with ports, in one spelling each. Raises `BadEndpoint`."""
    if not 1 <= len(endpoints) <= STORE_ENDPOINTS_MAX:
        raise BadEndpoint(f"{len(endpoints)} endpoints of etcd: give 1 to {STORE_ENDPOINTS_MAX}")
    found = []
    for text in endpoints:
        try:
            endpoint = Endpoint.parse(f"tcp://{text}")
        except BadEndpoint as error:
            raise BadEndpoint(f"etcd endpoint {text!r}: {ETCD_EXAMPLE}") from error
        if not endpoint.is_dialable:
            raise BadEndpoint(f"etcd endpoint {text!r} cannot be dialled: {ETCD_EXAMPLE}")
        found.append(str(endpoint).removeprefix("tcp://"))
    if len(set(found)) < len(found):
        raise BadEndpoint(f"etcd endpoints {','.join(found)}: name each once")
    return tuple(found)
