"""A table by its options. The library of a format is loaded when such a table is opened, not before."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables.base import Table
from barnabas.spark.tables.folder import ParquetFolder
from barnabas.spark.tables.options import FORMATS, PARQUET, TableOptions, parse
from barnabas.spark.tables.readable import Readable


def open_table(options: TableOptions | Mapping[str, str]) -> Table:
    """Opens nothing on the disk yet; ``prepare`` creates what is missing. Raises SparkOptionError."""
    found = options if isinstance(options, TableOptions) else parse(options)
    try:
        return _class_of(found.format)(found)
    except ImportError as error:
        package = {"delta": "deltalake", "iceberg": "pyiceberg[sql-sqlite]"}[found.format]
        raise SparkOptionError(
            f"tableFormat is {found.format!r}, which needs the package {package}: {error}"
        ) from error


def open_readable(options: Mapping[str, str]) -> Readable:
    """A table, or a folder of plain Parquet files. Raises SparkOptionError."""
    return ParquetFolder(options) if options.get("tableFormat") == PARQUET else open_table(options)


def _class_of(table_format: str) -> type[Table]:
    # Each of these imports a large library: only the one that is asked for is loaded.
    if table_format == "delta":
        from barnabas.spark.tables.delta import Delta  # noqa: PLC0415

        return Delta
    from barnabas.spark.tables.iceberg import Iceberg  # noqa: PLC0415

    return Iceberg


FORMS = "delta:/data/orders, parquet:/data/orders or iceberg:/warehouse#sales.orders"


def is_table(name: str) -> bool:
    """Whether a name is a table's: topics have no colon in theirs."""
    return ":" in name


def table_options(name: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options of the table or Parquet folder, from ``FORMAT:PLACE``. Raises SparkOptionError."""
    form, colon, place = name.partition(":")
    if not colon or form not in (*FORMATS, PARQUET) or not place:
        raise SparkOptionError(f"{name!r} names no table: {FORMS} do")
    options = {"tableFormat": form}
    if form == "iceberg":
        path, _, table = place.rpartition("#")
        options["table"] = table
        if path:
            options["path"] = path
    else:
        options["path"] = place
    return {**options, **(given or {})}
