"""A short slice of the long run with groups."""

from __future__ import annotations

import pytest

from tests.reliability import groups


@pytest.mark.slow
def test_groups_find_their_feet_when_the_broker_is_killed() -> None:
    assert groups.run(rounds=3, seed=1, quiet=True) > 0
