"""For every test of this folder: whatever it started has ended, also when it failed."""

from tests.integration.faults.conftest import no_process_is_left

__all__ = ["no_process_is_left"]
