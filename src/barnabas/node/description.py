"""Descriptions of a node: the state of its data folders, and its durability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import ErrorCode
from barnabas.model.ports import DiskError
from barnabas.storage.log_directory import LogDirectory


class DirectoryState(Struct, frozen=True):
    path: str
    error_code: int
    total_bytes: int
    usable_bytes: int


def describe_directories(disk: Any, directories: Iterable[LogDirectory]) -> list[DirectoryState]:
    states = []
    for directory in directories:
        try:
            total, usable = disk.free_bytes(directory.path)
        except DiskError:
            total = usable = -1
        failed = ErrorCode.KAFKA_STORAGE_ERROR if directory.failure is not None or total < 0 else ErrorCode.NONE
        states.append(DirectoryState(directory.path, failed, total, usable))
    return states


def promise(settings: BrokerSettings, static: Mapping[str, str], *, memory: bool) -> str:
    """The durability that holds, in words."""
    if memory:
        return "in memory only: everything is gone when this process ends"
    if settings.durable or static.get("log.flush.interval.messages") == "1":
        return "every append is synced before it is acknowledged: acknowledged survives a loss of power"
    return "acknowledged survives a crash of the process; a loss of power may take the last seconds (--durable)"
