"""Spark finds this module by its name and the class in it by its: ``format("barnabas")`` needs no registration.

Spark imports every module that is called ``pyspark_…`` when a session first uses a Python source, and an import that
fails takes all of them down. So pyspark alone is imported here, and the rest when it is used.
"""
# ruff: noqa: N802, PLC0415 -- Spark's names of methods, and imports where they are needed: see above

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

TABLE_FORMAT = "tableFormat"


class DefaultSource(DataSource):
    """Topics of any broker that speaks Kafka's protocol, with the options of Spark's own Kafka source and sink.

    spark.readStream.format("barnabas").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "t")
    """

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        from barnabas.spark.source import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from barnabas.spark.source import reader

        return reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if TABLE_FORMAT in self.options:
            from barnabas.spark.tables.sink import writer as table_writer

            made = table_writer(self.options, schema, streaming=False, overwrite=overwrite)
            return cast("DataSourceWriter", made)
        from barnabas.spark.options import SparkOptionError
        from barnabas.spark.sink import writer

        if overwrite:
            raise SparkOptionError("the mode overwrite cannot be had: a topic only grows, append is right")
        return cast("DataSourceWriter", writer(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if TABLE_FORMAT in self.options:
            from barnabas.spark.tables.sink import writer as table_writer

            made = table_writer(self.options, schema, streaming=True, overwrite=overwrite)
            return cast("DataSourceStreamWriter", made)
        from barnabas.spark.sink import writer

        return cast("DataSourceStreamWriter", writer(self.options, schema, streaming=True))
