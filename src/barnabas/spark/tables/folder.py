"""A folder of Parquet files as Spark's own file sink writes it, for reading.

A streaming query records the files of each batch in ``_spark_metadata``: only those count, so files of a batch that was
cut off are left out. Without that log (a batch write) every Parquet file in the folder counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds

from barnabas.spark.client_settings import SparkOptionError
from barnabas.spark.tables import files
from barnabas.spark.tables.errors import TableError
from barnabas.spark.tables.files import Place, open_place
from barnabas.spark.tables.options import PARQUET
from barnabas.spark.tables.readable import ALL_ROWS, CommitInfo, Readable, Rows, filter_of
from barnabas.spark.tables.schema import UTC_TIMESTAMP, for_format
from barnabas.spark.tables.state import TableState

SINK_LOG = "_spark_metadata"
SINK_LOG_VERSION = "v1"
COMPACT = ".compact"

OPTIONS = ("compression", "partitionBy", "failOnDataLoss")
"""What ``pipeline archive`` takes for a folder. The last one is for the source."""


class ParquetFolder(Readable):
    records_offsets = False

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises SparkOptionError."""
        known = {name.lower() for name in ("tableFormat", "path", *OPTIONS)}
        for name in options:
            if name.lower() not in known and not name.lower().startswith("kafka."):
                raise SparkOptionError(f"{name} is no option of a Parquet folder: {', '.join(OPTIONS)} are known")
        self.path = options.get("path", "")
        self._place = open_place(self.path)
        self._opened: ds.Dataset | None = None
        self._state: TableState | None = None

    @property
    def name(self) -> str:
        return self.path

    def exists(self) -> bool:
        return bool(self._files())

    def schema(self) -> pa.Schema:
        return self._dataset().schema

    def state(self) -> TableState:
        if self._state is None:
            self._state = self.rebuilt_state()
        return self._state

    def read(self, columns: Sequence[str], rows: Rows = ALL_ROWS) -> Iterator[pa.RecordBatch]:
        yield from self._dataset().scanner(columns=list(columns), filter=filter_of(rows)).to_batches()

    def commits(self) -> list[CommitInfo]:
        return []

    def _files(self) -> list[str]:
        batches = sink_batches(self._place)
        if not batches:
            return [path for path, _ in files.listed(self._place) if _is_data(path)]
        return [path for number in batches for path in _logged(self._place, number)]

    def _dataset(self) -> ds.Dataset:
        if self._opened is None:
            found = [self._place.path(path) for path in self._files()]
            if not found:
                raise TableError(f"there are no Parquet files in {self.name}")
            # Spark may write times as INT96, which pyarrow takes for nanoseconds.
            form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
            options = ds.FileSystemFactoryOptions(
                partition_base_dir=self._place.root, partitioning=ds.HivePartitioning.discover()
            )
            factory = ds.FileSystemDatasetFactory(self._place.filesystem, found, form, options)
            self._opened = factory.finish(_with_utc(factory.inspect(promote_options="permissive")))
        return self._opened


def sink_batches(place: Place) -> list[str]:
    """The names of the log's files that together list all batches: the last compacted one, and those after it."""
    numbers = {
        int(name.removesuffix(COMPACT)): name
        for name in files.names(place, SINK_LOG)
        if name.removesuffix(COMPACT).isdigit()
    }
    compacted = max((number for number, name in numbers.items() if name.endswith(COMPACT)), default=-1)
    return [name for number, name in sorted(numbers.items()) if number >= compacted]


def _logged(place: Place, name: str) -> Iterator[str]:
    """Paths in the folder. Raises TableError."""
    with place.filesystem.open_input_file(place.path(f"{SINK_LOG}/{name}")) as stream:
        version, *lines = stream.read().decode().splitlines()
    if version != SINK_LOG_VERSION:
        raise TableError(f"{place.root}/{SINK_LOG}/{name} has version {version!r}: {SINK_LOG_VERSION} is known")
    for line in lines:
        path = unquote(urlsplit(json.loads(line)["path"]).path)
        _, is_below, relative = path.partition(f"{place.root}/")
        if not is_below:
            raise TableError(f"{SINK_LOG} of {place.root} names the file {path}: the folder was moved")
        yield relative


def _is_data(path: str) -> bool:
    """Spark and others leave out names that begin with an underscore or a dot."""
    hidden = (part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))
    return path.endswith(".parquet") and not any(hidden)


def _with_utc(schema: pa.Schema) -> pa.Schema:
    """INT96 has no time zone. What Spark writes so is in UTC."""
    plain = for_format(schema, PARQUET)
    return pa.schema([each.with_type(UTC_TIMESTAMP) if pa.types.is_timestamp(each.type) else each for each in plain])
