"""A file system in memory, for ``--memory``: the same log code, nothing on disk, lost when the process ends.

A file starts as bytes in the process. Where the system has memfd, the file moves into one as soon as it is large or its
descriptor is needed: thousands of small files need no descriptors, and large ones are sent with sendfile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from barnabas.model.ports import Bytes, DiskError, File, FileMissing

MEMFD_BYTES = 64 * 1024
"""From this size on a file lives in a memfd."""

_TOTAL_BYTES = 1 << 40
"""What free_bytes answers where the system does not say how much memory there is."""


def _run_now(callback: Callable[[], None]) -> None:
    callback()


class _Node:
    """The content, whatever its name; lives as long as a name or an open file refers to it."""

    __slots__ = ("_can_move", "_descriptor", "_length", "_small")

    def __init__(self, *, can_move: bool) -> None:
        self._small = bytearray()
        self._descriptor = -1
        self._length = 0  # of the memfd, once there is one
        self._can_move = can_move

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def size(self) -> int:
        return self._length if self._descriptor >= 0 else len(self._small)

    def move(self) -> bool:
        """Into a memfd; False where there can be none."""
        if self._descriptor >= 0:
            return True
        if not self._can_move:
            return False
        try:
            self._descriptor = os.memfd_create("barnabas", os.MFD_CLOEXEC)
        except OSError:  # out of descriptors: it stays where it is
            return False
        content, self._small = self._small, bytearray()
        self._length = len(content)
        self._write_all(content, 0)
        return True

    @property
    def descriptor(self) -> int:
        return self._descriptor

    def read(self, size: int, offset: int) -> bytes:
        if self._descriptor >= 0:
            return os.pread(self._descriptor, size, offset)
        return bytes(memoryview(self._small)[offset : offset + size])

    def write(self, chunk: Bytes, offset: int) -> None:
        end = offset + len(chunk)
        if self._descriptor < 0 and (end < MEMFD_BYTES or not self.move()):
            if offset > len(self._small):
                self._small.extend(bytes(offset - len(self._small)))
            self._small[offset:end] = chunk
            return
        self._write_all(chunk, offset)
        self._length = max(self._length, end)

    def _write_all(self, chunk: Bytes, offset: int) -> None:
        rest = memoryview(chunk)
        while rest:
            written = os.pwrite(self._descriptor, rest, offset)
            rest = rest[written:]
            offset += written

    def truncate(self, size: int) -> None:
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, size)
            self._length = size
        elif size <= len(self._small):
            del self._small[size:]
        else:
            self._small.extend(bytes(size - len(self._small)))


class MemoryFile:
    __slots__ = ("_node", "path")

    def __init__(self, path: str, node: _Node) -> None:
        self.path = path
        self._node = node

    def size(self) -> int:
        return self._node.size()

    def read(self, size: int, offset: int) -> bytes:
        return self._node.read(size, offset)

    def write(self, chunks: Sequence[Bytes], offset: int) -> None:
        start = offset
        try:
            for chunk in chunks:
                self._node.write(chunk, offset)
                offset += len(chunk)
        except (OSError, MemoryError) as error:
            self._node.truncate(start)
            raise DiskError("write", self.path, error) from error

    def truncate(self, size: int) -> None:
        self._node.truncate(size)

    def allocate(self, size: int) -> None:
        """Memory is taken as it is needed."""

    def sync(self) -> None:
        """There is nothing more durable than this."""

    def start_writeback(self, offset: int, size: int) -> None: ...

    def read_cached_into(self, buffer: bytearray | memoryview, offset: int) -> int:
        data = self.read(len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def is_cached(self, size: int, offset: int) -> bool:
        return True

    def fileno(self) -> int:
        if not self._node.move():
            raise DiskError("open", self.path, OSError(errno.ENOSYS, "no memfd for a file in memory"))
        return self._node.descriptor

    def release_fileno(self) -> None: ...

    def close(self) -> None: ...


class MemoryDisk:
    def __init__(self, post: Callable[[Callable[[], None]], None] = _run_now, *, fallbacks: bool = False) -> None:
        self._post = post
        self._folders: dict[str, dict[str, _Node | None]] = {"": {}}  # None stands for a folder within
        self._locked: set[str] = set()
        self._can_move = hasattr(os, "memfd_create") and not fallbacks

    def _folder(self, path: str, operation: str) -> tuple[dict[str, _Node | None], str]:
        """The folder that holds the path, and the name in it."""
        parent, _, name = path.rpartition("/")
        folder = self._folders.get(parent)
        if folder is None:
            raise FileMissing(operation, path, "no such folder")
        return folder, name

    def open(self, path: str, *, create: bool = False) -> File:
        folder, name = self._folder(path, "open")
        node = folder.get(name)
        if node is None:
            if not create:
                raise FileMissing("open", path, "no such file")
            node = folder[name] = _Node(can_move=self._can_move)
        return MemoryFile(path, node)

    def read_file(self, path: str) -> bytes:
        file = self.open(path)
        return file.read(file.size(), 0)

    def write_file(self, path: str, content: Bytes, *, sync: bool = True) -> None:
        folder, name = self._folder(path, "write")
        node = _Node(can_move=self._can_move)
        node.write(content, 0)
        folder[name] = node

    def exists(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        return name in self._folders.get(parent, ())

    def list(self, path: str) -> list[str]:
        folder = self._folders.get(path)
        if folder is None:
            raise FileMissing("list", path, "no such folder")
        return sorted(folder)

    def make_directory(self, path: str) -> None:
        if path not in self._folders:
            parent, _, name = path.rpartition("/")
            self.make_directory(parent)
            self._folders[path] = {}
            self._folders[parent][name] = None

    def rename(self, old: str, new: str) -> None:
        folder, name = self._folder(old, "rename")
        target, new_name = self._folder(new, "rename")
        if name not in folder:
            raise FileMissing("rename", old, "no such file")
        target[new_name] = folder.pop(name)
        for path in [path for path in self._folders if path == old or path.startswith(old + "/")]:
            self._folders[new + path[len(old) :]] = self._folders.pop(path)

    def remove(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        self._folders.get(parent, {}).pop(name, None)

    def remove_tree(self, path: str) -> None:
        self.remove(path)
        for folder in [folder for folder in self._folders if folder == path or folder.startswith(path + "/")]:
            del self._folders[folder]

    def sync_directory(self, path: str) -> None:
        if path not in self._folders:
            raise FileMissing("sync", path, "no such folder")

    def sync(self, file: File, then: Callable[[DiskError | None], None]) -> None:
        self._post(lambda: then(None))

    def sync_names(self, path: str, then: Callable[[DiskError | None], None]) -> None:
        self._post(lambda: then(None))

    def for_thread(self) -> MemoryDisk:
        """Itself: operations on names are atomic, and no two threads share a file that is being written."""
        return self

    def close_thread(self) -> None: ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        try:
            page = os.sysconf("SC_PAGE_SIZE")
            return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page
        except (ValueError, OSError):
            return _TOTAL_BYTES, _TOTAL_BYTES

    def lock(self, path: str) -> bool:
        if path in self._locked:
            return False
        self._locked.add(path)
        return True

    def unlock(self, path: str) -> None:
        self._locked.discard(path)

    def close(self) -> None:
        self._folders.clear()
