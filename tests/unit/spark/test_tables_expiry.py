"""Expiry deletes what is old and unused, never what a reader or a commit in flight needs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from barnabas.spark.tables.errors import FilesLost
from tests.unit.spark.tables_kit import (
    FORMATS,
    NO_BROKER,
    age_files,
    commit,
    made,
    offsets_in,
    read_by_others,
    rows,
    with_options,
    written,
)

HOUR_S = 3600


@pytest.mark.parametrize("table_format", FORMATS)
def test_expiry_during_a_batch_leaves_its_files_alone(table_format: str, tmp_path: Path) -> None:
    with made(table_format, tmp_path) as table, made(table_format, tmp_path) as other:
        with_options(table, expire_after_s=0.0)  # shorter than the option allows
        commit(table, [rows(range(10))], number=0)
        batch = written(other, [rows(range(10, 20))], number=1)
        table.compact()
        table.expire()
        assert other.commit(batch, NO_BROKER).status == "committed"
        for reader, offsets in read_by_others(table, tmp_path).items():
            assert offsets == list(range(20)), reader


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_commit_whose_files_are_gone_fails_and_the_batch_can_come_again(table_format: str, tmp_path: Path) -> None:
    with made(table_format, tmp_path) as table:
        commit(table, [rows(range(10))], number=0)
        batch = written(table, [rows(range(10, 20)), rows(range(20, 30))], number=1)
        table.discard(batch.files[1:])
        with pytest.raises(FilesLost, match=r"1 of the 2 files of a batch for the table \S+ were deleted or cut"):
            table.commit(batch, NO_BROKER)
        assert offsets_in(table) == list(range(10))
        assert commit(table, [rows(range(10, 30))], number=1).status == "committed"
        assert offsets_in(table) == list(range(30))


@pytest.mark.parametrize(("replaced_s", "kept"), [(80 * 60, True), (100 * 60, False)])
def test_delta_counts_seconds_not_hours(tmp_path: Path, replaced_s: int, kept: bool) -> None:
    with made("delta", tmp_path, expireAfter="90m") as table:
        for number in range(3):
            commit(table, [rows([number])], number=number)
        table.compact()
        age_files(tmp_path)
        _date_back(max((tmp_path / "table" / "_delta_log").glob("*.json")), replaced_s)
        assert table.expire().files == (0 if kept else 3)
        assert len([*tmp_path.rglob("part-*")]) == (4 if kept else 1)
        assert offsets_in(table) == [0, 1, 2]


def _date_back(commit_file: Path, seconds: int) -> None:
    """The commit and the files it replaced, as if it had been made so long ago."""
    then_ms = int((time.time() - seconds) * 1000)

    def dated(action: dict[str, Any]) -> dict[str, Any]:
        if "remove" in action:
            action["remove"]["deletionTimestamp"] = then_ms
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = then_ms
        return action

    actions = [dated(json.loads(line)) for line in commit_file.read_text().splitlines()]
    commit_file.write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_delta_keeps_replaced_files_as_long_as_asked_even_where_checkpoints_forget_them(tmp_path: Path) -> None:
    with made("delta", tmp_path, expireAfter="20d") as table:
        for number in range(3):
            commit(table, [rows([number])], number=number)
        table.compact()
        age_files(tmp_path)
        _date_back(max((tmp_path / "table" / "_delta_log").glob("*.json")), 10 * 24 * HOUR_S)
        table.expire()
        commit(table, [rows([3])], number=3)
        table.expire()
        assert len([*tmp_path.rglob("part-*")]) == 5
        with_options(table, expire_after_s=9.0 * 24 * HOUR_S)
        assert table.expire().files == 3
