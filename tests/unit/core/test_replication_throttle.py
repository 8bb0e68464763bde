"""The rate limit of replicas that catch up, and which replicas it is for."""

from __future__ import annotations

import pytest

from barnabas.core.replication.throttle import NEVER_MS, UNLIMITED, RateLimit, is_throttled


def limited(bytes_per_second: int) -> RateLimit:
    limit = RateLimit()
    limit.set(bytes_per_second, 0)
    return limit


def test_without_a_rate_nothing_waits() -> None:
    limit = limited(UNLIMITED)
    limit.charge(1 << 40, 0)
    assert limit.wait_ms(0) == 0
    assert not limit.is_set


@pytest.mark.parametrize("chunk_bytes", [100, 999, 5000])
def test_over_time_no_more_than_the_rate_is_sent(chunk_bytes: int) -> None:
    limit, sent = limited(1000), 0
    for now_ms in range(60_000):
        if not limit.wait_ms(now_ms):
            limit.charge(chunk_bytes, now_ms)
            sent += chunk_bytes
    assert 60_000 - chunk_bytes <= sent <= 61_000 + chunk_bytes


def test_it_says_how_long_to_wait() -> None:
    limit = limited(1000)
    limit.charge(3000, 0)
    wait_ms = limit.wait_ms(0)
    assert limit.wait_ms(wait_ms - 2) > 0
    assert limit.wait_ms(wait_ms) == 0


def test_a_changed_rate_counts_at_once() -> None:
    limit = limited(1)
    limit.charge(1_000_000, 0)
    limit.set(1000, 10)
    assert limit.wait_ms(10) == 0


def test_a_rate_of_zero_sends_nothing() -> None:
    limit = limited(0)
    assert limit.wait_ms(1_000_000) == NEVER_MS


@pytest.mark.parametrize(
    ("replicas", "throttled"), [((), False), (("*",), True), (("3:1", "3:2"), True), (("3:1", "2:2"), False)]
)
def test_which_replicas_are_throttled(replicas: tuple[str, ...], throttled: bool) -> None:
    assert is_throttled(replicas, 3, 2) is throttled
