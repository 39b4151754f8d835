"""Socket options say which field is wrong."""

from typing import Any

import pytest

from hansa.errors import BadArgument
from hansa.transport import Dealer, SocketOptions


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outgoing_bytes_max", 0),
        ("handshake_s_max", -1),
        ("parts_max", 0),
        ("frame_bytes_max", 100),
        ("heartbeat_timeout", 1.0),
        ("linger", -0.1),
    ],
)
def test_a_wrong_option_is_refused_by_name(field: str, value: float) -> None:
    settings: dict[str, Any] = {field: value}
    with pytest.raises(BadArgument, match=field):
        SocketOptions(**settings)


def test_no_linger_and_no_heartbeat_are_allowed() -> None:
    SocketOptions(linger=0, heartbeat_interval=None, reconnect_jitter=0)


def test_a_misspelt_setting_is_an_error() -> None:
    settings: dict[str, Any] = {"optoins": SocketOptions()}
    with pytest.raises(TypeError, match="optoins"):
        Dealer(**settings)


def test_a_routing_id_over_its_bound_is_refused() -> None:
    with pytest.raises(BadArgument, match="255"):
        Dealer(bytes(256))
