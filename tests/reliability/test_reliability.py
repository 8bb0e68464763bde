"""A short slice of the long runs."""

from __future__ import annotations

import pytest

from tests.reliability import kill, power, races


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_broker_is_killed() -> None:
    assert kill.run(rounds=4, seed=1, quiet=True) > 0


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_power_goes() -> None:
    reason = power.unavailable()
    if reason is not None:
        pytest.skip(reason)
    assert power.run(rounds=2, seed=1, quiet=True) > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_race_between_flush_retention_compaction_and_deletion_ends_the_broker() -> None:
    assert races.run(seconds=5, seed=1) > 0
