"""Locks the data folders for this process, and explains failures."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from barnabas.model.errors import StartError
from barnabas.model.ports import DiskError
from barnabas.storage.log_directory import DirectoryLocked, LogDirectory


def lock_all(directories: Iterable[LogDirectory]) -> None:
    """Creates what is missing. Raises StartError."""
    for directory in directories:
        try:
            directory.lock()
        except DiskError as problem:
            raise StartError(unusable(directory.path, problem)) from problem
        except DirectoryLocked:
            raise StartError(
                f"The data folder {directory.path} is in use by another process: stop that one, or give another --data."
            ) from None


def unusable(path: str, problem: DiskError) -> str:
    code = getattr(problem.cause, "errno", None)
    remedy = "Give another --data."
    if code in (errno.EEXIST, errno.ENOTDIR):
        reason = "it is a file, or a part of its path is"
    elif code in (errno.EACCES, errno.EPERM):
        reason = "permission denied"
        remedy = "Make it writable for the user that runs the broker, or give another --data."
    elif code == errno.EROFS:
        reason = "its file system is read-only"
    else:
        reason = (getattr(problem.cause, "strerror", None) or str(problem.cause)).lower()
    return f"Cannot use the data folder {path}: {reason}. {remedy}"
