"""The thread that syncs files and folders and starts write-back.

It starts with its first task. Results are posted to the loop through ``post`` (``loop.call_soon_threadsafe``).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from barnabas.model.ports import DiskError, File, FileMissing

_SYNC_FILE_RANGE_WRITE = 2

Post = Callable[[Callable[[], None]], None]
Then = Callable[[DiskError | None], None]


def disk_error(operation: str, path: str, cause: OSError) -> DiskError:
    kind = FileMissing if cause.errno in (errno.ENOENT, errno.ENOTDIR) else DiskError
    return kind(operation, path, cause)


def sync_data(descriptor: int) -> None:
    """fdatasync carries the size along; macOS needs F_FULLFSYNC to get past the drive's own cache."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        fcntl.fcntl(descriptor, full_sync)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


class _Sync(NamedTuple):
    """A sync that waits for the thread: what it needs there, and what follows on the loop."""

    descriptor: int
    path: str
    work: Callable[[int], None]
    release: Callable[[], None]
    thens: list[Then]


class SyncThread:
    """One thread for syncs and write-back. Syncs of a file that wait are answered by one call."""

    def __init__(self, post: Post, sync_range: Callable[..., int] | None) -> None:
        self._post = post
        self._sync_range = sync_range
        self._wake = threading.Condition()
        self._waiting: dict[object, _Sync] = {}
        self._hints: deque[tuple[File, int, int, int]] = deque(maxlen=1024)
        self._thread: threading.Thread | None = None
        self._closing = False

    def sync(self, file: File, then: Then) -> None:
        with self._wake:
            waiting = self._waiting.get(file)
            if waiting is not None:
                waiting.thens.append(then)
                return
            try:
                descriptor = file.fileno()
            except DiskError as error:
                failure = error
                self._post(lambda: then(failure))
                return
            self._waiting[file] = _Sync(descriptor, file.path, sync_data, file.release_fileno, [then])
            self._start()

    def sync_folder(self, path: str, then: Then) -> None:
        """Waiting syncs are keyed by the folder, not by its path, which another folder may have taken meanwhile."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            failure = disk_error("open", path, error)
            self._post(lambda: then(failure))
            return
        state = os.fstat(descriptor)
        with self._wake:
            waiting = self._waiting.get((state.st_dev, state.st_ino))
            if waiting is not None:
                os.close(descriptor)
                waiting.thens.append(then)
                return
            sync = _Sync(descriptor, path, os.fsync, lambda: os.close(descriptor), [then])
            self._waiting[state.st_dev, state.st_ino] = sync
            self._start()

    def write_back(self, file: File, offset: int, size: int) -> None:
        if self._sync_range is None or len(self._hints) == self._hints.maxlen:
            return
        with self._wake:
            self._hints.append((file, file.fileno(), offset, size))
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="barnabas-sync", daemon=True)
            self._thread.start()
        self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._hints:
                    if self._closing:
                        return
                    self._wake.wait()
                syncs, self._waiting = self._waiting, {}
                hint = self._hints.popleft() if not syncs else None
            for sync in syncs.values():
                self._sync(sync)
            if hint is not None:
                self._write_back(*hint)

    def _sync(self, sync: _Sync) -> None:
        failure: DiskError | None = None
        try:
            sync.work(sync.descriptor)
        except OSError as error:
            failure = disk_error("sync", sync.path, error)

        def answer() -> None:
            sync.release()
            for then in sync.thens:
                then(failure)

        self._post(answer)

    def _write_back(self, file: File, descriptor: int, offset: int, size: int) -> None:
        if self._sync_range is not None:
            self._sync_range(descriptor, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)
        self._post(file.release_fileno)

    def close(self) -> None:
        """Finishes what was asked for. Not from within a callback of its own."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
