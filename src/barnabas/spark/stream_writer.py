"""A writer of streams that is handed Arrow batches, whichever Spark runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

__all__ = ["StreamArrowWriter"]

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 has no class for it, but goes by this one's second base when it decides between Arrow and rows."""
