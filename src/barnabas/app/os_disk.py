"""The real disk.

The number of open descriptors is bounded: a file opens on use and the least recently used ones are closed, so that ten
thousand partitions fit under an ordinary limit. All methods must be called on the loop's thread. To use a file in
another thread, pin its descriptor first (``fileno``) and release it on the loop afterwards: a pinned descriptor is not
closed, so its number cannot be reused for another file meanwhile.

Syncing and write-back run in their own thread (``sync_thread.py``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence

from barnabas.app.sync_thread import Post, SyncThread, Then, disk_error, sync_data
from barnabas.model.ports import Bytes, DiskError, File

MAX_OPEN_FILES = 4096
THREAD_OPEN_FILES = 32
MAX_PROBES = 8
"""A range is probed for being cached in at most this many places."""

_IOV_MAX = 1024
_FALLOC_FL_KEEP_SIZE = 1
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


def _run_now(callback: Callable[[], None]) -> None:
    callback()


def _libc_function(name: str) -> Callable[..., int] | None:
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    return function


class OsFile:
    __slots__ = ("__weakref__", "_descriptor", "_disk", "_pins", "_touched", "path")

    def __init__(self, disk: OsDisk, path: str) -> None:
        self._disk = disk
        self._descriptor = -1  # open only while it is among the disk's open files
        self._pins = 0
        self._touched = False  # used since the disk last looked for a victim
        self.path = path

    def __del__(self) -> None:
        if self._descriptor >= 0:
            self._disk.drop(self)

    def _open(self) -> int:
        self._touched = True
        if self._descriptor < 0:
            self._descriptor = self._disk.admit(self)
        return self._descriptor

    def size(self) -> int:
        try:
            if self._descriptor >= 0:
                return os.fstat(self._descriptor).st_size
            return os.stat(self.path).st_size
        except OSError as error:
            raise disk_error("size", self.path, error) from error

    def read(self, size: int, offset: int) -> bytes:
        try:
            self._touched = True
            descriptor = self._descriptor
            data = os.pread(descriptor if descriptor >= 0 else self._open(), size, offset)
            if len(data) < size and data:
                return self._read_on(data, size, offset)
            return data
        except OSError as error:
            raise disk_error("read", self.path, error) from error

    def _read_on(self, data: bytes, size: int, offset: int) -> bytes:
        """Short reads happen at the end of the file, above 2 GB, and on signals."""
        parts = [data]
        have = len(data)
        while have < size:
            data = os.pread(self._open(), size - have, offset + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def write(self, chunks: Sequence[Bytes], offset: int) -> None:
        try:
            self._touched = True
            descriptor = self._descriptor
            if descriptor < 0:
                descriptor = self._open()
            if len(chunks) == 1:
                chunk = chunks[0]
                written = os.pwrite(descriptor, chunk, offset)
                if written == len(chunk):
                    return
            else:
                written = os.pwritev(descriptor, chunks[:_IOV_MAX], offset)
            self._write_rest(descriptor, chunks, offset, written)
        except OSError as error:
            self._cut(offset)
            raise disk_error("write", self.path, error) from error

    @staticmethod
    def _write_rest(descriptor: int, chunks: Sequence[Bytes], offset: int, written: int) -> None:
        total = sum(len(chunk) for chunk in chunks)
        if written < total:
            rest = memoryview(b"".join(chunks))
            while written < total:
                count = os.pwrite(descriptor, rest[written:], offset + written)
                if not count:
                    raise OSError(errno.EIO, "nothing was written")
                written += count

    def _cut(self, offset: int) -> None:
        with contextlib.suppress(OSError):
            descriptor = self._open()
            if os.fstat(descriptor).st_size > offset:
                os.ftruncate(descriptor, offset)

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._open(), size)
        except OSError as error:
            raise disk_error("truncate", self.path, error) from error

    def allocate(self, size: int) -> None:
        allocate = self._disk.fallocate
        if allocate is None or not size:
            return
        length = ctypes.c_int64(size)
        if allocate(self._open(), _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), length):
            code = ctypes.get_errno()
            if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise DiskError("allocate", self.path, OSError(code, os.strerror(code)))

    def sync(self) -> None:
        try:
            sync_data(self._open())
        except OSError as error:
            raise disk_error("sync", self.path, error) from error

    def start_writeback(self, offset: int, size: int) -> None:
        self._disk.sync_thread.write_back(self, offset, size)

    def read_cached_into(self, buffer: bytearray | memoryview, offset: int) -> int | None:
        try:
            if self._disk.can_probe:
                return os.preadv(self._open(), (buffer,), offset, _RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if not self._no_probes(error):
                raise disk_error("read", self.path, error) from error
        data = self.read(len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def is_cached(self, size: int, offset: int) -> bool:
        if not self._disk.can_probe:
            return True
        buffer = [bytearray(1)]
        step = max(size // MAX_PROBES, 4096)
        try:
            for position in (*range(offset, offset + size, step), offset + size - 1):
                os.preadv(self._open(), buffer, position, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if self._no_probes(error):
                return True
            raise disk_error("read", self.path, error) from error
        return True

    def _no_probes(self, error: OSError) -> bool:
        """This file system cannot tell; it is not asked again."""
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            self._disk.can_probe = False
            return True
        return False

    def fileno(self) -> int:
        try:
            descriptor = self._open()
        except OSError as error:
            raise disk_error("open", self.path, error) from error
        self._pins += 1
        return descriptor

    def release_fileno(self) -> None:
        self._pins -= 1

    def close(self) -> None:
        """Gives the descriptor back unless it is pinned; the file may be used again and then reopens."""
        if self._descriptor >= 0 and not self._pins:
            self._disk.drop(self)

    # For the disk

    @property
    def is_pinned(self) -> bool:
        return self._pins > 0

    def spare(self) -> bool:
        """A second chance for what was used since the last round."""
        touched, self._touched = self._touched, False
        return touched or self._pins > 0

    def forget_descriptor(self) -> int:
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor


class OsDisk:
    """Files of the operating system. ``post`` brings a callback to the loop's thread."""

    def __init__(self, post: Post = _run_now, *, max_open_files: int = MAX_OPEN_FILES, fallbacks: bool = False) -> None:
        """``fallbacks`` forgoes what only Linux has, so that tests can see the other way work."""
        self._open_files: deque[OsFile] = deque()
        self._named: weakref.WeakValueDictionary[str, OsFile] = weakref.WeakValueDictionary()  # follow renamings
        self._max_open_files = max_open_files
        self._locks: dict[str, int] = {}
        self.can_probe = bool(_RWF_NOWAIT) and not fallbacks
        self.fallocate = None if fallbacks else _libc_function("fallocate")
        self.sync_thread = SyncThread(post, None if fallbacks else _libc_function("sync_file_range"))

    # Descriptors

    def admit(self, file: OsFile) -> int:
        if len(self._open_files) >= self._max_open_files:
            self._evict()
        descriptor = os.open(file.path, os.O_RDWR | os.O_CLOEXEC)
        self._open_files.append(file)
        return descriptor

    def _evict(self) -> None:
        """Closes a file that was not used lately; if all are pinned, the limit is exceeded."""
        for _ in range(2 * len(self._open_files)):
            file = self._open_files.popleft()
            if file.spare():
                self._open_files.append(file)
            else:
                os.close(file.forget_descriptor())
                return

    def drop(self, file: OsFile) -> None:
        with contextlib.suppress(ValueError):
            self._open_files.remove(file)
        with contextlib.suppress(OSError):
            os.close(file.forget_descriptor())

    @property
    def open_file_count(self) -> int:
        return len(self._open_files)

    # The port

    def open(self, path: str, *, create: bool = False) -> File:
        file = OsFile(self, path)
        try:
            if create:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            else:
                os.stat(path)
        except OSError as error:
            raise disk_error("open", path, error) from error
        self._named[path] = file
        return file

    def read_file(self, path: str) -> bytes:
        try:
            with open(path, "rb") as stream:
                return stream.read()
        except OSError as error:
            raise disk_error("read", path, error) from error

    def write_file(self, path: str, content: Bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            with open(temporary, "wb", buffering=0) as stream:
                rest = memoryview(content)
                while rest:
                    rest = rest[stream.write(rest) :]
                if sync:
                    sync_data(stream.fileno())
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise disk_error("write", path, error) from error
        if sync:
            self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise disk_error("list", path, error) from error

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise disk_error("create", path, error) from error

    def rename(self, old: str, new: str) -> None:
        try:
            os.replace(old, new)
        except OSError as error:
            raise disk_error("rename", old, error) from error
        if not self._follow(old, new) and os.path.isdir(new):
            for name in os.listdir(new):
                self._follow(f"{old}/{name}", f"{new}/{name}")

    def _follow(self, old: str, new: str) -> bool:
        """A reader may still hold a renamed file, and must find it when it reopens."""
        file = self._named.pop(old, None)
        if file is None:
            return False
        file.path = new
        self._named[new] = file
        return True

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error("remove", path, error) from error

    def remove_tree(self, path: str) -> None:
        from shutil import rmtree  # noqa: PLC0415 -- seldom needed, and it brings three compressions along

        try:
            rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error("remove", path, error) from error

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise disk_error("sync", path, error) from error

    def sync(self, file: File, then: Then) -> None:
        if not isinstance(file, OsFile):
            raise TypeError("a file of another disk")
        self.sync_thread.sync(file, then)

    def sync_names(self, path: str, then: Then) -> None:
        self.sync_thread.sync_folder(path, then)

    def free_bytes(self, path: str) -> tuple[int, int]:
        try:
            state = os.statvfs(path)
        except OSError as error:
            raise disk_error("free", path, error) from error
        return state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize

    # Beyond the port

    def for_thread(self) -> OsDisk:
        """The same files for another thread, which has its own descriptors and closes them with ``close_thread``."""
        return OsDisk(max_open_files=THREAD_OPEN_FILES, fallbacks=self.fallocate is None)

    def close_thread(self) -> None:
        self.close()

    def lock(self, path: str) -> bool:
        """Takes an exclusive lock on a file, created where missing; False where another process has it."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error("lock", path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise disk_error("lock", path, error) from error
        self._locks[path] = descriptor
        return True

    def unlock(self, path: str) -> None:
        descriptor = self._locks.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        self.sync_thread.close()
        while self._open_files:
            os.close(self._open_files.pop().forget_descriptor())
        for path in [*self._locks]:
            self.unlock(path)
