"""Code of docs/SPARK.md that other programs are told to use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from barnabas.client.arrow.columns import arrow_schema
from barnabas.spark.tables.formats import open_table
from barnabas.spark.tables.schema import for_format
from tests.unit.spark.tables_kit import commit, rows

DOCS = Path(__file__).parents[3] / "docs" / "SPARK.md"


def test_an_iceberg_table_is_opened_with_pyiceberg(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (example,) = [code for code in blocks if "load_catalog" in code]
    warehouse = tmp_path / "warehouse"
    with open_table({"tableFormat": "iceberg", "path": str(warehouse), "table": "sales.orders"}) as table:
        table.prepare(for_format(arrow_schema(False), "iceberg"))
        commit(table, [rows(range(120))])
    found: dict[str, Any] = {}
    try:
        exec(example.replace("/data/warehouse", str(warehouse)), found)
        assert found["rows"]["offset"].to_pylist() == list(range(100, 120))
        assert set(found["rows"].column_names) == {"partition", "offset", "value"}
    finally:
        if "catalog" in found:
            found["catalog"].close()
