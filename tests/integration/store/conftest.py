"""A group of three real etcd servers, for all tests of a process that kill and freeze them."""

from collections.abc import Iterator

import pytest

from tests.support.etcd_servers import EtcdGroup


@pytest.fixture(scope="session")
def shared_etcd_group() -> Iterator[EtcdGroup]:
    with EtcdGroup(3) as group:
        yield group


@pytest.fixture
def etcd_group(shared_etcd_group: EtcdGroup) -> EtcdGroup:
    """Three members that serve, without keys; the test leaves them as it likes."""
    shared_etcd_group.restore()
    shared_etcd_group.wipe()
    return shared_etcd_group
