"""The options of the table sink: names, defaults, what they take. Names do not depend on case, as all in Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.spark import client_settings
from barnabas.spark.client_settings import SparkOptionError, nearest
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
_SIZE = re.compile(r"(\d+)\s*(b|kb?|mb?|gb?)?")
_DURATION = re.compile(r"(\d+)\s*(s|m|min|h|d)")
_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


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
    given = _Given(options)
    if (given.text("tableFormat") or "").lower() == PARQUET:
        raise SparkOptionError("tableFormat is 'parquet': Spark writes plain Parquet itself, with format('parquet')")
    form = given.choice("tableFormat", FORMATS)
    kafka = client_settings.without_prefix(options)
    if kafka:
        client_settings.check(kafka)
    catalog = {name.lower()[len(CATALOG) :]: value for name, value in _with_prefix(options, CATALOG)}
    _check_place(form, given, catalog)
    return TableOptions(
        format=form,
        path=given.text("path") or "",
        table=given.text("table") or "",
        catalog=catalog,
        application_id=given.text("applicationId") or None,
        batch_id=given.number("batchId", None),
        partition_by=_fields(given.text("partitionBy")),
        target_bytes=given.size("targetFileSize", DEFAULT_TARGET_BYTES),
        compression=given.choice("compression", COMPRESSIONS),
        merge_schema=given.flag("mergeSchema", False) or False,
        track_offsets=given.flag("trackOffsets", None),
        fail_on_data_loss=given.flag("failOnDataLoss", True) is not False,
        offset_scope=_offset_scope(given),
        compact_every=given.number("compactEvery", DEFAULT_COMPACT_EVERY) or 0,
        expire_after_s=given.duration_s("expireAfter", DEFAULT_EXPIRE_AFTER_S[form], MIN_EXPIRE_AFTER_S),
        retain_snapshots=given.number("retainSnapshots", DEFAULT_RETAIN_SNAPSHOTS) or 1,
        kafka=kafka,
    )


def _with_prefix(options: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in options.items() if name.lower().startswith(prefix))


def _check_place(form: str, given: _Given, catalog: Mapping[str, str]) -> None:
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


def _offset_scope(given: _Given) -> str:
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


class _Given:
    """The options as they were given, by their proper names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        by_lower = {name.lower(): name for name in NAMES}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in by_lower:
                self._values[by_lower[lower]] = str(value).strip()
            elif not (lower in _OF_SPARK or lower.startswith((CATALOG, client_settings.PREFIX))):
                raise SparkOptionError(_unknown(name))

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """The first of them is the default."""
        value = self._values.get(name, choices[0]).lower()
        if value not in choices:
            known = ", ".join(choice for choice in choices if choice)
            raise SparkOptionError(f"{name} is {self._values[name]!r}: {known} are right")
        return value

    def flag(self, name: str, default: bool | None) -> bool | None:
        value = self._values.get(name, "").lower()
        if not value:
            return default
        if value not in ("true", "false"):
            raise SparkOptionError(f"{name} is {value!r}: true or false is right")
        return value == "true"

    def number(self, name: str, default: int | None) -> int | None:
        value = self._values.get(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit()):
            raise SparkOptionError(f"{name} is {value!r}: a whole number is right")
        return int(value)

    def size(self, name: str, default: int) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        found = _SIZE.fullmatch(value.lower())
        if found is None or int(found[1]) == 0:
            raise SparkOptionError(f"{name} is {value!r}: a size such as 64mb is right")
        return int(found[1]) << {"b": 0, "k": 10, "m": 20, "g": 30}[(found[2] or "b")[0]]

    def duration_s(self, name: str, default: float, least: float) -> float:
        value = self._values.get(name)
        if value is None:
            return default
        found = _DURATION.fullmatch(value.lower())
        if found is None:
            raise SparkOptionError(f"{name} is {value!r}: a time such as 12h or 7d is right")
        seconds = int(found[1]) * _UNITS_S[found[2]]
        if seconds < least:
            raise SparkOptionError(f"{name} is {value!r}: it must be at least {least:.0f}s, so that readers can finish")
        return seconds


def _unknown(name: str) -> str:
    near = nearest(name, NAMES)
    known = f"known are {', '.join(NAMES)}, and {CATALOG}* and kafka.*"
    return f"{name} is no option of the table sink: " + (f"{near}?" if near else known)
