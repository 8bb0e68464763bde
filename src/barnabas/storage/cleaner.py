"""Compaction: a cleaning reads closed segments and writes the records to keep to new ones.

Theory of operation. A cleaning has two passes. The first goes over the dirty part of the log and maps every key to
the offset of its latest record (``build_map``); when the map is full, the log is clean up to there. The second goes
over everything before that point and copies the records that are the latest of their key (``clean_group``), several
small segments into one. Rules, all Kafka's (Cleaner.java, KIP-58, KIP-98, KIP-354, KIP-534):

- Offsets never change, nor does the last offset of a batch; a batch that loses records keeps codec, epoch and sequence.
- A record without a key goes, and so do the records of aborted transactions.
- A tombstone, and the marker of a transaction that has no batch left, gets a delete horizon when first met
  (delete.retention.ms from now, in the place of the batch's base timestamp) and goes when that has passed.
- The last batch of a producer that is still remembered stays, empty if need be: it holds the last sequence.

Other than Kafka we keep the last batch of every new segment, empty if need be: so the segment says where it ends,
which is how the loader knows what a finished swap replaces, and the log has no hole that recovery would take for a
loss.

Nothing here touches the log: a cleaning has names, numbers and a disk of its own, so it runs in another thread. It is
stopped by setting ``cancelled``. What it writes is named ``.cleaned`` until the loop takes it over
(``cleaner_swap``).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

from barnabas.model.ports import Disk, File, FileMissing
from barnabas.model.settings import INT_MAX
from barnabas.storage.cleaner_output import CleanedSegment
from barnabas.storage.cleaner_plan import CleanPlan, Source
from barnabas.storage.cleaner_transactions import CleanedTransactions
from barnabas.storage.index import OffsetIndex
from barnabas.storage.offset_map import OffsetMap, Step
from barnabas.storage.scan import scan_headers
from barnabas.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.wire import batch as batches
from barnabas.wire.batch import BatchHeader, CorruptBatch, read_header
from barnabas.wire.compression import compress
from barnabas.wire.records import decode_batch, encode_batch, payload, read_control_type

LOAD_FACTOR = 0.9
"""How full the map may become, as log.cleaner.io.buffer.load.factor has it."""


class CleaningCancelled(Exception):
    """The log went away, or the broker stops."""


class MapTooSmall(Exception):
    """One batch has more keys than the map has room for: log.cleaner.dedupe.buffer.size is too small."""


class Cleaning:
    def __init__(
        self, plan: CleanPlan, disk: Disk, offsets: OffsetMap, *, chunk_bytes: int, throttle: Callable[[int], None]
    ) -> None:
        self.plan = plan
        self.cancelled = False
        self.groups: list[list[Source]] = []
        self.cleaned: CleanedSegment | None = None
        """The segment that ``clean_group`` has made."""
        self.end_offset = plan.first_dirty_offset
        """The log is clean up to here, once all groups are."""
        self.bytes_read = 0
        self.bytes_written = 0
        self._disk = disk
        self._map = offsets
        self._chunk_bytes = max(chunk_bytes, batches.HEADER_SIZE)
        self._throttle = throttle
        self._latest_offset = plan.first_dirty_offset - 1
        self._transactions = CleanedTransactions(plan.aborted)
        self._out = bytearray()
        self._last_offset = -1  # of the group's last batch

    # First pass: the latest offset of every key

    def build_map(self) -> None:
        plan = self.plan
        transactions = CleanedTransactions(plan.aborted)
        for source in plan.sources:
            if source.next_offset > plan.first_dirty_offset and not self._map_segment(source, transactions):
                break
        self.end_offset = self._latest_offset + 1
        if self.end_offset <= plan.first_dirty_offset:
            raise MapTooSmall(f"the first batch after offset {plan.first_dirty_offset} has too many keys")
        self.groups = list(self._grouped())

    def _map_segment(self, source: Source, transactions: CleanedTransactions) -> bool:
        """False where the map is full."""
        min_offset = self.plan.first_dirty_offset
        for data in self._chunks(source):
            at = 0
            while True:
                step, at, needed, latest = self._map.index_chunk(data, at, min_offset)
                self._latest_offset = max(self._latest_offset, latest)
                if step is Step.FULL:
                    return False
                if step is not Step.SPECIAL:
                    self._ended(source, data, at, step, needed)
                    break
                header = self._header(source, data, at)
                if not self._map_batch(data, at, header, transactions):
                    return False
                self._latest_offset = max(self._latest_offset, header.last_offset)
                self._throttle(0)
                at += header.size
        self._latest_offset = max(self._latest_offset, source.next_offset - 1)
        return True

    def _map_batch(self, data: bytes, at: int, header: BatchHeader, transactions: CleanedTransactions) -> bool:
        if header.is_control:
            records = decode_batch(data, at)
            transactions.end(header, read_control_type(records[0]) if records else None)
            return True
        if transactions.is_aborted(header) or header.last_offset < self.plan.first_dirty_offset:
            return True
        return self._map.index_records(
            payload(data, at, header), header.record_count, header.base_offset, self.plan.first_dirty_offset
        )

    def _grouped(self) -> Iterator[list[Source]]:
        """Neighbours that fit into one segment together, by their sizes before the cleaning."""
        plan = self.plan
        group: list[Source] = []
        sizes = (0, 0, 0)
        for source in plan.sources:
            if source.base_offset >= self.end_offset:
                break
            added = (source.size, self._size(source.name + INDEX_SUFFIX), self._size(source.name + TIME_INDEX_SUFFIX))
            log_bytes, index_bytes, time_bytes = (a + b for a, b in zip(sizes, added, strict=True))
            if group and (
                log_bytes > plan.segment_bytes
                or max(index_bytes, time_bytes) > plan.segment_index_bytes
                or source.next_offset - 1 - group[0].base_offset > INT_MAX
            ):
                yield group
                group, sizes = [], (0, 0, 0)
                log_bytes, index_bytes, time_bytes = added
            group.append(source)
            sizes = (log_bytes, index_bytes, time_bytes)
        if group:
            yield group

    def _size(self, path: str) -> int:
        try:
            return self._disk.open(path).size()
        except FileMissing:
            return 0  # it is rebuilt when somebody asks for it

    # Second pass: copying what is kept

    def clean_group(self, group: list[Source]) -> None:
        """Leaves the new segment in ``cleaned``, synced; on any error its files are gone again."""
        cleaned = CleanedSegment(self._disk, group[0].name, group[0].base_offset, self.plan.index_interval_bytes)
        try:
            self._last_offset = self._find_last_offset(group[-1])
            lasts = [last.last_offset for last in self.plan.producers.values()]
            specials = array("q", sorted({*lasts, self._last_offset}))
            for source in group:
                self._clean_segment(source, cleaned, specials)
            cleaned.finish()
        except BaseException:
            cleaned.close()
            cleaned.remove()
            raise
        self.cleaned = cleaned

    def close(self) -> None:
        self._map.close()

    def sync_folder(self) -> None:
        self._disk.sync_directory(self.plan.directory)

    def _clean_segment(self, source: Source, cleaned: CleanedSegment, specials: array[int]) -> None:
        for data in self._chunks(source):
            if len(self._out) < len(data):
                self._out = bytearray(len(data))
            at = 0
            while True:
                step, at, needed, written = self._map.filter_chunk(
                    data, at, specials, self._latest_offset, self.plan.now_ms, self._out
                )
                self._append(cleaned, memoryview(self._out)[:written])
                if step is not Step.SPECIAL:
                    self._ended(source, data, at, step, needed)
                    break
                header = self._header(source, data, at)
                clean = self._clean_control if header.is_control else self._clean_records
                self._append(cleaned, clean(data, at, header, cleaned))
                self._throttle(0)
                at += header.size

    def _append(self, cleaned: CleanedSegment, kept: bytes | memoryview) -> None:
        if len(kept):
            cleaned.append(kept)
            self.bytes_written += len(kept)
            self._throttle(len(kept))

    def _clean_records(self, data: bytes, at: int, header: BatchHeader, _: CleanedSegment) -> bytes:
        if self._transactions.is_aborted(header):
            return self._empty(header)
        records = payload(data, at, header)
        asked = (records, header.record_count, header.base_offset, header.base_timestamp)
        keep_tombstones = not header.has_delete_horizon or self.plan.now_ms < header.base_timestamp
        latest = self._latest_offset
        kept = self._map.filter_records(*asked, latest_offset=latest, keep_tombstones=keep_tombstones)
        if not kept.record_count:
            return self._empty(header)
        if kept.has_tombstones and not header.has_delete_horizon:
            horizon = self._horizon()
            shift = horizon - header.base_timestamp
            kept = self._map.filter_records(*asked, latest_offset=latest, keep_tombstones=True, shift=shift)
            header = header._replace(attributes=header.attributes | batches.DELETE_HORIZON, base_timestamp=horizon)
        elif kept.record_count == header.record_count:
            return data[at : at + header.size]
        max_timestamp = header.max_timestamp if header.is_log_append_time else kept.max_timestamp
        header = header._replace(record_count=kept.record_count, max_timestamp=max_timestamp)
        return _encode(header, compress(header.codec, kept.records))

    def _clean_control(self, data: bytes, at: int, header: BatchHeader, cleaned: CleanedSegment) -> bytes:
        records = decode_batch(data, at)
        if not records:  # emptied by an earlier cleaning, kept for its producer
            self._transactions.end(header, None)
            return self._empty(header)
        can_go, entry = self._transactions.end(header, read_control_type(records[0]))
        if entry is not None:
            cleaned.index_aborted(entry)
        if not can_go:
            return data[at : at + header.size]
        if header.has_delete_horizon:
            expired = header.base_timestamp <= self.plan.now_ms
            return self._empty(header) if expired else data[at : at + header.size]
        return encode_batch(
            records,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=True,
            delete_horizon=self._horizon(),
            last_offset=header.last_offset,
        )

    def _horizon(self) -> int:
        return self.plan.now_ms + self.plan.delete_retention_ms

    def _empty(self, header: BatchHeader) -> bytes:
        """A batch that lost all its records: its header if that is needed, or nothing."""
        if not self._must_stay(header):
            return b""
        kept = batches.LOG_APPEND_TIME | batches.TRANSACTIONAL | batches.CONTROL
        return _encode(header._replace(attributes=header.attributes & kept, base_timestamp=-1, record_count=0), b"")

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.last_offset == self._last_offset:
            return True
        last = self.plan.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    # Reading

    def _chunks(self, source: Source) -> Iterator[bytes]:
        """The segment in pieces that begin with a batch; ``_ended`` says where the one before has stopped."""
        file = self._disk.open(source.name + LOG_SUFFIX)
        try:
            self._position, self._needed = 0, 0
            while self._position < source.size:
                if self.cancelled:
                    raise CleaningCancelled
                yield self._read(file, source)
        finally:
            file.close()

    def _read(self, file: File, source: Source) -> bytes:
        size = min(max(self._chunk_bytes, self._needed), source.size - self._position)
        data = file.read(size, self._position)
        if len(data) < size:
            raise CorruptBatch(f"{source.name}{LOG_SUFFIX} is shorter than the log")
        self.bytes_read += size
        self._throttle(size)
        return data

    def _ended(self, source: Source, data: bytes, at: int, step: Step, needed: int) -> None:
        """A chunk is done up to ``at``."""
        self._position += at
        self._needed = needed
        if step is Step.BAD or self._position + needed > source.size:
            raise CorruptBatch(f"{source.name}{LOG_SUFFIX} has no sound batch at {self._position}")

    def _header(self, source: Source, data: bytes, at: int) -> BatchHeader:
        header = read_header(data, at)
        if not batches.check_crc(data, at, header.size):
            raise CorruptBatch(f"{source.name}{LOG_SUFFIX} has no sound batch at {self._position + at}")
        return header

    def _find_last_offset(self, source: Source) -> int:
        """Of the segment's last batch, looked for behind the last index entry."""
        index = OffsetIndex(self._disk, source.name + INDEX_SUFFIX, source.base_offset)
        file = self._disk.open(source.name + LOG_SUFFIX)
        try:
            known = index.open_stored() and index.seems_sound(source.size)
            last = -1
            for _, header in scan_headers(file, index.last_position() if known else 0, source.size):
                last = header.last_offset
            return last
        finally:
            index.close()
            file.close()


def _encode(header: BatchHeader, body: bytes) -> bytes:
    length = batches.HEADER_SIZE - batches.LOG_OVERHEAD + len(body)
    whole = bytearray(batches.encode_header(header._replace(batch_length=length)))
    whole += body
    batches.restamp(whole, 0)
    return bytes(whole)
