"""A short slice of the run with killed workers and brokers."""

from __future__ import annotations

import pytest

from tests.reliability import transactions


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("brokers", "ids"), [(1, "partition"), (3, "worker")])
def test_each_record_comes_out_once_when_workers_and_brokers_are_killed(brokers: int, ids: str) -> None:
    result = transactions.run(brokers=brokers, kills=3, records=2000, seconds=6, seed=3, ids=ids, quiet=True)
    assert result.records >= 2000
