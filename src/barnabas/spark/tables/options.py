"""The options of the table sink: names, defaults, what they take. Names do not depend on case, as all in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.spark import client_settings
from barnabas.spark.client_settings import GivenOptions, SparkOptionError, nearest
from barnabas.spark.tables.partitioning import PartitionField, parse_fields
from barnabas.spark.tables.state import Scope

FORMATS = ("delta", "iceberg")
PARQUET = "parquet"
"""No format of this sink: Spark writes plain Parquet itself."""
OFFSET_SCOPES = ("", "application", "table")
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
CATALOG = "catalog."

DEFAULT_TARGET_BYTES = 128 * 1024 * 1024
DEFAULT_COMPACT_EVERY = 100
DEFAULT_EXPIRE_AFTER_S = {"delta": 7 * 86400.0, "iceberg": 86400.0}
MIN_EXPIRE_AFTER_S = 3600.0
"""Readers open files of the snapshot they began with: those must not go under a query that is still running."""
MIN_ORPHAN_AGE_S = 86400.0
"""Files that no commit refers to may belong to a batch that is still being written, so they stay this long at least."""
DEFAULT_RETAIN_SNAPSHOTS = 10

NAMES = (
    "tableFormat",
    "path",
    "table",
    "applicationId",
    "batchId",
    "partitionBy",
    "targetFileSize",
    "compression",
    "mergeSchema",
    "failOnDataLoss",
    "trackOffsets",
    "offsetScope",
    "compactEvery",
    "expireAfter",
    "retainSnapshots",
)

_OF_SPARK = ("checkpointlocation", "queryname", "outputmode")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    format: str
    path: str
    """The folder of the table; with Iceberg, of the warehouse. Empty where a catalog knows it."""
    table: str
    """Iceberg only: namespace and name."""
    catalog: dict[str, str]
    application_id: str | None
    batch_id: int | None
    """Of a batch write that may be repeated."""
    partition_by: tuple[PartitionField, ...] | None
    """None where the option is not given: then a table that is there stays as it is."""
    target_bytes: int
    compression: str
    merge_schema: bool
    track_offsets: bool | None
    """None: where the rows have the columns topic, partition and offset."""
    fail_on_data_loss: bool
    """Whether a topic that was deleted and created again is refused."""
    offset_scope: str
    """What happens to offsets that another application has written: see OFFSET_SCOPES; "" refuses them."""
    compact_every: int
    """Commits; 0 for never."""
    expire_after_s: float
    retain_snapshots: int
    kafka: dict[str, str]
    """For questions about gaps; empty where no broker is to be asked."""

    @property
    def scope(self) -> Scope:
        return Scope(self.application_id or "", is_apart=self.offset_scope == "application")

    @property
    def orphan_age_s(self) -> float:
        """How long ago a file that no commit refers to must have been written to be deleted."""
        return max(self.expire_after_s, MIN_ORPHAN_AGE_S)


def parse(options: Mapping[str, str]) -> TableOptions:
    """Raises SparkOptionError."""
    given = GivenOptions(options, NAMES, _OF_SPARK, (CATALOG, client_settings.PREFIX), _unknown)
    if (given.text("tableFormat") or "").lower() == PARQUET:
        raise SparkOptionError("tableFormat is 'parquet': Spark writes plain Parquet itself, with format('parquet')")
    form = given.choice("tableFormat", FORMATS)
    kafka = client_settings.without_prefix(options)
    if kafka:
        client_settings.check(kafka)
    catalog = {
        name.lower().removeprefix(CATALOG): value for name, value in options.items() if name.lower().startswith(CATALOG)
    }
    _check_place(form, given, catalog)
    return TableOptions(
        format=form,
        path=given.text("path") or "",
        table=given.text("table") or "",
        catalog=catalog,
        application_id=given.text("applicationId") or None,
        batch_id=given.number("batchId", None, smallest=0),
        partition_by=_fields(given.text("partitionBy")),
        target_bytes=given.size("targetFileSize", DEFAULT_TARGET_BYTES),
        compression=given.choice("compression", COMPRESSIONS),
        merge_schema=given.flag("mergeSchema", False),
        track_offsets=given.flag("trackOffsets", None),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        offset_scope=_offset_scope(given),
        compact_every=given.number("compactEvery", DEFAULT_COMPACT_EVERY, smallest=0),
        expire_after_s=_expire_after_s(given, form),
        retain_snapshots=given.number("retainSnapshots", DEFAULT_RETAIN_SNAPSHOTS, smallest=0) or 1,
        kafka=kafka,
    )


def _check_place(form: str, given: GivenOptions, catalog: Mapping[str, str]) -> None:
    path, table = given.text("path"), given.text("table")
    if form != "iceberg":
        if table or catalog:
            name = "table" if table else f"{CATALOG}{next(iter(catalog))}"
            raise SparkOptionError(f"{name} is for tableFormat iceberg: a {form} table is named by its path")
        if not path:
            raise SparkOptionError(f"path is missing: the folder of the {form} table, as in start('/data/orders')")
        return
    parts = (table or "").split(".")
    if len(parts) < 2 or not all(parts):
        raise SparkOptionError(f"table is {table or ''!r}: NAMESPACE.NAME of the Iceberg table is right")
    if not path and not (catalog.get("uri") or catalog.get("type")):
        raise SparkOptionError("path is missing: the warehouse folder, or else catalog.uri and catalog.type")


def _offset_scope(given: GivenOptions) -> str:
    found = given.choice("offsetScope", OFFSET_SCOPES)
    if found == "application" and not given.text("applicationId"):
        raise SparkOptionError("offsetScope is 'application': it needs an applicationId whose offsets are compared")
    return found


def _fields(text: str | None) -> tuple[PartitionField, ...] | None:
    if text is None:
        return None
    try:
        return parse_fields(text)
    except ValueError as error:
        raise SparkOptionError(f"partitionBy is {text!r}: {error}") from None


def _expire_after_s(given: GivenOptions, form: str) -> float:
    seconds = given.duration_s("expireAfter", DEFAULT_EXPIRE_AFTER_S[form])
    if seconds < MIN_EXPIRE_AFTER_S:
        value, least = given.text("expireAfter"), MIN_EXPIRE_AFTER_S
        raise SparkOptionError(
            f"expireAfter is {value!r}: it must be at least {least:.0f}s, so that readers can finish"
        )
    return seconds


def _unknown(name: str, _known: Iterable[str]) -> str:
    near = nearest(name, NAMES)
    known = f"known are {', '.join(NAMES)}, and {CATALOG}* and kafka.*"
    return f"{name} is no option of the table sink: " + (f"{near}?" if near else known)
