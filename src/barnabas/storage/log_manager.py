"""All data folders of a broker together: where each log is, where new ones go, and how a log moves between folders.

A log moves to another folder through a *future* log there (KIP-113): ``<topic>-<partition>.<unique>-future``, filled
from the present one and never served. ``LogManager.switch`` puts it in place:

    close the future log, synced -> rename it to its final name -> sync the folder -> rename the old log to ``-delete``

A start after a crash finds the old log, the new one, or both; a future log is never the only copy, and is removed. Of
two logs of one partition the one with the later leader epoch, then the higher end, is served: the new one begins as a
copy of the old one, which is not written to any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from barnabas.model.errors import invariant
from barnabas.model.ids import TopicPartition, Uuid
from barnabas.model.ports import DiskError
from barnabas.model.topic_settings import TopicSettings
from barnabas.storage import checkpoints
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.log_directory import NO_DIRECTORY_ID, LogDirectory, LogOptions, SettingsOf


class LogManager:
    """A partition has one log in one of the folders."""

    def __init__(self, directories: Sequence[LogDirectory], options: LogOptions | None = None) -> None:
        self.directories = list(directories)
        self.options = options or LogOptions()
        self.preferred: dict[TopicPartition, str] = {}
        """Folders that an operator chose for replicas that are yet to be made."""

    def load(self, settings_of: SettingsOf, *, now_ms: int) -> None:
        for directory in self.directories:
            directory.lock()
        for directory in self.directories:
            directory.load(settings_of, now_ms=now_ms, options=self.options)

    def __iter__(self) -> Iterator[Log]:
        for directory in self.directories:
            yield from directory.logs.values()

    def __len__(self) -> int:
        return sum(len(directory.logs) for directory in self.directories)

    def get(self, partition: TopicPartition) -> Log | None:
        directory = self.directory_of(partition)
        return directory.logs[partition] if directory is not None else None

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        for directory in self.directories:
            if partition in directory.logs:
                return directory
        return None

    def create(
        self,
        partition: TopicPartition,
        topic_id: Uuid | None,
        settings: TopicSettings,
        *,
        now_ms: int,
        directory_id: bytes = NO_DIRECTORY_ID,
        is_new: bool = True,
    ) -> Log:
        """In the folder that the metadata names, else where the operator wants it, else where the fewest are.

        Raises LogOffline where the replica may be in a folder that is offline: an empty log must not take its place.
        """
        invariant(self.directory_of(partition) is None, f"{partition} has a log already")
        directory = self._choose(partition, directory_id, is_new=is_new)
        log = directory.create(partition, topic_id, settings, now_ms=now_ms, options=self.options)
        self.preferred.pop(partition, None)
        return log

    def _choose(self, partition: TopicPartition, directory_id: bytes, *, is_new: bool) -> LogDirectory:
        usable = [directory for directory in self.directories if directory.failure is None]
        if not usable:
            raise LogOffline(str(partition), "every data folder is offline")
        for directory in usable:
            if directory.id == directory_id != NO_DIRECTORY_ID:
                return directory
        if len(usable) < len(self.directories) and not is_new:
            raise LogOffline(str(partition), "it may be in a data folder that is offline")
        preferred = [directory for directory in usable if directory.path == self.preferred.get(partition)]
        return min(preferred or usable, key=lambda one: len(one.logs))

    def find(self, path: str) -> LogDirectory | None:
        return next((directory for directory in self.directories if directory.path == path), None)

    def switch(self, partition: TopicPartition, target: LogDirectory, unique: bytes, now_ms: int) -> Log:
        """The future log in ``target`` takes the place of the present one; the caller has copied all to it.

        Raises DiskError, LogOffline: the present log is still in place then.
        """
        source = self.directory_of(partition)
        invariant(source is not None and source is not target, f"{partition} is not moved to {target.path}")
        assert source is not None
        old = source.logs[partition]
        log = target.install_future(partition, old.settings, now_ms=now_ms, options=self.options)
        for leader_epoch, start_offset in old.epochs.entries:
            if leader_epoch > log.latest_epoch:  # without a record yet: opening a log takes it away
                log.epochs.assign(leader_epoch, start_offset)
        try:
            source.delete(partition, unique, now_ms)
        except DiskError as problem:
            self.options.report("the old log of a moved replica stays", partition=str(partition), reason=str(problem))
        return log

    def resolve_doubles(self, unique: Callable[[], bytes]) -> None:
        """A crash in ``switch`` left two logs of a partition: one is served, the other set aside."""
        for partition in [log.partition for log in self]:
            places = [directory for directory in self.directories if partition in directory.logs]
            places.sort(key=lambda place: _progress(place.logs[partition]), reverse=True)
            for place in places[1:]:
                folder = place.set_aside(partition, unique())
                self.options.report(
                    "a partition has a log in two data folders: one is set aside",
                    partition=str(partition),
                    served=places[0].path,
                    set_aside=folder,
                )

    def adopt(self, log: Log, topic_id: Uuid) -> None:
        """Gives a log whose topic id was lost the one that the metadata has for its name."""
        if log.topic_id is None:
            log.topic_id = topic_id
            checkpoints.write_partition_metadata(log.disk, log.directory, topic_id, sync=True)

    def delete(self, partition: TopicPartition, unique: bytes, now_ms: int) -> None:
        """``unique`` is sixteen random bytes: a topic may be created and deleted again and again."""
        directory = self.directory_of(partition)
        if directory is not None:
            directory.delete(partition, unique, now_ms)

    def set_aside(self, partition: TopicPartition, unique: bytes) -> str | None:
        directory = self.directory_of(partition)
        return directory.set_aside(partition, unique) if directory is not None else None

    def sweep(self, now_ms: int) -> None:
        for directory in self.directories:
            if directory.failure is None:
                directory.sweep(now_ms)

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for directory in self.directories:
            if directory.failure is None:
                directory.checkpoint(high_watermarks)

    def checkpointed_high_watermark(self, partition: TopicPartition) -> int:
        """0 where none is known."""
        directory = self.directory_of(partition)
        return 0 if directory is None else directory.checkpointed_high_watermark(partition)

    def close(self, *, broker_epoch: int = -1, high_watermarks: dict[TopicPartition, int] | None = None) -> bool:
        """True where every folder was closed cleanly."""
        results = [
            directory.close(broker_epoch=broker_epoch, high_watermarks=high_watermarks)
            for directory in self.directories
        ]
        return all(results)


def _progress(log: Log) -> tuple[int, int]:
    return log.latest_epoch, log.log_end_offset
