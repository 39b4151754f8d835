"""What components need of the world, as one value."""

from pathlib import Path

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument
from hansa.transport import Environment, SocketOptions
from hansa.transport.memory_network import MemoryNetwork
from tests.support.certificates import Authority


def test_a_network_that_is_given_is_the_one_of_all_environments_made_of_it() -> None:
    network = MemoryNetwork()
    environment = Environment(network=network)
    assert environment.network is network
    assert environment.fork("a").network is network
    assert environment.but(options=SocketOptions(linger=0.0)).network is network


def test_credentials_are_read_when_a_component_begins_and_not_once_for_all(tmp_path: Path) -> None:
    tls = Authority.create(tmp_path).issue("anna")
    environment = Environment(tls=tls)
    environment.network  # noqa: B018  # What a component does when it is made.
    Path(tls.cert).write_text("no certificate")
    with pytest.raises(BadArgument):
        environment.network  # noqa: B018


def test_a_fork_draws_by_its_name_alone() -> None:
    first, second = (Environment(chance=Chance.seeded(7)) for _ in range(2))
    first.chance.uint64()
    assert first.fork("a").chance.uint64() == second.fork("a").chance.uint64()
    assert first.fork("a").chance.uint64() != second.fork("b").chance.uint64()


def test_other_options_leave_the_rest_as_it_is() -> None:
    environment = Environment(options=SocketOptions(linger=0.0))
    other = environment.but(options=SocketOptions(linger=2.0))
    assert (environment.options.linger, other.options.linger) == (0.0, 2.0)
    assert other.clock is environment.clock
    assert other.chance is environment.chance
