"""The logs of a broker: its data folders, and the checkpoints with the recovery point of each log.

Each folder (``log.dirs``) has its own lock, ``meta.properties`` with a directory id, checkpoints and clean shutdown
marker. A folder that fails takes only its own logs offline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from barnabas.model.ids import METADATA_TOPIC, TopicPartition, Uuid, uuid_from_text
from barnabas.model.ports import Disk, DiskError, Random
from barnabas.model.settings import LONG_MAX
from barnabas.model.topic_settings import TopicSettings
from barnabas.storage import checkpoints
from barnabas.storage.damage import Report, unheard
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import PRODUCER_EXPIRATION_MS, Log
from barnabas.storage.offset_checkpoints import OffsetCheckpoints
from barnabas.storage.retention import REMOVE_AGAIN_MS
from barnabas.storage.segment import LOG_SUFFIX
from barnabas.storage.validation import Validation

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
STRAY_SUFFIX = "-stray"
LOCK_FILE = ".lock"
NO_DIRECTORY_ID = b""
NO_CHECKPOINTS = "checkpoints.obsolete"
"""In a log's folder: checkpoint entries of its name that a crash may bring back belong to a deleted topic."""

_TO_BE_DELETED = re.compile(r"\S+-\d+\.[0-9a-f]{32}-delete")
_FUTURE = re.compile(r"(\S+-\d+)\.[0-9a-f]{32}-future")
"""As Kafka names them, and we. Whatever else ends so is somebody's own."""
MAX_NAME_LENGTH = 255

SettingsOf = Callable[[TopicPartition, Uuid | None], TopicSettings]
"""The settings of a topic as the runtime knows them when the logs are loaded."""


class LockingDisk(Disk, Protocol):
    def lock(self, path: str) -> bool: ...

    def unlock(self, path: str) -> None: ...


class DirectoryLocked(Exception):
    """Another process uses the folder."""


def parse_directory_name(name: str) -> TopicPartition | None:
    """``<topic>-<partition>``; None for anything else, those to be deleted included."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdigit() or not partition.isascii():
        return None
    return TopicPartition(topic, int(partition))


def find_logs(disk: Disk, path: str) -> Iterator[tuple[TopicPartition, str]]:
    """The partitions of a data folder and their folders. Not every folder that is named like one is a log."""
    for name in disk.list(path):
        partition = parse_directory_name(name)
        if partition is None or partition.topic == METADATA_TOPIC:
            continue
        directory = f"{path}/{name}"
        if any(held == checkpoints.PARTITION_METADATA or held.endswith(LOG_SUFFIX) for held in disk.list(directory)):
            yield partition, directory


class LogDirectory:
    """One data folder."""

    def __init__(
        self,
        disk: LockingDisk,
        path: str,
        *,
        on_failure: Callable[[LogDirectory, str], None] | None = None,
        report: Report = unheard,
    ) -> None:
        self.disk = disk
        self.path = path
        self._report = report
        self.id = NO_DIRECTORY_ID  # set by the node once it has read or made the folder's identity
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}  # logs that are moved here
        self.interrupted: list[tuple[TopicPartition, Uuid | None]] = []  # moves that the last stop interrupted
        self.failure: str | None = None  # why it is offline
        self.was_clean = False
        self.previous_broker_epoch = -1  # from the clean shutdown marker
        self._on_failure = on_failure
        self._checkpoints = OffsetCheckpoints(disk, path, report)
        self._marked: set[TopicPartition] = set()  # logs with a mark that checkpoints of their name are not theirs
        self._high_watermarks: dict[TopicPartition, int] = {}  # those that the runtime last gave
        self._doomed: list[tuple[int, str]] = []  # (when to remove, path) of folders of deleted partitions

    @property
    def directory_id(self) -> Uuid | None:
        properties = checkpoints.read_meta_properties(self.disk, self.path) or {}
        text = properties.get("directory.id")
        return uuid_from_text(text) if text else None

    def lock(self) -> None:
        self.disk.make_directory(self.path)
        if not self.disk.lock(f"{self.path}/{LOCK_FILE}"):
            raise DirectoryLocked(f"{self.path} is in use by another process")

    def load(self, settings_of: SettingsOf, *, now_ms: int, options: LogOptions) -> None:
        """Opens every log; the clean shutdown marker is taken away once all have been, as Kafka does."""
        epoch = checkpoints.read_clean_shutdown(self.disk, self.path)
        self.was_clean = epoch is not None
        self.previous_broker_epoch = -1 if epoch is None else epoch
        damaged = self._checkpoints.load()
        if checkpoints.RECOVERY_POINTS in damaged or checkpoints.LOG_START_OFFSETS in damaged:
            self.was_clean = False
        found = list(find_logs(self.disk, self.path))
        self._marked = {name for name, folder in found if self.disk.exists(f"{folder}/{NO_CHECKPOINTS}")}
        recovery_points = self._checkpointed(checkpoints.RECOVERY_POINTS)
        start_offsets = self._checkpointed(checkpoints.LOG_START_OFFSETS)
        cleaner_offsets = self._checkpointed(checkpoints.CLEANER_OFFSETS)
        self._high_watermarks = self._checkpointed(checkpoints.HIGH_WATERMARKS)
        for name in self.disk.list(self.path):
            self._note_interrupted(name)
            if _TO_BE_DELETED.fullmatch(name) or _FUTURE.fullmatch(name):
                self.disk.remove_tree(f"{self.path}/{name}")
        for partition, directory in found:
            topic_id = self._read_topic_id(directory)
            log = self.logs[partition] = self._open(
                directory,
                partition,
                settings_of(partition, topic_id),
                now_ms=now_ms,
                clean=self.was_clean,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=start_offsets.get(partition, 0),
                topic_id=topic_id,
                options=options,
            )
            log.cleaned_offset = cleaner_offsets.get(partition)
            log.parent_unsynced = log.flushed_offset == 0  # its folder's name may not be synced yet
            self._sync_recovered(log)
        if self.was_clean:
            self.disk.remove(f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}")
            self.disk.sync_directory(self.path)

    def _open(
        self,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        *,
        now_ms: int,
        clean: bool,
        topic_id: Uuid | None,
        options: LogOptions,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        return Log.open(
            self.disk,
            directory,
            partition,
            settings,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            on_failure=self._log_failed,
            report=options.report,
            producer_id_expiration_ms=options.producer_id_expiration_ms,
            validation=options.validation,
            random=options.random,
        )

    def _note_interrupted(self, name: str) -> None:
        """A future log is removed, whatever it holds; the move begins anew if the partition is still elsewhere."""
        found = _FUTURE.fullmatch(name)
        partition = parse_directory_name(found[1]) if found is not None else None
        if partition is not None:
            self.interrupted.append((partition, self._read_topic_id(f"{self.path}/{name}")))

    def _checkpointed(self, name: str) -> dict[TopicPartition, int]:
        """Without the entries of deleted topics whose names other topics have now."""
        offsets = self._checkpoints[name]
        return {partition: offset for partition, offset in offsets.items() if partition not in self._marked}

    def _sync_recovered(self, log: Log) -> None:
        """What a crash left unsynced counts as durable only once it is synced; a start may wait for that.

        Where there is no room for it, the first leader syncs it, and the high watermark waits.
        """
        settings = log.settings
        if log.unflushed_messages and min(settings.flush_messages, settings.flush_ms) < LONG_MAX:
            try:
                log.flush()
            except DiskError as problem:
                self._report("what recovery found is not synced yet", partition=str(log.partition), reason=str(problem))

    def _read_topic_id(self, directory: str) -> Uuid | None:
        """None where a loss of power has left the file empty: nothing in that folder had been promised yet."""
        try:
            return checkpoints.read_partition_metadata(self.disk, directory)
        except checkpoints.MalformedCheckpoint:
            return None

    def create(
        self,
        partition: TopicPartition,
        topic_id: Uuid | None,
        settings: TopicSettings,
        *,
        now_ms: int,
        options: LogOptions,
    ) -> Log:
        """Raises DiskError, and nothing is left of the log then; LogOffline where the folder is gone."""
        self._check_present(partition)
        directory = f"{self.path}/{partition}"
        self._make_way(partition, topic_id, directory, now_ms)
        is_recreated = self._checkpoints.holds(partition)
        if is_recreated:
            self._checkpoints.discard_absent(self.logs)
        self.disk.make_directory(directory)
        try:
            if is_recreated:
                self.disk.write_file(f"{directory}/{NO_CHECKPOINTS}", b"", sync=False)
                self._marked.add(partition)
            if topic_id is not None:
                checkpoints.write_partition_metadata(self.disk, directory, topic_id, sync=False)
            log = self._open(
                directory, partition, settings, now_ms=now_ms, clean=True, topic_id=topic_id, options=options
            )
        except DiskError:
            self._marked.discard(partition)
            self._removing(lambda: self.disk.remove_tree(directory))
            raise
        log.parent_unsynced = True
        self.logs[partition] = log
        if is_recreated:
            self.checkpoint()
        return log

    def _check_present(self, partition: TopicPartition) -> None:
        """Making a log would make the missing folder anew, on another disk perhaps."""
        if not self.disk.exists(self.path):
            self.take_offline("the folder is missing")
            raise LogOffline(str(partition), f"{self.path} is missing")

    # Logs that are moved here

    def create_future(
        self,
        partition: TopicPartition,
        topic_id: Uuid,
        settings: TopicSettings,
        unique: bytes,
        *,
        now_ms: int,
        options: LogOptions,
    ) -> Log:
        """Raises as ``create`` does."""
        self._check_present(partition)
        directory = self._renamed(partition, unique.hex(), FUTURE_SUFFIX)
        self.disk.make_directory(directory)
        try:
            self.disk.write_file(f"{directory}/{NO_CHECKPOINTS}", b"", sync=False)
            checkpoints.write_partition_metadata(self.disk, directory, topic_id, sync=False)
            log = self._open(
                directory, partition, settings, now_ms=now_ms, clean=True, topic_id=topic_id, options=options
            )
        except DiskError:
            self._removing(lambda: self.disk.remove_tree(directory))
            raise
        log.parent_unsynced = True
        self.futures[partition] = log
        return log

    def discard_future(self, partition: TopicPartition, now_ms: int) -> None:
        """The move is given up; ``sweep`` removes the files."""
        log = self.futures.pop(partition, None)
        if log is not None:
            log.close(clean=False)
            self._doomed.append((now_ms, log.directory))
            log.renamed(log.directory)

    def install_future(
        self, partition: TopicPartition, settings: TopicSettings, *, now_ms: int, options: LogOptions
    ) -> Log:
        """Gives the future log its final name and opens it there. Raises DiskError, LogOffline: it is given up then."""
        future = self.futures[partition]
        directory = f"{self.path}/{partition}"
        try:
            future.close(clean=True)
            self._make_way(partition, future.topic_id, directory, now_ms)
            self.disk.rename(future.directory, directory)
        except (DiskError, LogOffline):
            self.discard_future(partition, now_ms)
            raise
        del self.futures[partition]
        try:
            self.disk.sync_directory(self.path)
            log = self._open(
                directory,
                partition,
                settings,
                now_ms=now_ms,
                clean=True,
                log_start_offset=future.log_start_offset,
                topic_id=future.topic_id,
                options=options,
            )
        except DiskError:
            self._removing(lambda: self.disk.remove_tree(directory))
            raise
        log.cleaned_offset = future.cleaned_offset
        self.logs[partition] = log
        self._marked.add(partition)
        return log

    def _make_way(self, partition: TopicPartition, topic_id: Uuid | None, directory: str, now_ms: int) -> None:
        """A folder of that name is not the new log's beginning: it is set aside.

        Its own beginning, which an attempt on a full disk could not even remove, is removed.
        """
        if self.disk.exists(directory) and self.disk.list(directory):
            if topic_id is not None and self._read_topic_id(directory) == topic_id and self._is_empty(directory):
                self.disk.remove_tree(directory)
                return
            target = self._renamed(partition, f"{now_ms:032x}", STRAY_SUFFIX)
            self.disk.rename(directory, target)
            self._report("a folder was in the way of a new partition", folder=directory, renamed_to=target)

    def _is_empty(self, directory: str) -> bool:
        logs = [name for name in self.disk.list(directory) if LOG_SUFFIX in name]
        return not any(self.disk.open(f"{directory}/{name}").size() for name in logs)

    def _renamed(self, partition: TopicPartition, unique: str, suffix: str) -> str:
        """As Kafka does it: a name that no topic can have."""
        suffix = f"-{partition.partition}.{unique}{suffix}"
        return f"{self.path}/{partition.topic[: MAX_NAME_LENGTH - len(suffix)]}{suffix}"

    def delete(self, partition: TopicPartition, unique: bytes, now_ms: int) -> None:
        """Renames the log's folder out of the way; ``sweep`` removes it after file.delete.delay.ms."""
        log, target = self._take_away(partition, unique, DELETE_SUFFIX)
        self._doomed.append((now_ms + log.settings.file_delete_delay_ms, target))

    def set_aside(self, partition: TopicPartition, unique: bytes) -> str:
        """Renames the folder of a log that no topic has, and lets it be; returns where it is."""
        return self._take_away(partition, unique, STRAY_SUFFIX)[1]

    def _take_away(self, partition: TopicPartition, unique: bytes, suffix: str) -> tuple[Log, str]:
        log = self.logs.pop(partition)
        self._high_watermarks.pop(partition, None)
        self._marked.discard(partition)
        target = self._renamed(partition, unique.hex(), suffix)
        log.close(clean=False)
        self.disk.rename(log.directory, target)
        log.renamed(target)
        return log, target

    def sweep(self, now_ms: int) -> None:
        """Removes files and folders whose delay is over; what cannot be removed now is tried again."""
        for log in self.logs.values():
            if log.doomed and log.offline is None:
                self._removing(lambda log=log: log.remove_deleted_files(now_ms))  # type: ignore[misc]
        due = [path for remove_at_ms, path in self._doomed if remove_at_ms <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        for path in due:
            if not self._removing(lambda path=path: self.disk.remove_tree(path)):  # type: ignore[misc]
                self._doomed.append((now_ms + REMOVE_AGAIN_MS, path))

    def _removing(self, remove: Callable[[], object]) -> bool:
        try:
            remove()
        except DiskError as problem:
            self._report("what is deleted cannot be removed yet", reason=str(problem))
            return False
        return True

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Stores recovery points, log start offsets, cleaner offsets and the given high watermarks without blocking."""
        if high_watermarks is not None:
            self._high_watermarks = dict(high_watermarks)
        self._checkpoints.store(self._checkpoint_contents, self._unmark)

    def _unmark(self) -> None:
        """The checkpoints on the disk are those of the logs that are there."""
        for partition in sorted(self._marked):
            path = f"{self.logs[partition].directory}/{NO_CHECKPOINTS}"
            if self._removing(lambda path=path: self.disk.remove(path)):  # type: ignore[misc]
                self._marked.discard(partition)

    def _checkpoint_contents(self) -> dict[str, dict[TopicPartition, int]]:
        logs = self.logs
        return {
            checkpoints.RECOVERY_POINTS: {partition: log.flushed_offset for partition, log in logs.items()},
            checkpoints.LOG_START_OFFSETS: {
                partition: log.log_start_offset
                for partition, log in logs.items()
                if log.log_start_offset > log.segments[0].base_offset
            },
            checkpoints.HIGH_WATERMARKS: {
                partition: offset for partition, offset in self._high_watermarks.items() if partition in logs
            },
            checkpoints.CLEANER_OFFSETS: {
                partition: log.cleaned_offset for partition, log in logs.items() if log.cleaned_offset is not None
            },
        }

    def checkpointed_high_watermark(self, partition: TopicPartition) -> int:
        return self._high_watermarks.get(partition, 0)

    def close(self, *, broker_epoch: int, high_watermarks: dict[TopicPartition, int] | None = None) -> bool:
        """Flushes and closes everything; the marker is written only where all of it went well."""
        clean = self.failure is None
        for future in self.futures.values():
            future.close(clean=False)
        try:
            self._sync_new_folders()
        except DiskError:
            clean = False
        for log in self.logs.values():
            try:
                log.close(clean=clean)
                clean = clean and log.offline is None
            except (DiskError, LogOffline):
                clean = False
        if clean:
            if high_watermarks is not None:
                self._high_watermarks = high_watermarks
            for name, offsets in self._checkpoint_contents().items():
                self._checkpoints.write(name, offsets, sync=True)
            self._unmark()
            checkpoints.write_clean_shutdown(self.disk, self.path, broker_epoch)
        self.disk.unlock(f"{self.path}/{LOCK_FILE}")
        return clean

    def _sync_new_folders(self) -> None:
        """Once for all partitions, instead of once for each; those that are empty are no loss."""
        new = [log for log in self.logs.values() if log.parent_unsynced and log.log_end_offset > log.log_start_offset]
        if new:
            self.disk.sync_directory(self.path)
        for log in new:
            if log.topic_id is not None:
                self.disk.open(f"{log.directory}/{checkpoints.PARTITION_METADATA}").sync()
            log.parent_unsynced = False

    def _log_failed(self, log: Log, reason: str) -> None:
        """One failing log gives the folder up: the disk under it can no longer be trusted."""
        self.take_offline(f"{log.partition}: {reason}")

    def take_offline(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            for other in (*self.logs.values(), *self.futures.values()):
                other.fail(f"its folder is offline since {self.failure}")
            if self._on_failure is not None:
                self._on_failure(self, self.failure)


class LogOptions:
    """What all logs of a broker share."""

    __slots__ = ("producer_id_expiration_ms", "random", "report", "validation")

    def __init__(
        self,
        *,
        producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        validation: Validation = Validation.RECORDS,
        random: Random | None = None,
        report: Report = unheard,
    ) -> None:
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.validation = validation
        self.random = random
        self.report = report
