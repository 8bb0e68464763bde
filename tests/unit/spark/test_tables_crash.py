"""Killed at any step of a commit, and committed to by several at once: every batch is in the table once."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.model.ids import TopicPartition
from tests.unit.spark.tables_kit import (
    FORMATS,
    Crash,
    commit,
    crash_at,
    made,
    offsets_in,
    read_by_others,
    rows,
)

ORDERS = TopicPartition("orders", 0)


CRASHES = {
    "delta": [("decided", 1), ("committed", 1)],
    "iceberg": [("decided", 1), ("staged", 1), ("committed", 1)],
}


@pytest.mark.parametrize(
    ("crashing", "step", "count"), [(form, *point) for form, points in CRASHES.items() for point in points]
)
@pytest.mark.parametrize("new_checkpoint", [False, True])
def test_killed_at_any_step_the_batch_is_there_once(
    tmp_path: Path, crashing: str, step: str, count: int, new_checkpoint: bool
) -> None:
    batch = [rows(range(100, 160)), rows(range(160, 200))]
    with made(crashing, tmp_path) as table:
        commit(table, [rows(range(100))], number=0)
        crash_at(table, step, count)
        with pytest.raises(Crash):
            commit(table, batch, number=1)
    with made(crashing, tmp_path) as table:  # a new process, so to speak
        later: dict[str, Any] = {"writer": "new", "number": 0} if new_checkpoint else {"number": 1}
        commit(table, batch, **later)
        commit(table, [rows(range(200, 250))], **(later | {"number": later["number"] + 1}))
        assert offsets_in(table) == list(range(250))
        for reader, offsets in read_by_others(table, tmp_path).items():
            assert offsets == list(range(250)), reader


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_crash_before_the_commit_leaves_nothing_that_is_seen(table_format: str, tmp_path: Path) -> None:
    with made(table_format, tmp_path) as table:
        commit(table, [rows(range(10))], number=0)
        crash_at(table, "decided")
        with pytest.raises(Crash):
            commit(table, [rows(range(10, 20))], number=1)
        assert offsets_in(table) == list(range(10))
        for reader, offsets in read_by_others(table, tmp_path).items():
            assert offsets == list(range(10)), reader


@pytest.mark.parametrize("table_format", FORMATS)
def test_committers_at_the_same_time_all_get_through_and_lose_nothing(table_format: str, tmp_path: Path) -> None:
    """Three queries over the same topic: whoever is first brings a row, the others leave it out."""
    failures: list[BaseException] = []
    ends = 120

    def query(name: str, seed: int) -> None:
        try:
            random_steps = random.Random(seed)
            with made(table_format, tmp_path) as own:
                offset = number = 0
                while offset < ends:
                    size = random_steps.randint(10, 40)
                    commit(own, [rows(range(offset, min(offset + size, ends)))], writer=name, number=number)
                    offset, number = offset + size, number + 1
        except BaseException as error:
            failures.append(error)

    with made(table_format, tmp_path) as table:
        threads = [threading.Thread(target=query, args=(f"q{index}", index)) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert offsets_in(table) == list(range(ends))
        total = table.state().total()[ORDERS]
        assert [(item.start, item.end, item.rows, item.dense) for item in total] == [(0, ends, ends, True)]
