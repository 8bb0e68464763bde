"""The steps of a flush: each sync runs off the loop, and its callback on the loop starts the next step."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.model.ports import Disk, DiskError, FileMissing
from barnabas.storage.errors import LogOffline
from barnabas.storage.flush_plan import FlushFile, FlushTask
from barnabas.storage.log import Log

Then = Callable[[DiskError | LogOffline | None], None]

RETRY_MS = 1000
"""A flush that failed for want of space is tried again after this time."""


def flush(disk: Disk, log: Log, then: Then) -> None:
    """Syncs off the loop what is appended so far, then calls back.

    DiskError means that this flush failed and may be retried; LogOffline that the log is offline.
    """
    _begin(disk, log, log.begin_flush, then)


def sync_names(disk: Disk, log: Log, then: Then) -> None:
    """Syncs only the names of the log's files, which needs no space on the disk."""
    _begin(disk, log, log.begin_naming, then)


def _begin(disk: Disk, log: Log, begin: Callable[[], FlushTask], then: Then) -> None:
    try:
        task = begin()
    except (DiskError, LogOffline) as problem:
        then(problem)
        return
    _Flush(disk, log, task, then).sync_next(None)


class _Flush:
    def __init__(self, disk: Disk, log: Log, task: FlushTask, then: Then) -> None:
        self._disk = disk
        self._log = log
        self._task = task
        self._then = then
        self._files = task.files[::-1]
        self._syncing: FlushFile | None = None
        self._folders = task.folders[::-1]
        self._named = False

    def sync_next(self, problem: DiskError | None) -> None:
        if self._log.is_closed:
            return  # the log is closed: all waiting requests are answered, and the close has synced everything
        if self._syncing is not None and self._syncing.is_gone:
            problem = None  # the file was removed on purpose: there is nothing to sync
        while self._files and self._files[-1].is_gone:
            self._files.pop()
        if problem is not None and problem.operation == "open" and not isinstance(problem, FileMissing):
            self._then(problem)  # no descriptor was to be had: nothing was synced, and so nothing failed to be
        elif problem is not None:
            self._finish(problem)
        elif self._files:
            self._syncing = self._files.pop()
            self._disk.sync(self._syncing.file, self.sync_next)
        elif self._folders:
            self._sync_folder()
        else:
            self._finish(None)

    def _sync_folder(self) -> None:
        self._syncing = None
        if not self._named:
            self._named = True
            try:
                self._log.name_epochs(self._task)
            except (DiskError, LogOffline) as problem:
                self._then(problem)
                return
        self._disk.sync_names(self._folders.pop(), self.sync_next)

    def _finish(self, problem: DiskError | None) -> None:
        try:
            self._log.finish_flush(self._task, problem)
        except LogOffline as failure:
            self._then(failure)
        else:
            self._then(None)
