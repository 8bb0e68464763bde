"""One segment of a partition's log: ``<base offset, 20 digits>.log`` and the indexes of the same name.

Only the last segment is written to. Its index entries are in memory and its files are created with the first append, so
that thousands of idle partitions need neither files nor descriptors. After opening, the size is kept here and not read
from the disk again: a torn write that made the file longer must not become part of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.model.ports import Disk, File
from barnabas.model.settings import INT_MAX
from barnabas.storage.index import PENDING_LIMIT, OffsetIndex, TimeIndex
from barnabas.storage.scan import find_batch, scan_headers, scan_segment, sound_headers
from barnabas.storage.transaction_index import TransactionIndex
from barnabas.wire.batch import BatchHeader, CorruptBatch
from barnabas.wire.walk import IndexScan, ScanState

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"
ASIDE_SUFFIX = ".corrupt-"


class Segment:
    __slots__ = (
        "_disk",
        "_indexes_open",
        "_is_allocated",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "index_interval_bytes",
        "is_repaired",
        "is_sound",
        "jitter_ms",
        "log",
        "max_timestamp",
        "name",
        "namings",
        "next_offset",
        "offset_index",
        "offset_of_max_timestamp",
        "on_rebuild",
        "removed",
        "size",
        "synced_namings",
        "synced_size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        index_interval_bytes: int,
        stored: bool = False,
    ) -> None:
        self._disk = disk
        self.name = f"{directory}/{base_offset:020d}"
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.jitter_ms = 0
        self.log: File | None = None  # opened with the first use
        self.size = 0
        self.synced_size = 0  # bytes that a finished sync covers
        self.namings = 0 if stored else 1  # how often files of it were created
        self.synced_namings = 0  # of these, those that a finished sync of the folder covers
        self.next_offset = base_offset  # after the last record; of a closed segment the next one's base offset
        self.offset_index = OffsetIndex(disk, self.name + INDEX_SUFFIX, base_offset)
        self.time_index = TimeIndex(disk, self.name + TIME_INDEX_SUFFIX, base_offset)
        self.transaction_index = TransactionIndex(disk, self.name + TRANSACTION_INDEX_SUFFIX, exists=stored)
        self._indexes_open = not stored
        self.index_interval_bytes = index_interval_bytes
        self.bytes_since_index = 0
        self.first_timestamp = -1  # largest of the first batch: what segment.ms counts from
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self.removed = False
        self.is_sound: bool | None = None  # what `damage` found when it had reason to look at the whole file
        self.is_repaired = False  # `damage` has rebuilt the indexes: they are not at fault again
        self.on_rebuild: Callable[[Segment, str], None] | None = None  # told why stored indexes could not be used
        self._is_allocated = False

    @property
    def has_file(self) -> bool:
        """One that begins at 0 gets it with its first batch (``Log.add_segment``)."""
        return self.size > 0 or self.base_offset > 0

    @property
    def unsynced_entry(self) -> bool:
        """Whether the folder has not been synced since files were created."""
        return self.namings > self.synced_namings

    def note_new_name(self) -> None:
        self.namings += 1

    def allocate(self, size: int) -> None:
        """Reserves blocks; unused ones are freed when the segment is sealed."""
        self.open_log().allocate(size)
        self._is_allocated = True

    def open_log(self) -> File:
        if self.log is None:
            self.log = self._disk.open(self.name + LOG_SUFFIX, create=True)
        return self.log

    # Appending

    def appended(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """Accounts for a batch that has been written at ``self.size``."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        position = self.size
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
            self.bytes_since_index = 0
            if self.offset_index.pending >= PENDING_LIMIT:
                self.offset_index.store()
                self.time_index.store()
        self.bytes_since_index += size
        self.size = position + size
        self.next_offset = last_offset + 1

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, limits: RollLimits) -> bool:
        if not self.size:
            return last_offset - self.base_offset > INT_MAX
        waited_ms = max_timestamp - self.first_timestamp if self.first_timestamp >= 0 else now_ms - self.created_ms
        return (
            self.size + size > limits.segment_bytes
            or waited_ms > limits.segment_ms - self.jitter_ms
            or last_offset - self.base_offset > INT_MAX
            or self.offset_index.count >= limits.index_entries
            or self.time_index.count >= limits.time_index_entries
        )

    def seal(self) -> None:
        """Stores the indexes with the final timestamp entry, as Kafka does when a segment rolls or closes."""
        self.open_log()
        self.open_indexes()
        self.note_new_name()  # the index files may be new
        self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
        self.offset_index.store()
        self.time_index.store()
        if self._is_allocated:
            self.open_log().truncate(self.size)
            self._is_allocated = False

    def files(self) -> list[File]:
        """What a sync of a sealed segment has to cover."""
        files = [self.open_log(), self.offset_index.file(), self.time_index.file()]
        aborted = self.transaction_index.file()
        return [*files, aborted] if aborted else files

    # Reading

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Raises CorruptBatch at the first place that is not a batch."""
        return scan_headers(self.open_log(), position, self.size)

    def sound_batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Up to the first place that is not a batch."""
        return sound_headers(self.open_log(), position, self.size)

    def position_of(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The batch that holds the offset, or the first after it; None where all are before. Raises CorruptBatch."""
        if offset >= self.next_offset or not self.size:
            return None
        if offset <= self.base_offset:
            start = 0
        else:
            self.open_indexes()
            start = self.offset_index.position_before(offset)
        found = find_batch(self.open_log(), offset, start, self.size)
        if found is not None and found[1].base_offset > offset:
            self._check_behind(found, start)
        return found

    def _check_behind(self, found: tuple[int, BatchHeader], start: int) -> None:
        """No batch holds the offset. After compaction that is so; else an index, or an offset in a header, may lie."""
        position, header = found
        if start and position == start:
            raise CorruptBatch(f"the index names position {position} for an offset before {header.base_offset}")
        self.check_offset(position, header)

    def check_offset(self, position: int, header: BatchHeader) -> None:
        """A batch's offset is not in its checksum, and what stands inside of a batch can look like a header."""
        if not self.base_offset <= header.base_offset < self.next_offset:
            raise CorruptBatch(f"the batch at position {position} cannot have offset {header.base_offset}")

    def boundary_before(self, position: int, limit: int, *, minimum_one: bool) -> tuple[int, int]:
        """(end, next offset) of the last whole batch that begins at or after ``position`` and ends by ``limit``.

        Where not even the first one does, its own with ``minimum_one``, else ``position`` and its base offset. The
        header behind the end has been looked at, so the end can be remembered. Raises CorruptBatch.
        """
        self.open_indexes()
        start = max(position, self.offset_index.position_up_to(limit))
        end, next_offset = start, -1
        for found, header in scan_headers(self.open_log(), start, self.size):
            if found + header.size > limit:
                if next_offset >= 0:
                    break
                self.check_offset(found, header)
                if not minimum_one or found > position:
                    return end, header.base_offset
            end, next_offset = found + header.size, header.next_offset
        return end, next_offset

    def largest_timestamp(self) -> int:
        """What retention by time goes by; without any timestamp, when the segment was opened or created."""
        if self.max_timestamp < 0 and self.size:
            self.load_max_timestamp()
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def load_max_timestamp(self) -> None:
        """From the time index, and from the batches that it does not cover."""
        self.open_indexes()
        timestamp, offset = self.time_index.last()
        for _, header in self.sound_batches(self.offset_index.last_position()):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self.max_timestamp, self.offset_of_max_timestamp = timestamp, offset

    def load_first_timestamp(self) -> None:
        for _, header in sound_headers(self.open_log(), 0, self.size, 64):
            self.first_timestamp = header.max_timestamp
            break

    # Indexes of a closed segment

    def open_indexes(self) -> None:
        """Checks the stored indexes on first use, and rebuilds them if they are not sound."""
        if self._indexes_open:
            return
        self._indexes_open = True
        offsets, times = self.offset_index, self.time_index
        if not (offsets.open_stored() and times.open_stored()):
            problem = "an index is missing or has an impossible size"
        elif not offsets.seems_sound(self.size):
            problem = "the index does not fit the file, which may have been cut short"
        else:
            return
        if self.on_rebuild is not None:
            self.on_rebuild(self, problem)
        self.rebuild_indexes()

    def rebuild_indexes(self) -> None:
        """From the log, as far as it is sound."""
        end, next_offset, first_timestamp = self.size, self.next_offset, self.first_timestamp
        self.forget()

        def take(scan: IndexScan, _data: bytes, position: int) -> None:
            self.take_scan(scan, position + scan.stop)

        scan_segment(self, end, take, state=ScanState(self.base_offset), check_crc=False)
        self.size, self.next_offset, self.first_timestamp = end, next_offset, first_timestamp
        self.seal()

    def take_scan(self, scan: IndexScan, end: int) -> None:
        """Applies the result of a recovery scan, sound up to ``end``."""
        entries, state = scan.entries, scan.state
        for index in range(0, len(entries), 4):
            self.offset_index.append(entries[index], entries[index + 1])
            self.time_index.append(entries[index + 2], entries[index + 3])
        self.bytes_since_index = state.bytes_since_entry
        self.max_timestamp = state.max_timestamp
        if state.max_timestamp >= 0:
            self.offset_of_max_timestamp = state.offset_of_max_timestamp
        if end > self.size:
            self.size = end
            self.next_offset = state.next_offset

    def forget(self) -> None:
        """Empties the indexes, so that a scan can take the file in again, batch by batch, through ``appended``."""
        self._indexes_open = True
        self.size = 0
        self.next_offset = self.base_offset
        self.offset_index.reset()
        self.time_index.reset()
        self.bytes_since_index = 0
        self.first_timestamp = -1
        self.max_timestamp, self.offset_of_max_timestamp = -1, self.base_offset

    # Cutting and removing

    def truncate_to(self, offset: int) -> None:
        found = self.position_of(offset)
        if found is None:
            return
        position, _ = found
        self.open_indexes()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        file = self.open_log()
        file.truncate(position)
        file.sync()  # or a crash could bring back what was cut, behind what is written next
        self.size = position
        self.synced_size = min(self.synced_size, position)
        self.next_offset = offset
        self.bytes_since_index = position - self.offset_index.last_position()
        self.max_timestamp, self.offset_of_max_timestamp = -1, self.base_offset
        if position:
            self.load_max_timestamp()
        else:
            self.first_timestamp = -1

    def mark_deleted(self) -> list[str]:
        """Renames the files out of the way; returns what to remove once their readers are done."""
        return self._rename(DELETED_SUFFIX)

    def set_aside(self) -> str:
        """Renames the files so that no one loads them and no one removes them; returns the log file's new path."""
        suffix = aside_suffix(self._disk, self.name)
        self._rename(suffix)
        return self.name + LOG_SUFFIX + suffix

    def _rename(self, suffix: str) -> list[str]:
        self.removed = True
        self.close()
        paths = []
        for kind in SUFFIXES:
            path = self.name + kind
            if self._disk.exists(path):
                self._disk.rename(path, path + suffix)
                paths.append(path + suffix)
        return paths

    def remove(self) -> None:
        self.removed = True
        self.close()
        for suffix in SUFFIXES:
            self._disk.remove(self.name + suffix)

    def close(self) -> None:
        """Gives the descriptors back; a later use opens the files again."""
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()
        if self.log is not None:
            self.log.close()
            self.log = None


def aside_suffix(disk: Disk, name: str) -> str:
    """The first ``.corrupt-<number>`` that is free: Kafka's loader and ours pass over files that end like this."""
    number = 1
    while disk.exists(f"{name}{LOG_SUFFIX}{ASIDE_SUFFIX}{number}"):
        number += 1
    return f"{ASIDE_SUFFIX}{number}"


class RollLimits:
    """When a segment is full, taken from the topic's settings once."""

    __slots__ = ("index_entries", "segment_bytes", "segment_ms", "time_index_entries")

    def __init__(self, *, segment_bytes: int, segment_ms: int, segment_index_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.index_entries = max(1, segment_index_bytes // 8)
        self.time_index_entries = max(1, segment_index_bytes // 12 - 1)
