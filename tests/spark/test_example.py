"""The example in ``examples/pipeline``: parts of it that went wrong before."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from barnabas.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"


@pytest.fixture(autouse=True)
def example_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)


def state(status: str) -> bytes:
    return json.dumps({"customer": "c", "item": "lamp", "amount": 1.5, "status": status, "time": 1}).encode()


def test_a_second_snapshot_takes_the_place_of_the_first(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, fill: Callable[..., None], tmp_path: Path
) -> None:
    from queries import Shop  # type: ignore[import-not-found]

    shop = Shop(spark, broker.bootstrap_servers, tmp_path)
    fill(topic, [(b"o-1", state("placed")), (b"o-2", state("placed"))])
    assert shop.snapshot(topic, "orders") == 2
    fill(topic, [(b"o-1", state("shipped"))])
    for _ in range(2):
        assert shop.snapshot(topic, "orders") == 2
        rows = DeltaTable(str(shop.table("orders"))).to_pyarrow_table().sort_by("order")
        assert rows.select(["order", "status"]).to_pylist() == [
            {"order": "o-1", "status": "shipped"},
            {"order": "o-2", "status": "placed"},
        ]


def test_axes_of_counts_and_times_begin_at_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plots: Any = pytest.importorskip("plots")
    limits: dict[str, list[tuple[float, float]]] = {}
    save = plots._save

    def note(figure: Any, file: Path, title: str) -> Path:
        found: Path = save(figure, file, title)
        limits[file.stem] = [(axes.get_xlim()[0], axes.get_ylim()[0]) for axes in figure.axes]
        return found

    monkeypatch.setattr(plots, "_save", note)
    minutes = [datetime(2024, 5, 6, 12, number, tzinfo=UTC) for number in range(3)]
    speed = pa.table(
        {"minute": minutes, "page": ["home"] * 3, "per_second": [0.1, 9.0, 4.0], "p99_ms": [3.0, 90.0, 5.0]}
    )
    write_deltalake(str(tmp_path / "page_speed"), speed)
    write_deltalake(str(tmp_path / "paid_orders"), pa.table({"delay_ms": [10, 5000, 90_000]}))
    write_deltalake(str(tmp_path / "order_snapshot"), pa.table({"status": ["placed", "shipped"]}))
    plots.draw(tmp_path, tmp_path)
    assert [low for _, low in limits["page-speed"]] == [0, 0]
    assert limits["payment-delay"] == [(0, 0)]
    assert limits["order-states"][0][1] == 0
