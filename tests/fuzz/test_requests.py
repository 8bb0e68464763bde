"""A short slice of the fuzzer; ``python -m tests.fuzz.requests`` does the long runs."""

import pytest

from .requests import run


@pytest.mark.parametrize("seed", [1, 2])
def test_changed_requests_are_decoded_or_refused(seed: int) -> None:
    outcomes = run(20_000, seed)
    assert outcomes["accepted"] > 1000
    assert outcomes["refused"] > 1000
