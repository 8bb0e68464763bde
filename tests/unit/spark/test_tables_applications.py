"""Several applications write rows of the same records to one table: none of their rows is dropped silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.model.ids import TopicPartition
from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables.errors import AnotherApplication
from barnabas.spark.tables.options import parse
from barnabas.spark.tables.state import (
    MAX_WRITERS_WITH_COVERAGE,
    Range,
    Scope,
    TableState,
    Writer,
    dump_state,
    load_state,
)
from barnabas.spark.verify import verify
from tests.unit.spark.tables_kit import FORMATS, commit, made, offsets_in, rows

ORDERS = TopicPartition("orders", 0)
REFUSED = (
    r"rows of orders-0 at offsets 50 to 99 are in the table already, written by the application totals, and come again "
    r"from the application items\. .* offsetScope to table .* offsetScope to application"
)


@pytest.fixture(params=FORMATS)
def table_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_same_offsets_from_another_application_are_refused(table_format: str, tmp_path: Path) -> None:
    with made(table_format, tmp_path) as table:
        commit(table, [rows(range(100))], writer="q1", application="totals")
        before = sorted(tmp_path.rglob("part-*"))
        with pytest.raises(AnotherApplication, match=REFUSED):
            commit(table, [rows(range(50, 150))], writer="q2", application="items")
        assert sorted(tmp_path.rglob("part-*")) == before
        assert offsets_in(table) == list(range(100))
        assert commit(table, [rows(range(100, 150))], writer="q2", application="items").rows == 50


def test_applications_that_are_kept_apart_both_have_their_rows(table_format: str, tmp_path: Path) -> None:
    with made(table_format, tmp_path) as table:
        commit(table, [rows(range(100))], writer="q1", application="totals")
        items = {"application": "items", "offset_scope": "application"}
        assert commit(table, [rows(range(150))], writer="q2", **items).rows == 150
        assert commit(table, [rows(range(150))], writer="q3", **items).status == "empty"  # a new checkpoint
        assert commit(table, [rows(range(100, 150))], writer="q1", number=1, application="totals").rows == 50
        assert commit(table, [rows(range(160))], writer="q4", application="totals").rows == 10
        assert offsets_in(table) == sorted([*range(150), *range(160)])
        report = verify(table, None, "orders")
        assert "several applications wrote rows (items, totals): a record may have a row of each" in report.notes[-1]


def test_rows_of_any_application_may_be_left_out(table_format: str, tmp_path: Path) -> None:
    with made(table_format, tmp_path) as table:
        commit(table, [rows(range(100))], writer="q1", application="old")
        commit(table, [rows([120])], writer="q2", application="older", offset_scope="application")
        outcome = commit(table, [rows(range(150))], writer="q3", application="new", offset_scope="table")
        assert outcome.rows == 49
        assert offsets_in(table) == list(range(150))


def test_applications_with_other_filters_share_a_table(table_format: str, tmp_path: Path) -> None:
    """No row of one has an offset of the other: there is nothing to ask about."""
    with made(table_format, tmp_path) as table:
        commit(table, [rows(range(0, 100, 2))], writer="q1", application="even")
        assert commit(table, [rows(range(1, 100, 2))], writer="q2", application="odd").rows == 50
        assert offsets_in(table) == list(range(100))


def test_an_application_id_is_another_application_than_none(tmp_path: Path) -> None:
    with made("delta", tmp_path) as table:
        commit(table, [rows(range(10))], writer="q1")
        with pytest.raises(AnotherApplication, match="written by a query without applicationId, and come again from"):
            commit(table, [rows(range(10))], writer="q2", application="items")


def test_batch_writes_belong_to_their_application(tmp_path: Path) -> None:
    with made("delta", tmp_path) as table:
        commit(table, [rows(range(10))], writer="run-1", number=None, application="daily")
        assert commit(table, [rows(range(20))], writer="run-2", number=None, application="daily").rows == 10
        with pytest.raises(AnotherApplication, match="written by the application daily"):
            commit(table, [rows(range(10))], writer="run-3", number=None)


def test_applications_are_told_apart_however_many_writers_there_were() -> None:
    item = Range(partition=ORDERS, start=0, end=5, rows=5, offsets=5, checksum=None)
    state = TableState()
    for number in range(3 * MAX_WRITERS_WITH_COVERAGE):
        application = ("", "a", "b")[number % 3]
        scope = Scope(application, is_apart=application == "b")
        state = state.after(f"q{number}", Writer(application=application or f"q{number}", batch=0), [item], scope)
    assert load_state(dump_state(state)) == state
    assert len(state.coverage) == MAX_WRITERS_WITH_COVERAGE + 3
    assert {state.scope_of(owner) for owner in state.coverage} == {Scope(), Scope("a"), Scope("b", is_apart=True)}
    assert state.applications("orders") == {"", "a", "b"}


def test_a_state_from_before_there_were_scopes() -> None:
    item = Range(partition=ORDERS, start=0, end=5, rows=5, offsets=5, checksum=None)
    state = TableState().after("q1", Writer(application="a", batch=0), [item])
    state = state.after("q2", Writer(application="q2", batch=0), [item])
    found = json.loads(dump_state(state))
    del found["scopes"]
    loaded = load_state(json.dumps(found))
    assert (loaded.scope_of("q1"), loaded.scope_of("q2")) == (Scope("a"), Scope())


def test_an_offset_scope_needs_an_application() -> None:
    with pytest.raises(SparkOptionError, match="offsetScope is 'application': it needs an applicationId"):
        parse({"path": "/x", "offsetScope": "application"})
    with pytest.raises(SparkOptionError, match="offsetScope is 'world': application or table is right"):
        parse({"path": "/x", "offsetScope": "world"})
