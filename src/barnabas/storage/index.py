"""The two sparse indexes of a segment, in Kafka's formats.

Offset index, 8 bytes an entry: the last offset of a batch relative to the segment's base, and the batch's position.
Time index, 12 bytes an entry: the largest timestamp so far, and the relative last offset of the batch that had it.

Entries of the active segment collect in memory and are stored when the segment rolls or closes: a crash rebuilds
the index of every segment at or after the recovery point anyway. What is stored is searched in the file, so that a
closed segment costs no memory and no descriptor.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

from barnabas.model.ports import Disk, File, FileMissing

PENDING_LIMIT = 8192
"""So many entries are kept in memory; beyond, they are stored early."""

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")

_BLOCK = 64
"""A binary search in the file ends with one read of this many entries."""


class SparseIndex:
    """Entries of two growing numbers; both columns ascend."""

    __slots__ = ("_disk", "_entry", "_file", "_left", "_right", "base_offset", "count", "path", "stored")

    def __init__(self, disk: Disk, path: str, base_offset: int, entry: struct.Struct, codes: str) -> None:
        self._disk = disk
        self._entry = entry
        self._file: File | None = None
        self._left: array[int] = array(codes[0])
        self._right: array[int] = array(codes[1])
        self.path = path
        self.base_offset = base_offset
        self.stored = 0  # entries in the file; those in memory follow them
        self.count = 0  # all entries

    @property
    def pending(self) -> int:
        return len(self._left)

    def open_stored(self) -> bool:
        """Takes the file as it is; False where it is missing or not a whole number of entries."""
        try:
            size = self._open().size()
        except FileMissing:
            return False
        if size % self._entry.size:
            return False
        self.stored = self.count = size // self._entry.size
        return True

    def entry(self, index: int) -> tuple[int, int]:
        if index >= self.stored:
            index -= self.stored
            return self._left[index], self._right[index]
        left, right = self._entry.unpack(self._open().read(self._entry.size, index * self._entry.size))
        return left, right

    def find(self, key: int, *, by_right: bool = False) -> int:
        """The number of the last entry whose left (or right) value is at most the key, or -1."""
        column = self._right if by_right else self._left
        if column and (self.stored == 0 or column[0] <= key):
            return self.stored + bisect_right(column, key) - 1
        return self._find_stored(key, int(by_right))

    def _find_stored(self, key: int, column: int) -> int:
        low, high = 0, self.stored
        while high - low > _BLOCK:
            middle = (low + high) // 2
            if self.entry(middle)[column] <= key:
                low = middle
            else:
                high = middle
        if low == high:
            return -1
        block = self._open().read((high - low) * self._entry.size, low * self._entry.size)
        values = [entry[column] for entry in self._entry.iter_unpack(block)]
        return low + bisect_right(values, key) - 1

    def store(self) -> None:
        """Writes the entries in memory; creates the file even without entries."""
        file = self._open(create=True)
        if not self._left:
            return
        pack = self._entry.pack
        block = b"".join([pack(left, right) for left, right in zip(self._left, self._right, strict=True)])
        file.write([block], self.stored * self._entry.size)
        self.stored += len(self._left)
        del self._left[:], self._right[:]

    def keep(self, count: int) -> None:
        """Drops all entries but the first ``count``."""
        if count >= self.count:
            return
        self.count = count
        if count >= self.stored:
            del self._left[count - self.stored :], self._right[count - self.stored :]
            return
        del self._left[:], self._right[:]
        self._open(create=True).truncate(count * self._entry.size)
        self.stored = count

    def reset(self) -> None:
        del self._left[:], self._right[:]
        self.stored = self.count = 0
        if self._disk.exists(self.path):
            self._open().truncate(0)

    def file(self) -> File:
        return self._open(create=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, *, create: bool = False) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path, create=create)
        return self._file


class OffsetIndex(SparseIndex):
    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, base_offset, _OFFSET_ENTRY, "ii")

    def append(self, last_offset: int, position: int) -> None:
        self._left.append(last_offset - self.base_offset)
        self._right.append(position)
        self.count += 1

    def position_before(self, offset: int) -> int:
        """Where to begin a scan for the offset."""
        index = self.find(offset - self.base_offset)
        return self.entry(index)[1] if index >= 0 else 0

    def position_up_to(self, position: int) -> int:
        """The last indexed position at or before this one."""
        index = self.find(position, by_right=True)
        return self.entry(index)[1] if index >= 0 else 0

    def last_position(self) -> int:
        return self.entry(self.count - 1)[1] if self.count else 0

    def truncate_to(self, offset: int) -> None:
        self.keep(self.find(offset - self.base_offset - 1) + 1)

    def seems_sound(self, log_size: int) -> bool:
        """Against a file that was preallocated, or belongs to another log."""
        if not self.count:
            return True
        offset, position = self.entry(self.count - 1)
        return offset >= 0 and 0 < position < log_size


class TimeIndex(SparseIndex):
    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, base_offset, _TIME_ENTRY, "qi")

    def append(self, timestamp: int, offset: int) -> None:
        """Only a larger timestamp makes an entry."""
        if timestamp < 0:
            return
        lefts = self._left
        if lefts:
            if timestamp <= lefts[-1]:
                return
        elif self.stored and timestamp <= self.entry(self.stored - 1)[0]:
            return
        lefts.append(timestamp)
        self._right.append(offset - self.base_offset)
        self.count += 1

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the largest timestamp; (-1, base offset) without one."""
        if not self.count:
            return -1, self.base_offset
        timestamp, offset = self.entry(self.count - 1)
        return timestamp, self.base_offset + offset

    def offset_before(self, timestamp: int) -> int:
        """An offset from which on every record at or after the timestamp lies."""
        index = self.find(timestamp - 1)
        return self.base_offset + self.entry(index)[1] if index >= 0 else self.base_offset

    def truncate_to(self, offset: int) -> None:
        self.keep(self.find(offset - self.base_offset - 1, by_right=True) + 1)
