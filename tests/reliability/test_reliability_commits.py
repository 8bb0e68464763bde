"""A short slice of the long run of commits."""

from __future__ import annotations

import pytest

from tests.reliability import commits


@pytest.mark.slow
def test_the_offsets_topic_stays_small_and_keeps_every_last_commit() -> None:
    result = commits.run(count=30_000, groups=1, partitions=10, segment_bytes=1 << 20, quiet=True)
    assert result.cleanings == 1
    assert result.final_bytes < 30_000 * 100, "most of what was written is gone"
