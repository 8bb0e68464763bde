"""Tables of both formats: every batch once, whatever happens, and the same rows for readers of every kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from barnabas.client.arrow.columns import arrow_schema
from barnabas.model.ids import TopicPartition
from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables.base import Table
from barnabas.spark.tables.errors import AnotherCheckpoint, NotWritable, SchemaChanged, TableError
from barnabas.spark.tables.state import Gap
from tests.unit.spark.tables_kit import (
    DAY_US,
    FORMATS,
    NO_BROKER,
    TIME_US,
    age_files,
    commit,
    job_of,
    made,
    offsets_in,
    opened,
    read_by_others,
    rows,
    with_options,
    written,
)

ORDERS = TopicPartition("orders", 0)


@pytest.fixture(params=FORMATS)
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(table_format: str, tmp_path: Path) -> Iterator[Table]:
    with made(table_format, tmp_path) as found:
        yield found


def test_batches_go_in_and_readers_of_every_kind_see_the_same_rows(table: Table, tmp_path: Path) -> None:
    for number in range(3):
        first = number * 100
        outcome = commit(table, [rows(range(first, first + 60)), rows(range(first + 60, first + 100))], number=number)
        assert (outcome.status, outcome.rows) == ("committed", 100)
    assert offsets_in(table) == list(range(300))
    for reader, offsets in read_by_others(table, tmp_path).items():
        assert offsets == list(range(300)), reader


def test_all_columns_come_back_as_they_were(table: Table) -> None:
    whole = rows(range(50))
    commit(table, [whole])
    found = pa.Table.from_batches(table.read(whole.schema.names)).sort_by("offset")
    assert found.equals(pa.Table.from_batches([whole]))


def test_a_replayed_batch_is_skipped_and_its_files_go(table: Table, tmp_path: Path) -> None:
    commit(table, [rows(range(100))], number=5)
    before = sorted(Path(tmp_path).rglob("*.parquet*"))
    for number in (5, 4):
        outcome = commit(table, [rows(range(100))], number=number, job=job_of_writer(table))
        assert outcome.status == "replayed"
    assert offsets_in(table) == list(range(100))
    assert sorted(Path(tmp_path).rglob("*.parquet*")) == before


def job_of_writer(table: Table) -> Any:
    """A job whose executors know nothing of what is there."""
    return replace(job_of(table), covered={})


def test_a_new_checkpoint_starts_over_without_a_row_twice(table: Table) -> None:
    commit(table, [rows(range(100)), rows(range(40), partition=1)], number=7)
    outcome = commit(table, [rows(range(150)), rows(range(60), partition=1)], writer="new", number=0)
    assert (outcome.status, outcome.rows) == ("committed", 70)
    assert offsets_in(table, partition=0) == list(range(150))
    assert offsets_in(table, partition=1) == list(range(60))
    assert [(item.start, item.end) for item in outcome.ranges] == [(100, 150), (40, 60)]
    again = commit(table, [rows(range(150))], writer="third", number=0)
    assert again.status == "empty"
    assert table.state().ends() == {ORDERS: 150, TopicPartition("orders", 1): 60}


def test_rows_that_another_writer_brought_in_the_meantime_are_taken_out_again(table: Table) -> None:
    """The executors looked before the other one committed: the driver finds out when it commits."""
    late = written(table, [rows(range(50, 150)), rows(range(150, 160)), rows(range(60, 70))], writer="late")
    commit(table, [rows(range(100))], writer="early")
    outcome = table.commit(late, NO_BROKER)
    assert (outcome.status, outcome.rows, outcome.trimmed) == ("committed", 60, 60)
    assert offsets_in(table) == list(range(160))


def test_two_queries_with_other_filters_share_a_table(table: Table) -> None:
    """Ranges with holes do not claim the rows that a filter kept out."""
    for number in range(3):
        first = number * 100
        commit(table, [rows(range(first, first + 100, 2))], writer="even", number=number)
    outcome = commit(table, [rows(range(1, 300, 2))], writer="odd", number=0)
    assert (outcome.status, outcome.rows) == ("committed", 150)
    assert offsets_in(table) == list(range(300))
    replay = commit(table, [rows(range(0, 300, 2))], writer="even-again", number=0)
    assert (replay.status, replay.trimmed) == ("covered", 150)
    assert offsets_in(table) == list(range(300))


def test_one_query_may_send_a_record_out_twice(table: Table) -> None:
    """As a join does: within a checkpoint the numbers of batches decide, not offsets."""
    commit(table, [rows(range(10))], number=0)
    assert commit(table, [rows([3, 4])], number=1).status == "committed"
    assert offsets_in(table) == sorted([*range(10), 3, 4])


def test_a_batch_write_without_a_number_counts_by_its_offsets(table: Table) -> None:
    assert commit(table, [rows(range(30))], writer="run-1", number=None).rows == 30
    assert commit(table, [rows(range(50))], writer="run-2", number=None).rows == 20
    assert commit(table, [rows([70, 90])], writer="run-3", number=None).rows == 2
    assert commit(table, [rows(range(60, 100))], writer="run-4", number=None).rows == 38
    assert offsets_in(table) == [*range(50), *range(60, 100)]
    assert table.state().writers == {}


def test_gaps_are_noted_with_the_commit(table: Table) -> None:
    commit(table, [rows(range(10))], number=0)
    outcome = commit(table, [rows([12, 13, 20])], number=1)
    (found,) = outcome.ranges
    assert (found.start, found.end, found.rows) == (10, 21, 3)
    assert found.gaps == (Gap(10, 12, "unknown"), Gap(14, 20, "unknown"))
    assert table.commits()[0].ranges == (found,)
    assert (table.commits()[0].application, table.commits()[0].batch, table.commits()[0].rows) == ("q", 1, 3)


def test_columns_are_added_where_that_is_allowed(table_format: str, tmp_path: Path) -> None:
    wide = arrow_schema(False).append(pa.field("country", pa.string()))

    def with_country(offsets: range) -> pa.RecordBatch:
        return rows(offsets).append_column("country", pa.array(["CH"] * len(offsets)))

    with made(table_format, tmp_path) as table:
        commit(table, [rows(range(5))], number=0)
    with (
        pytest.raises(SchemaChanged, match="has no column country: set mergeSchema"),
        made(table_format, tmp_path, wide),
    ):
        pass
    with made(table_format, tmp_path, wide, mergeSchema="true") as table:
        commit(table, [with_country(range(5, 10))], number=1)
    with made(table_format, tmp_path) as table:  # the old query, still without the column
        commit(table, [rows(range(10, 12))], number=2)
        found = pa.Table.from_batches(table.read(["offset", "country"])).sort_by("offset")
        assert found["country"].to_pylist() == [None] * 5 + ["CH"] * 5 + [None] * 2


def test_a_changed_type_is_refused_by_its_column(table_format: str, tmp_path: Path) -> None:
    plain = arrow_schema(False)
    changed = plain.set(plain.get_field_index("value"), pa.field("value", pa.int64()))
    with made(table_format, tmp_path):
        pass
    with (
        pytest.raises(SchemaChanged, match="the column value is int64, but binary in the table"),
        made(table_format, tmp_path, changed, mergeSchema="true"),
    ):
        pass


def test_partitions_by_column_and_day(table_format: str, tmp_path: Path) -> None:
    with made(table_format, tmp_path, partitionBy="topic, day(timestamp)") as table:
        commit(table, [rows(range(20)), rows(range(5), topic="payments"), rows(range(20, 30), day=1)], number=0)
        mixed = pa.Table.from_batches([rows(range(30, 35)), rows(range(5, 9), topic="payments", day=2)])
        commit(table, mixed.combine_chunks().to_batches(), number=1)
        assert offsets_in(table, topic="orders") == list(range(35))
        assert offsets_in(table, topic="payments") == list(range(9))
        assert offsets_in(table, since_us=TIME_US + 2 * DAY_US) == list(range(5, 9))
        folders = {str(Path(file.removeprefix("file://")).parent) for file in table.files()}
        assert {"/".join(folder.split("/")[-2:]) for folder in folders} == {
            "topic=orders/timestamp_day=2023-11-14",
            "topic=orders/timestamp_day=2023-11-15",
            "topic=payments/timestamp_day=2023-11-14",
            "topic=payments/timestamp_day=2023-11-16",
        }
        found = pa.Table.from_batches(table.read(["topic", "offset"]))
        assert sorted(set(found["topic"].to_pylist())) == ["orders", "payments"]
        assert len(table.state().total()) == 2
        compacted = table.compact()
        assert compacted.files_after < compacted.files_before
        assert offsets_in(table, topic="payments") == list(range(9))
    with made(table_format, tmp_path) as table:
        assert commit(table, [rows(range(35, 40))], number=2).rows == 5
    reason = r"partitionBy is 'topic', but the table .* by topic,day\(timestamp\)"
    with pytest.raises(SparkOptionError, match=reason), made(table_format, tmp_path, partitionBy="topic"):
        pass


def test_partitions_of_delta_are_columns_to_other_readers(tmp_path: Path) -> None:
    with made("delta", tmp_path / "d", partitionBy="topic,day(timestamp)") as table:
        commit(table, [rows(range(5), topic="a b/c")], number=0)
        read = deltalake.DeltaTable(str(tmp_path / "d" / "table")).to_pyarrow_table()
        assert set(read["topic"].to_pylist()) == {"a b/c"}
        assert str(read["timestamp_day"][0]) == "2023-11-14"


def test_a_column_of_nulls_makes_a_folder_as_well(table_format: str, tmp_path: Path) -> None:
    wide = arrow_schema(False).append(pa.field("country", pa.string()))
    with made(table_format, tmp_path, wide, partitionBy="country") as table:
        mixed = rows(range(4)).append_column("country", pa.array(["CH", None, "CH", None]))
        commit(table, [mixed], number=0)
        found = pa.Table.from_batches(table.read(["offset", "country"])).sort_by("offset")
        assert found["country"].to_pylist() == ["CH", None, "CH", None]
        assert len(table.files()) == 2


def test_small_files_are_put_together_and_nothing_is_lost(table: Table, tmp_path: Path) -> None:
    for number in range(6):
        commit(table, [rows(range(number * 10, number * 10 + 10))], number=number)
    before = table.state()
    assert table.compact() == (6, 1)
    assert len(table.files()) == 1
    assert table.state() == before
    for reader, offsets in read_by_others(table, tmp_path).items():
        assert offsets == list(range(60)), reader
    assert commit(table, [rows(range(60))], number=3, job=job_of_writer(table)).status == "replayed"
    assert commit(table, [rows(range(70))], number=6, writer="new").rows == 10
    assert offsets_in(table) == list(range(70))
    assert table.compact() == (2, 1)


def test_old_snapshots_go_and_the_coverage_stays(table: Table, tmp_path: Path) -> None:
    with_options(table, expire_after_s=0.0, retain_snapshots=1)
    for number in range(25):
        commit(table, [rows(range(number * 4, number * 4 + 4))], number=number)
    table.compact()
    before = table.state()
    age_files(tmp_path)
    table.expire()
    assert table.state() == before
    assert offsets_in(table) == list(range(100))
    for reader, offsets in read_by_others(table, tmp_path).items():
        assert offsets == list(range(100)), reader
    if table.format != "delta":  # whose log keeps thirty days
        assert len(table.commits()) < 25
    left = [file for file in tmp_path.rglob("*.parquet") if "_delta_log" not in str(file)]
    assert len(left) == 1
    assert commit(table, [rows(range(100))], number=24, job=job_of_writer(table)).status == "replayed"
    assert commit(table, [rows(range(110))], writer="new", number=0).rows == 10


def test_iceberg_keeps_few_snapshots_and_those_whose_files_were_just_replaced(tmp_path: Path) -> None:
    with made("iceberg", tmp_path, retainSnapshots="3") as table:
        for number in range(20):
            commit(table, [rows([number])], number=number)
            table.tidy()
            assert len(table.commits()) <= 13
        table.compact()
        for number in range(20, 40):
            commit(table, [rows([number])], number=number)
            table.tidy()
        assert len(table.commits()) <= 14
        assert table.expire().files == 0
        assert len([*tmp_path.rglob("part-*")]) == 41  # twenty replaced ones with the one that replaced them
        assert offsets_in(table) == list(range(40))


def test_files_that_no_commit_took_are_cleaned_away(table: Table, tmp_path: Path) -> None:
    commit(table, [rows(range(10))], number=0)
    written(table, [rows(range(10, 20))], number=1)  # a driver that died before its commit
    with_options(table, expire_after_s=0.0)
    assert table.expire().files == 0  # it may as well be on its way
    age_files(tmp_path)
    assert table.expire().files == 1
    assert len([*tmp_path.rglob("part-*")]) == 1
    assert offsets_in(table) == list(range(10))


def test_a_delta_log_that_was_cut_is_no_harm(tmp_path: Path) -> None:
    """Checkpoints carry rows and transactions, not what a commit says: offsets are then taken from the rows."""
    with made("delta", tmp_path) as table:
        commit(table, [rows(range(10)), rows(range(4), partition=1)], number=0)
        commit(table, [rows(range(12, 20))], number=1)
        deltalake.DeltaTable(str(tmp_path / "table")).optimize.compact()
        deltalake.DeltaTable(str(tmp_path / "table")).create_checkpoint()
        for file in sorted((tmp_path / "table" / "_delta_log").glob("*.json"))[:-1]:
            file.unlink()
        outcome = commit(table, [rows(range(30)), rows(range(6), partition=1)], writer="new", number=0)
        assert outcome.trimmed == 18 + 4
        assert offsets_in(table, partition=0) == list(range(30))
        assert offsets_in(table, partition=1) == list(range(6))


def test_a_table_of_others_is_taken_on_by_its_rows(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "table"), pa.Table.from_batches([rows(range(50))]))
    with made("delta", tmp_path) as table:
        assert commit(table, [rows(range(80))], number=0).rows == 30
        assert offsets_in(table) == list(range(80))


def test_commits_of_others_on_top_do_not_hide_the_state(tmp_path: Path) -> None:
    with made("delta", tmp_path) as table:
        commit(table, [rows(range(10))], number=0)
        commit(table, [rows(range(10, 20))], number=1)
        deltalake.DeltaTable(str(tmp_path / "table")).optimize.compact()
        assert commit(table, [rows(range(10, 20))], number=1, job=job_of_writer(table)).status == "replayed"
        table.expire()
        info = json.loads(max((tmp_path / "table" / "_delta_log").glob("*.json")).read_text().splitlines()[0])
        assert "barnabas.state" in info["commitInfo"]
        assert deltalake.DeltaTable(str(tmp_path / "table")).transaction_version("q") == 1


def test_a_table_that_was_set_back_takes_the_rows_again(tmp_path: Path) -> None:
    with made("delta", tmp_path) as table:
        for number in range(3):
            commit(table, [rows(range(number * 10, number * 10 + 10))], number=number)
        deltalake.DeltaTable(str(tmp_path / "table")).restore(2)
        assert offsets_in(table) == list(range(20))
        assert table.state().ends() == {ORDERS: 20}
        assert commit(table, [rows(range(40))], writer="new", number=0).rows == 20
        assert offsets_in(table) == list(range(40))
    with made("iceberg", tmp_path / "i") as table:
        for number in range(3):
            commit(table, [rows(range(number * 10, number * 10 + 10))], number=number)
        with load_catalog(
            "default",
            type="sql",
            uri=f"sqlite:///{tmp_path}/i/table/catalog.db",
            warehouse=f"file://{tmp_path}/i/table",
        ) as catalog:
            catalog.load_table("shop.orders").manage_snapshots().rollback_to_snapshot(
                int(table.commits()[1].version)
            ).commit()
        assert offsets_in(table) == list(range(20))
        assert commit(table, [rows(range(40))], writer="new", number=0).rows == 20
        assert offsets_in(table) == list(range(40))


def test_rows_without_offsets_are_guarded_by_numbers_alone(table_format: str, tmp_path: Path) -> None:
    schema = pa.schema([("country", pa.string()), ("orders", pa.int64())])
    counted = pa.record_batch([["CH", "DE"], [3, 4]], schema=schema)
    with made(table_format, tmp_path, schema) as table:
        assert commit(table, [counted], number=0, application="counts").status == "committed"
        assert commit(table, [counted], number=0, application="counts").status == "replayed"
        assert commit(table, [counted], number=1, application="counts").status == "committed"
        with pytest.raises(
            AnotherCheckpoint, match="the application counts wrote to the table with another checkpoint"
        ):
            commit(table, [counted], writer="new", number=0, application="counts")
        assert commit(table, [counted], writer="new", number=0, application="others").status == "committed"
        assert pa.Table.from_batches(table.read(["orders"])).num_rows == 6


def test_a_folder_that_takes_nothing_is_an_error_before_any_row(table_format: str, tmp_path: Path) -> None:
    (tmp_path / "table").write_text("in the way")
    with pytest.raises(NotWritable, match=r"the folder of the table \S+ is not writable"), made(table_format, tmp_path):
        pass


def test_a_table_that_is_not_there_is_said_so(table_format: str, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    with opened(table_format, tmp_path) as table:
        assert not table.exists()
        with pytest.raises(TableError):
            table.state()
