"""Providers that are killed and stopped under load: a short form of `standstill_soak.py`."""

import asyncio

import pytest

from tests.integration.faults.standstill_soak import harass


@pytest.mark.spec("DIS-24")
async def test_no_idempotent_call_fails_while_providers_are_killed_and_stopped() -> None:
    async with asyncio.timeout(100):
        found = await harass(seconds=7.0, kills=1, stops=4, providers_count=3, rate=30.0, seed=1)
    assert found["kills"] > 0
    assert found["stops"] > 0
    assert found["stats"]["hedged_count"] > 0, found
