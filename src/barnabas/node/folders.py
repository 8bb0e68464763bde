"""Locks the data folders for this process, and explains failures.

A node of a larger cluster starts without folders that fail, as long as the first one works: other nodes have replicas
of what they hold. A node that is its own cluster does not start: the operator may have given a wrong path.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import StartError
from barnabas.model.ports import DiskError
from barnabas.storage import checkpoints
from barnabas.storage.log_directory import DirectoryLocked, LogDirectory

NO_EPOCH = -1


def joins_cluster(settings: BrokerSettings) -> bool:
    """Whether there are other nodes, as far as the settings say."""
    return bool(settings.controller_quorum_bootstrap_servers or settings.controller_quorum_voters)


def lock_all(directories: Sequence[LogDirectory], *, may_fail: bool, report: Callable[..., None]) -> None:
    """Creates what is missing; with ``may_fail``, folders but the first may be offline. Raises StartError."""
    for directory in directories:
        try:
            directory.lock()
            directory.disk.list(directory.path)
        except DiskError as problem:
            if not may_fail or directory is directories[0]:
                raise StartError(unusable(directory.path, problem)) from problem
            directory.failure = str(problem)
            report("a data folder is offline", folder=directory.path, reason=str(problem))
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


def stopped_in_epoch(directories: Sequence[LogDirectory]) -> int:
    """The broker epoch of the last clean stop; -1 where a folder is offline or was not closed then.

    Its replicas may be gone: none of this broker's may be elected as if it held all that it had.
    """
    epochs = {
        checkpoints.read_clean_shutdown(each.disk, each.path) if each.failure is None else None for each in directories
    }
    (found, *others) = epochs
    return NO_EPOCH if others or found is None else found
