"""A short slice of the run through the proxy."""

from __future__ import annotations

import pytest

from tests.reliability import transaction_proxy


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_held_repeated_and_reordered_requests_tear_and_lose_no_transaction() -> None:
    totals = transaction_proxy.run(rounds=2, seed=1, quiet=True)
    assert totals.outcomes["committed"] > 0
    assert totals.copied > 0
