"""Reads and verifies the files of a partition's folder. Every file yields items; a problem is an item too.

Files are opened for reading only, and one batch at a time is in memory. Whatever a file claims, no more than the file
holds is read, and no batch decompresses beyond a bound.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from barnabas.cli.log_records import show_records
from barnabas.storage.checkpoints import MalformedCheckpoint, parse_lines, read_properties
from barnabas.storage.producer_snapshot import CorruptSnapshot, decode_snapshot
from barnabas.wire import batch as batches
from barnabas.wire.batch import BatchHeader, CorruptBatch, InvalidRecord, UnsupportedCodec, UnsupportedMagic
from barnabas.wire.compression import DecompressionError
from barnabas.wire.records import MAX_DECOMPRESSED_BYTES

Item: TypeAlias = dict[str, Any]

METADATA_FOLDER = "__cluster_metadata-0"
_ZEROS_BYTES = 1 << 20
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_TRANSACTION_ENTRY = Struct(">hqqqq")
_PROPERTY_FILES = ("meta.properties",)
_UNREADABLE = (CorruptBatch, InvalidRecord, UnsupportedCodec, DecompressionError)


class Wanted(NamedTuple):
    records: bool = False
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES


class LogMap:
    """Where the batches of a log are, for what its indexes say of them."""

    def __init__(self) -> None:
        self.positions = array("q")
        self.first_offsets = array("q")
        self.last_offsets = array("q")
        self.max_timestamps = array("q")
        self.producer_ids = array("q")
        self.controls: set[int] = set()

    def add(self, position: int, header: BatchHeader) -> None:
        if header.is_control:
            self.controls.add(len(self.positions))
        self.positions.append(position)
        self.first_offsets.append(header.base_offset)
        self.last_offsets.append(header.last_offset)
        self.max_timestamps.append(header.max_timestamp)
        self.producer_ids.append(header.producer_id)

    def at_position(self, position: int) -> int | None:
        at = bisect_left(self.positions, position)
        return at if at < len(self.positions) and self.positions[at] == position else None

    def with_offset(self, offset: int) -> int | None:
        at = bisect_right(self.first_offsets, offset) - 1
        return at if at >= 0 and self.last_offsets[at] >= offset else None


def is_known(path: str) -> bool:
    return _reader(path) is not None


def read_file(path: str, wanted: Wanted) -> Iterator[Item]:
    """The items of one file. Raises OSError."""
    reader = _reader(path)
    if reader is None:
        yield _problem("this is no file of a log")
        return
    yield from reader(path, wanted)


def _reader(path: str) -> Callable[[str, Wanted], Iterator[Item]] | None:
    name = os.path.basename(path)
    if name == "leader-epoch-checkpoint":
        return _read_epochs
    if name.endswith("-checkpoint"):
        return _read_offsets
    if name in _PROPERTY_FILES:
        return _read_properties
    return _BY_SUFFIX.get(os.path.splitext(name)[1])


def _problem(text: str, **where: Any) -> Item:
    return {"type": "problem", **where, "problem": text}


def base_offset_of(path: str) -> int | None:
    stem = os.path.basename(path).split(".")[0]
    return int(stem) if len(stem) == 20 and stem.isdigit() else None


def _read_log(path: str, wanted: Wanted) -> Iterator[Item]:
    is_metadata = _is_metadata(path)
    batch_count = record_count = 0
    first = last = -1
    for position, header, data, problem in scan(path):
        if header is None:
            yield problem or {}
            break
        sound = problem is None
        yield _batch_item(position, header, sound)
        if problem is not None:
            yield problem
        batch_count += 1
        record_count += header.record_count
        first = header.base_offset if first < 0 else first
        last = header.last_offset
        if sound and wanted.records:
            try:
                yield from show_records(data, header, wanted.max_decompressed_bytes, is_metadata=is_metadata)
            except _UNREADABLE as error:
                yield _problem(f"records: {error}", position=position, base_offset=header.base_offset)
    yield {
        "type": "summary",
        "batches": batch_count,
        "records": record_count,
        "first_offset": first,
        "last_offset": last,
        "bytes": os.path.getsize(path),
    }


def _is_metadata(path: str) -> bool:
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return folder == METADATA_FOLDER or path.endswith(".checkpoint")


def scan(path: str) -> Iterator[tuple[int, BatchHeader | None, bytes, Item | None]]:
    """Position, header, bytes and what is wrong, batch by batch; without a header where no batch can be found.

    A bad checksum does not end the scan: the length before it may well be right.
    """
    next_offset = base_offset_of(path) or 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            file.seek(position)
            try:
                header = batches.read_header(file.read(batches.HEADER_SIZE))
                if position + header.size > size:
                    raise CorruptBatch(f"a batch of {header.size} bytes begins, {size - position} are there")
            except (CorruptBatch, UnsupportedMagic) as error:
                yield position, None, b"", _torn(file, position, size, error)
                return
            file.seek(position)
            data = file.read(header.size)
            yield position, header, data, _wrong_with(header, data, position, next_offset)
            next_offset = max(next_offset, header.next_offset)
            position += header.size


def _torn(file: BinaryIO, position: int, size: int, error: Exception) -> Item:
    """Zeros to the end are a file that was preallocated, which is no fault."""
    if _only_zeros(file, position):
        return {"type": "note", "note": f"{size - position} zero bytes from position {position}: preallocated"}
    return _problem(
        f"no batch at position {position}, {size - position} bytes before the end: {error}", position=position
    )


def _only_zeros(file: BinaryIO, position: int) -> bool:
    file.seek(position)
    while chunk := file.read(_ZEROS_BYTES):
        if chunk.count(0) != len(chunk):
            return False
    return True


def _wrong_with(header: BatchHeader, data: bytes, position: int, next_offset: int) -> Item | None:
    where = {"position": position, "base_offset": header.base_offset}
    if not batches.check_crc(data, 0, len(data)):
        return _problem(f"checksum mismatch in the batch at position {position}", **where)
    if header.base_offset < next_offset:
        text = f"the batch at position {position} begins at offset {header.base_offset}, expected {next_offset} or more"
        return _problem(text, **where)
    if header.last_offset_delta < 0 or header.record_count < 0:
        return _problem(f"the batch at position {position} has a negative count", **where)
    return None


def _batch_item(position: int, header: BatchHeader, sound: bool) -> Item:
    flags = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "log_append_time": header.is_log_append_time,
        "delete_horizon": header.has_delete_horizon,
    }
    number = header.attributes & batches.CODEC_MASK
    return {
        "type": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": position,
        "size": header.size,
        "records": header.record_count,
        "codec": header.codec.name.lower() if number <= 4 else str(number),
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "flags": [name for name, is_set in flags.items() if is_set],
        "crc": header.crc,
        "valid": sound,
    }


def _map_log(path: str) -> LogMap | None:
    """The log beside an index; None where there is none to compare with."""
    log = os.path.splitext(path)[0] + ".log"
    return _map(log, os.path.getsize(log)) if os.path.exists(log) else None


@lru_cache(maxsize=1)
def _map(log: str, size: int) -> LogMap:
    """Reads headers only; the batches are verified where the log itself is read."""
    found = LogMap()
    with open(log, "rb") as file:
        position = 0
        while size - position >= batches.HEADER_SIZE:
            file.seek(position)
            try:
                header = batches.read_header(file.read(batches.HEADER_SIZE))
            except (CorruptBatch, UnsupportedMagic):
                break
            found.add(position, header)
            position += header.size
    return found


def _entries(path: str, entry: Struct) -> Iterator[tuple[int, tuple[int, ...]] | Item]:
    """The entries of an index. A broker that runs keeps zeros behind them."""
    with open(path, "rb") as file:
        content = file.read()
    whole = len(content) - len(content) % entry.size
    used = len(content.rstrip(b"\0"))
    for number, values in enumerate(entry.iter_unpack(content[:whole])):
        if number * entry.size >= used and (number or whole > entry.size):
            yield {"type": "note", "note": f"{len(content) - number * entry.size} zero bytes follow: preallocated"}
            return
        yield number, values
    if whole < len(content):
        yield _problem(f"{len(content)} bytes are no whole number of {entry.size}-byte entries")


Entry: TypeAlias = tuple[int, ...]
Check: TypeAlias = Callable[[int, Entry, Entry, LogMap | None], tuple[Item, str | None]]
"""(base offset, entry, the entry before, the log) -> the entry as an item, and what is wrong with it."""


def _read_index(path: str, entry: Struct, check: Check) -> Iterator[Item]:
    base, log = base_offset_of(path) or 0, _map_log(path)
    count = 0
    last: Entry = (-1, -1)
    for found in _entries(path, entry):
        if isinstance(found, dict):
            yield found
            continue
        number, values = found
        item, problem = check(base, values, last, log)
        yield {"type": "entry", "entry": number, **item}
        if problem is not None:
            yield _problem(f"entry {number}{problem}", entry=number)
        count, last = count + 1, values
    yield {"type": "summary", "entries": count, "compared_with_log": log is not None}


def _check_offset(base: int, values: Entry, last: Entry, log: LogMap | None) -> tuple[Item, str | None]:
    relative, position = values
    offset = base + relative
    item = {"offset": offset, "position": position}
    if relative <= last[0] or position <= last[1]:
        return item, f" (offset {offset}, position {position}) does not ascend"
    found = log.at_position(position) if log is not None else None
    if log is None or (found is not None and log.first_offsets[found] <= offset <= log.last_offsets[found]):
        return item, None
    return item, f" says offset {offset} is at position {position}, the log does not"


def _check_time(base: int, values: Entry, last: Entry, log: LogMap | None) -> tuple[Item, str | None]:
    timestamp, relative = values
    offset = base + relative
    item = {"timestamp": timestamp, "offset": offset}
    if timestamp < last[0] or relative < last[1]:
        return item, f" (time {timestamp}, offset {offset}) does not ascend"
    found = log.with_offset(offset) if log is not None else None
    if log is None or (found is not None and log.max_timestamps[found] == timestamp):
        return item, None
    return item, f" says offset {offset} is of time {timestamp}, the log does not"


def _check_aborted(base: int, values: Entry, _last: Entry, log: LogMap | None) -> tuple[Item, str | None]:
    version, producer_id, first, last, stable = values
    where = {"producer_id": producer_id, "first_offset": first, "last_offset": last, "last_stable_offset": stable}
    item = {"type": "aborted", **where}
    if version != 0:
        return item, f" has version {version}"
    if not (first <= last and base <= last):
        return item, f" ends at offset {last}, begins at {first}"
    found = log.with_offset(last) if log is not None else None
    if log is None or (found is not None and found in log.controls and log.producer_ids[found] == producer_id):
        return item, None
    return item, f": no marker of producer {producer_id} at offset {last}"


def _read_snapshot(path: str, _wanted: Wanted) -> Iterator[Item]:
    with open(path, "rb") as file:
        content = file.read()
    try:
        entries = decode_snapshot(content)
    except CorruptSnapshot as error:
        yield _problem(str(error))
        return
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        yield {
            "type": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": last.last_sequence if last else -1,
            "last_offset": last.last_offset if last else -1,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }
    yield {"type": "summary", "producers": len(entries)}


def _read_epochs(path: str, _wanted: Wanted) -> Iterator[Item]:
    rows = _rows(path, 2)
    if isinstance(rows, str):
        yield _problem(rows)
        return
    last = (-1, -1)
    for epoch, start in rows:
        found = int(epoch), int(start)
        yield {"type": "epoch", "leader_epoch": found[0], "start_offset": found[1]}
        if found[0] <= last[0] or found[1] <= last[1]:
            yield _problem(f"epoch {found[0]} from offset {found[1]} does not ascend")
        last = found
    yield {"type": "summary", "epochs": len(rows)}


def _read_offsets(path: str, _wanted: Wanted) -> Iterator[Item]:
    rows = _rows(path, 3)
    if isinstance(rows, str):
        yield _problem(rows)
        return
    for topic, partition, offset in rows:
        yield {"type": "offset", "topic": topic, "partition": int(partition), "offset": int(offset)}
    yield {"type": "summary", "partitions": len(rows)}


def _rows(path: str, columns: int) -> list[list[str]] | str:
    """The rows of a checkpoint, or what is wrong with it."""
    with open(path, "rb") as file:
        content = file.read()
    try:
        rows = parse_lines(content, columns)
        for row in rows:
            for cell in row[-2:]:
                int(cell)
    except (MalformedCheckpoint, ValueError) as error:
        return str(error)
    return rows


def _read_properties(path: str, _wanted: Wanted) -> Iterator[Item]:
    with open(path, "rb") as file:
        for key, value in read_properties(file.read()).items():
            yield {"type": "property", "key": key, "value": value}


_BY_SUFFIX: dict[str, Callable[[str, Wanted], Iterator[Item]]] = {
    ".log": _read_log,
    ".checkpoint": _read_log,
    ".index": lambda path, _: _read_index(path, _OFFSET_ENTRY, _check_offset),
    ".timeindex": lambda path, _: _read_index(path, _TIME_ENTRY, _check_time),
    ".txnindex": lambda path, _: _read_index(path, _TRANSACTION_ENTRY, _check_aborted),
    ".snapshot": _read_snapshot,
}
