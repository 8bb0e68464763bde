"""A short slice of the long runs."""

from __future__ import annotations

import pytest

from tests.reliability import kill, power


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed() -> None:
    assert kill.run(rounds=4, seed=1, quiet=True) > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_the_power_goes() -> None:
    reason = power.unavailable()
    if reason is not None:
        pytest.skip(reason)
    assert power.run(rounds=2, seed=1, quiet=True) > 0
