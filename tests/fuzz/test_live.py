"""A short slice of the fuzzer; ``python -m tests.fuzz.live`` does the long runs."""

import pytest

from .live import run


@pytest.mark.slow
def test_a_broker_survives_hostile_requests() -> None:
    outcomes = run(20_000, seed=1)
    assert outcomes["not closed within 30 s"] == 0
    assert outcomes["closed"] > 100
