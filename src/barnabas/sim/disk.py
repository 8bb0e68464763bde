"""A disk that can lose power, fail and be slow.

Everything is in memory, twice: as the process sees it, and as it would be after a power cut. Data becomes durable by
syncing the file, a name (creation, removal, renaming) by syncing its folder. ``crash`` goes back to what is durable and
keeps a random part of the rest, as a real disk would: any subset of the unsynced names, in their order, and a piece of
a file's unsynced bytes, whole or torn.

``fail`` makes chosen operations fail, by their number, counted from 1. ``slow`` delays syncs until they are released.
"""

from __future__ import annotations

import errno
import random
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from barnabas.model.ports import Bytes, DiskError, File, FileMissing


class Fault(Enum):
    EIO = errno.EIO
    ENOSPC = errno.ENOSPC
    EROFS = errno.EROFS
    SHORT_WRITE = -1
    """Half of the bytes are written and stay: not even the cut succeeds."""


class _Content:
    """A file's bytes now, what a power cut leaves of them, and what was written in between."""

    __slots__ = ("data", "durable", "writes")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.writes: list[tuple[int, bytes | None]] = []  # (offset, bytes), or (size, None) for a truncation

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.writes.clear()

    def after_crash(self, rng: random.Random) -> bytes:
        """The durable bytes and a seeded part of what was written since."""
        found = bytearray(self.durable)
        for offset, chunk in self.writes[: rng.randrange(0, len(self.writes) + 1)]:
            if chunk is None:
                _resize(found, offset)
                continue
            fate = rng.randrange(0, 4)
            kept = chunk if fate < 2 else chunk[: rng.randrange(0, len(chunk) + 1)]
            _put(found, offset, kept if fate < 3 else kept + bytes(len(chunk) - len(kept)))
        return bytes(found)


def _fail(error: DiskError) -> None:
    raise error


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _put(data: bytearray, offset: int, chunk: bytes) -> None:
    if offset > len(data):
        _resize(data, offset)
    data[offset : offset + len(chunk)] = chunk


class _Entry(NamedTuple):
    """A change of names that its folder has not synced: ``content`` None takes the name away."""

    folder: str
    path: str
    content: _Content | None


class SimFile:
    """As a real file does, one that is closed opens by its name when it is used again, which may be gone by then."""

    def __init__(self, disk: SimDisk, path: str, content: _Content) -> None:
        self._disk = disk
        self._open_content: _Content | None = content
        self.path = path

    @property
    def _content(self) -> _Content:
        if self._open_content is None:
            self._open_content = self._disk.find(self.path)
        return self._open_content

    def size(self) -> int:
        return len(self._content.data)

    def read(self, size: int, offset: int) -> bytes:
        self._disk.step("read", self.path)
        return bytes(self._content.data[offset : offset + size])

    def write(self, chunks: Sequence[Bytes], offset: int) -> None:
        data = b"".join(chunks)
        fault = self._disk.fault("write", self.path)
        if fault is not None:
            if fault is Fault.SHORT_WRITE:
                self._write(data[: len(data) // 2], offset)
                raise DiskError("write", self.path, "short write")
            raise DiskError("write", self.path, OSError(fault.value, fault.name))
        self._write(data, offset)

    def _write(self, data: bytes, offset: int) -> None:
        _put(self._content.data, offset, data)
        self._content.writes.append((offset, data))

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self.path)
        _resize(self._content.data, size)
        self._content.writes.append((size, None))

    def allocate(self, size: int) -> None:
        self._disk.step("allocate", self.path)

    def sync(self) -> None:
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """What a sync does when its time comes: to the file that is open now, whatever becomes of its name."""
        content = self._content

        def sync() -> None:
            self._disk.step("sync", self.path)
            content.sync()

        return sync

    def start_writeback(self, offset: int, size: int) -> None: ...

    def read_cached_into(self, buffer: bytearray | memoryview, offset: int) -> int:
        data = self.read(len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def is_cached(self, size: int, offset: int) -> bool:
        return True

    def fileno(self) -> int:
        raise DiskError("open", self.path, "a simulated file has no descriptor")

    def release_fileno(self) -> None: ...

    def close(self) -> None:
        self._open_content = None


class SimDisk:
    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.operations = 0  # counted so far; the first is number 1
        self.log: list[tuple[int, str, str]] = []  # (number, operation, path)
        self.is_slow = False  # syncs wait for release()
        self.on_waiting: Callable[[], None] | None = None  # told of each sync that waits
        self._plan: dict[int, Fault] = {}
        self._next_of: dict[str, Fault] = {}
        self._dead = False
        self._files: dict[str, _Content] = {}
        self._folders: set[str] = {"", "/"}
        self._durable: dict[str, _Content] = {}
        self._durable_folders: set[str] = {"", "/"}
        self._entries: list[_Entry] = []
        self._waiting: list[Callable[[], None]] = []
        self._stuck_path: str | None = None
        self._stuck: list[Callable[[], None]] = []
        self._named: dict[str, weakref.WeakSet[SimFile]] = {}  # follow renamings
        self._locked: set[str] = set()

    # Faults

    def fail(self, number: int, fault: Fault = Fault.EIO) -> None:
        self._plan[number] = fault

    def fail_next(self, fault: Fault = Fault.EIO, *, count: int = 1) -> None:
        for number in range(self.operations + 1, self.operations + 1 + count):
            self._plan[number] = fault

    def fail_next_of(self, operation: str, fault: Fault = Fault.EIO) -> None:
        """The next operation of this name fails."""
        self._next_of[operation] = fault

    def stick(self, path: str) -> None:
        """Syncs of files whose path contains this do not end until ``heal``."""
        self._stuck_path = path

    def heal(self) -> None:
        """Faults that are planned and have not happened yet do not happen; syncs that are stuck go on."""
        stuck, self._stuck, self._stuck_path = self._stuck, [], None
        for sync in stuck:
            self._wait(sync)
        self._plan.clear()
        self._next_of.clear()

    def fault(self, operation: str, path: str) -> Fault | None:
        self.operations += 1
        self.log.append((self.operations, operation, path))
        if self._dead:
            raise DiskError(operation, path, "the machine has lost power")
        return self._plan.get(self.operations) or self._next_of.pop(operation, None)

    def step(self, operation: str, path: str) -> None:
        fault = self.fault(operation, path)
        if fault is not None:
            raise DiskError(operation, path, OSError(abs(fault.value), fault.name))

    def power_off(self) -> None:
        """From now on everything fails, until ``crash`` has shown what is left."""
        self._dead = True

    def crash(self) -> None:
        """Back to what is durable, and a part of the rest that the seed chooses."""
        kept = len(self._entries) if not self._entries else self.random.randrange(0, len(self._entries) + 1)
        for entry in self._entries[:kept]:
            self._apply(entry)
        self._files = {}
        for path, content in sorted(self._durable.items()):
            survivor = _Content()
            survivor.data = bytearray(content.after_crash(self.random))
            survivor.sync()
            self._files[path] = survivor
        self._durable = dict(self._files)
        self._folders = set(self._durable_folders)
        self._entries.clear()
        self.kill()
        self._dead = False

    def kill(self) -> None:
        """The process dies and the machine does not: what was written is there, syncs that wait never happen."""
        self._waiting.clear()
        self._stuck.clear()
        self._plan.clear()
        self._next_of.clear()
        self._locked.clear()

    def release(self) -> None:
        """Lets the syncs that wait happen."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def release_one(self) -> bool:
        """Lets the oldest sync that waits happen; False where none waits."""
        if not self._waiting:
            return False
        self._waiting.pop(0)()
        return True

    def _apply(self, entry: _Entry) -> None:
        if entry.content is None:
            self._durable.pop(entry.path, None)
        else:
            self._durable[entry.path] = entry.content

    def _name(self, path: str, content: _Content | None) -> None:
        self._entries.append(_Entry(path.rpartition("/")[0], path, content))
        if content is None:
            self._files.pop(path, None)
        else:
            self._files[path] = content

    # The port

    def open(self, path: str, *, create: bool = False) -> File:
        content = self._files.get(path)
        if content is None:
            if not create or path.rpartition("/")[0] not in self._folders:
                raise FileMissing("open", path, "no such file")
            self.step("create", path)
            content = _Content()
            self._name(path, content)
        file = SimFile(self, path, content)
        self._named.setdefault(path, weakref.WeakSet()).add(file)
        return file

    def find(self, path: str) -> _Content:
        content = self._files.get(path)
        if content is None:
            raise FileMissing("open", path, "no such file")
        return content

    def read_file(self, path: str) -> bytes:
        content = self._files.get(path)
        if content is None:
            raise FileMissing("read", path, "no such file")
        self.step("read", path)
        return bytes(content.data)

    def write_file(self, path: str, content: Bytes, *, sync: bool = True) -> None:
        self.step("write_file", path)
        replacement = _Content()
        replacement.data += content
        replacement.writes.append((0, bytes(content)))
        if sync:
            replacement.sync()
        self._name(path, replacement)
        if sync:
            self.sync_directory(path.rpartition("/")[0])

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def list(self, path: str) -> list[str]:
        if path not in self._folders:
            raise FileMissing("list", path, "no such folder")
        self.step("list", path)
        prefix = path + "/"
        names = [*self._files, *sorted(self._folders)]
        return sorted({name[len(prefix) :].partition("/")[0] for name in names if name.startswith(prefix)})

    def make_directory(self, path: str) -> None:
        if path in self._folders:
            return
        self.step("create", path)
        while path and path not in self._folders:
            self._folders.add(path)
            self._durable_folders.add(path)  # folders are few and their loss is tested by losing what is in them
            path = path.rpartition("/")[0]

    def rename(self, old: str, new: str) -> None:
        self.step("rename", old)
        if old in self._folders:
            self._rename_folder(old, new)
            return
        content = self._files.get(old)
        if content is None:
            raise FileMissing("rename", old, "no such file")
        self._name(new, content)
        self._name(old, None)
        self._named[new] = self._named.pop(old, weakref.WeakSet())
        for file in self._named[new]:
            file.path = new

    def _rename_folder(self, old: str, new: str) -> None:
        for names in (self._files, self._durable):
            for path in [path for path in names if path.startswith(old + "/")]:
                names[new + path[len(old) :]] = names.pop(path)
        for folders in (self._folders, self._durable_folders):
            for path in [path for path in sorted(folders) if path == old or path.startswith(old + "/")]:
                folders.discard(path)
                folders.add(new + path[len(old) :])
        self._entries = [
            entry._replace(folder=new + entry.folder[len(old) :], path=new + entry.path[len(old) :])
            if entry.path.startswith(old + "/")
            else entry
            for entry in self._entries
        ]

    def remove(self, path: str) -> None:
        if path in self._files:
            self.step("remove", path)
            self._name(path, None)

    def remove_tree(self, path: str) -> None:
        self.step("remove", path)
        for name in [name for name in self._files if name.startswith(path + "/")]:
            self._name(name, None)
        for folders in (self._folders, self._durable_folders):
            for folder in [one for one in sorted(folders) if one == path or one.startswith(path + "/")]:
                folders.discard(folder)

    def sync_directory(self, path: str) -> None:
        self.step("sync", path)
        for entry in self._entries:
            if entry.folder == path:
                self._apply(entry)
        self._entries = [entry for entry in self._entries if entry.folder != path]

    def sync(self, file: File, then: Callable[[DiskError | None], None]) -> None:
        if not isinstance(file, SimFile):
            raise TypeError("a file of another disk")
        try:
            work = file.begin_sync()
        except DiskError as error:
            work = partial(_fail, error)
        self._later(work, then, file.path)

    def sync_names(self, path: str, then: Callable[[DiskError | None], None]) -> None:
        self._later(lambda: self.sync_directory(path), then, path)

    def _later(self, work: Callable[[], None], then: Callable[[DiskError | None], None], path: str) -> None:
        def run() -> None:
            try:
                work()
            except DiskError as error:
                then(error)
            else:
                then(None)

        if self._stuck_path is not None and self._stuck_path in path:
            self._stuck.append(run)
        else:
            self._wait(run)

    def _wait(self, sync: Callable[[], None]) -> None:
        self._waiting.append(sync)
        if not self.is_slow:
            self.release()
        elif self.on_waiting is not None:
            self.on_waiting()

    # For a node

    def for_thread(self) -> SimDisk:
        return self

    def close_thread(self) -> None: ...

    def close(self) -> None: ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39

    def lock(self, path: str) -> bool:
        if path in self._locked:
            return False
        self._locked.add(path)
        return True

    def unlock(self, path: str) -> None:
        self._locked.discard(path)
