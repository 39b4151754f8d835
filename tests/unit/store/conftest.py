"""What the tests of stores share."""

import pytest

from hansa.clock import SystemClock


@pytest.fixture
def undated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's date is 1970: a store begins at its first revisions, and tests can name them."""
    monkeypatch.setattr(SystemClock, "wall", lambda self: 0.0)
