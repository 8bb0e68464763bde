"""Tables by a name that fits on a command line."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables.options import FORMATS, PARQUET

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
