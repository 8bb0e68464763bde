"""A table by its options. The library of a format is loaded when such a table is opened, not before."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables.base import Table
from barnabas.spark.tables.options import TableOptions, parse


def open_table(options: TableOptions | Mapping[str, str]) -> Table:
    """Opens nothing on the disk yet; ``prepare`` creates what is missing. Raises SparkOptionError."""
    found = options if isinstance(options, TableOptions) else parse(options)
    try:
        return _class_of(found.format)(found)
    except ImportError as error:
        package = {"delta": "deltalake", "iceberg": "pyiceberg[sql-sqlite]"}.get(found.format, "pyarrow")
        raise SparkOptionError(
            f"tableFormat is {found.format!r}, which needs the package {package}: {error}"
        ) from error


def _class_of(table_format: str) -> type[Table]:
    # Each of these imports a large library: only the one that is asked for is loaded.
    if table_format == "delta":
        from barnabas.spark.tables.delta import Delta  # noqa: PLC0415

        return Delta
    if table_format == "iceberg":
        from barnabas.spark.tables.iceberg import Iceberg  # noqa: PLC0415

        return Iceberg
    from barnabas.spark.tables.parquet import Parquet  # noqa: PLC0415

    return Parquet
