"""The segment that a cleaning writes: log and index files with the suffix ``.cleaned``."""

from __future__ import annotations

from array import array

from barnabas.model.ports import Bytes, Disk
from barnabas.model.settings import INT_MAX
from barnabas.storage.index import PENDING_LIMIT, OffsetIndex, TimeIndex
from barnabas.storage.loader import CLEANED_SUFFIX
from barnabas.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, SUFFIXES, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from barnabas.storage.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.wire.batch import HEADER_SIZE
from barnabas.wire.walk import ScanState, Stop, index_scan


class CleanedSegment:
    def __init__(self, disk: Disk, name: str, base_offset: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._interval = index_interval_bytes
        self.name = name
        self.base_offset = base_offset
        self.size = 0
        self.suffixes: tuple[str, ...] = SUFFIXES[:3]
        self.remove()  # what an earlier cleaning may have left
        self._state = ScanState(base_offset)
        self._log = disk.open(name + LOG_SUFFIX + CLEANED_SUFFIX, create=True)
        self._offset_index = OffsetIndex(disk, name + INDEX_SUFFIX + CLEANED_SUFFIX, base_offset)
        self._time_index = TimeIndex(disk, name + TIME_INDEX_SUFFIX + CLEANED_SUFFIX, base_offset)
        self._transaction_index = TransactionIndex(disk, name + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX, exists=False)

    @property
    def max_timestamp(self) -> int:
        return self._state.max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        return self._state.offset_of_max_timestamp if self._state.max_timestamp >= 0 else self.base_offset

    def append(self, data: Bytes) -> None:
        """Whole batches."""
        if not len(data):
            return
        self._log.write([data], self.size)
        scan = index_scan(
            data,
            state=self._state,
            file_position=self.size,
            index_interval_bytes=self._interval,
            max_offset=self.base_offset + INT_MAX,
            check_crc=False,
        )
        if scan.reason is not Stop.END:
            raise ValueError(f"the cleaned batches of {self.name} are no row of batches: {scan.reason.name}")
        state = scan.state
        if len(data) == HEADER_SIZE:  # an empty batch: its time is its producer's, and no record's to be looked up by
            before = self._state
            state = state._replace(
                max_timestamp=before.max_timestamp, offset_of_max_timestamp=before.offset_of_max_timestamp
            )
        self._index(scan.entries, state)
        self._state = state
        self.size += len(data)

    def _index(self, entries: array[int], state: ScanState) -> None:
        for index in range(0, len(entries), 4):
            self._offset_index.append(entries[index], entries[index + 1])
            if entries[index + 2] <= state.max_timestamp:
                self._time_index.append(entries[index + 2], entries[index + 3])
        if self._offset_index.pending >= PENDING_LIMIT:
            self._offset_index.store()
            self._time_index.store()

    def index_aborted(self, entry: AbortedTransaction) -> None:
        self._transaction_index.append(entry)
        self.suffixes = SUFFIXES

    def finish(self) -> None:
        """Everything on the disk, names included."""
        self._time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
        self._offset_index.store()
        self._time_index.store()
        for file in (self._log, self._offset_index.file(), self._time_index.file(), self._transaction_index.file()):
            if file is not None:
                file.sync()
        self.close()
        self._disk.sync_directory(self.name.rpartition("/")[0])

    def close(self) -> None:
        self._log.close()
        self._offset_index.close()
        self._time_index.close()
        self._transaction_index.close()

    def remove(self) -> None:
        for suffix in SUFFIXES:
            self._disk.remove(self.name + suffix + CLEANED_SUFFIX)
