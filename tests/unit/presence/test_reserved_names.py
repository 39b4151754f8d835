"""Names that providers cannot have."""

import pytest

from hansa.presence.provider_info import is_reserved


@pytest.mark.spec("SPT-23")
@pytest.mark.parametrize("service", ["spot-node", "spot-node.", "spot-node.blue", "spot-node.a.b"])
def test_what_nodes_register_is_reserved(service: str) -> None:
    assert is_reserved(service)


@pytest.mark.parametrize("service", ["", "spot", "spot-nodes", "spot-node-2", "my.spot-node", "Spot-Node"])
def test_what_only_looks_like_it_is_not(service: str) -> None:
    assert not is_reserved(service)
