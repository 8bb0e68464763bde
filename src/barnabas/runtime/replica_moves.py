"""Moves replicas between the data folders of a broker while they are served: AlterReplicaLogDirs (KIP-113).

    copy   the log into a future log in the other folder, a chunk at a time; appends go on meanwhile
    flush  the future log off the loop, once it has caught up
    switch copy what was appended since, and put the future log in place (``storage.log_manager``)

One replica is copied at a time; the others wait, with empty future logs. Truncation of the present log begins the copy
anew. What fails gives the move up: the replica stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.core.replication.throttle import RateLimit
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.ports import Clock, Disk, DiskError, Random, Timer
from barnabas.runtime.flush import flush
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.log_directory import FUTURE_SUFFIX, MAX_NAME_LENGTH, LogDirectory
from barnabas.storage.log_manager import LogManager
from barnabas.wire.batch import CorruptBatch

CHUNK_BYTES = 256 << 10
"""Copied in one turn of the loop: some milliseconds."""
LAST_CHUNK_BYTES = 1 << 20
"""So much may be left to copy in the turn of the switch; twice as much after each flush that was too slow for that."""
MAX_PREFERRED = 10_000
"""Replicas that are yet to be made whose folder an operator has chosen."""

MoveFailed = (DiskError, LogOffline, ApiError, CorruptBatch)


class ReplicaMoves:
    def __init__(
        self,
        *,
        partitions: LocalPartitions,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        random: Random,
        on_moved: Callable[[Partition], None],
        report: Callable[..., None],
    ) -> None:
        self._partitions = partitions
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._random = random
        self._on_moved = on_moved
        self._report = report
        self._moves: dict[Partition, _Move] = {}
        self._timer: Timer | None = None
        self._limit = RateLimit()
        self._is_closed = False

    def limit(self, bytes_per_second: int) -> None:
        self._limit.set(bytes_per_second, self._clock.monotonic_ms())

    # Beginning

    def move(self, name: TopicPartition, path: str) -> None:
        """Begins to move the replica; a move to another folder is given up. Raises ApiError."""
        if len(f"{name}.{'0' * 32}{FUTURE_SUFFIX}") > MAX_NAME_LENGTH:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of {name.topic} is too long for a move")
        target = self._logs.find(path)
        if target is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
        if target.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {target.failure}")
        partition = self._partitions.get(name.topic, name.partition)
        if partition is None:
            self._prefer(name, path)
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"there is no replica of {name} here")
        if partition.log.offline is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(partition.log.offline))
        self._begin(partition, target)

    def _prefer(self, name: TopicPartition, path: str) -> None:
        """The replica is made there if it comes, as a tool that reassigns partitions with folders expects."""
        if len(self._logs.preferred) < MAX_PREFERRED:
            self._logs.preferred[name] = path

    def _begin(self, partition: Partition, target: LogDirectory) -> None:
        running = self._moves.get(partition)
        if running is not None and running.target is target:
            return
        if running is not None:
            self._give_up(running)
        if partition.data_folder == target.path:
            return
        try:
            target.discard_future(partition.name, self._clock.now_ms())  # of a deleted topic of the same name
            future = target.create_future(
                partition.name,
                partition.topic_id,
                partition.settings,
                self._random.randbytes(16),
                now_ms=self._clock.now_ms(),
                options=self._logs.options,
            )
        except (DiskError, LogOffline) as problem:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        self._report("a replica is being moved", partition=str(partition.name), folder=target.path)
        self._moves[partition] = _Move(partition, target, future)
        self._wait(0)

    def resume(self) -> None:
        """Begins the moves anew that the last stop interrupted."""
        for directory in self._logs.directories:
            interrupted, directory.interrupted = directory.interrupted, []
            for name, topic_id in interrupted:
                partition = self._partitions.get(name.topic, name.partition) if directory.failure is None else None
                if partition is not None and partition.topic_id == topic_id and partition.log.offline is None:
                    self._begin(partition, directory)

    def futures(self) -> Iterator[tuple[Partition, Log]]:
        for move in self._moves.values():
            yield move.partition, move.future

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # Copying

    def _wait(self, copied_bytes: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if copied_bytes:
            self._limit.charge(copied_bytes, now_ms)
        if self._timer is None and not self._is_closed:
            self._timer = self._clock.call_at(now_ms + self._limit.wait_ms(now_ms), self._turn)

    def _turn(self) -> None:
        self._timer = None
        move = next(iter(self._moves.values()), None)
        if move is None or move.is_flushing:
            return  # the end of the flush goes on
        try:
            copied = move.copy(CHUNK_BYTES, self._clock.now_ms())
            if not copied or move.future.has_unflushed_segments:
                self._flush(move)
        except MoveFailed as problem:
            self._failed(move, problem)
            copied = 0
        if self._moves:
            self._wait(copied)

    def _flush(self, move: _Move) -> None:
        move.is_flushing = True
        flush(self._disk, move.future, lambda problem: self._flushed(move, problem))

    def _flushed(self, move: _Move, problem: DiskError | LogOffline | None) -> None:
        move.is_flushing = False
        if self._is_closed or self._moves.get(move.partition) is not move:
            return
        if problem is not None:
            self._failed(move, problem)
            return
        try:
            if move.is_near_end and move.catch_up(self._clock.now_ms()):
                self._switch(move)
        except MoveFailed as failure:
            self._failed(move, failure)
        self._wait(0)

    def _switch(self, move: _Move) -> None:
        partition, now_ms = move.partition, self._clock.now_ms()
        log = self._logs.switch(partition.name, move.target, self._random.randbytes(16), now_ms)
        del self._moves[partition]
        partition.switch_log(log)
        self._logs.checkpoint(self._partitions.high_watermarks())
        self._report("a replica has been moved", partition=str(partition.name), folder=move.target.path)
        self._on_moved(partition)

    # Giving up

    def _failed(self, move: _Move, problem: Exception) -> None:
        self._report("a replica is not moved", partition=str(move.partition.name), reason=str(problem))
        self._give_up(move)
        if self._moves:
            self._wait(0)

    def _give_up(self, move: _Move) -> None:
        del self._moves[move.partition]
        if move.target.futures.get(move.partition.name) is move.future:
            move.target.discard_future(move.partition.name, self._clock.now_ms())


class _Move:
    def __init__(self, partition: Partition, target: LogDirectory, future: Log) -> None:
        self.partition = partition
        self.target = target
        self.future = future
        self.is_flushing = False
        self.is_near_end = False
        """The last copy reached the end of the log: after a flush there is little left."""
        self._last_chunk_bytes = LAST_CHUNK_BYTES
        self._truncations = -1

    def copy(self, max_bytes: int, now_ms: int) -> int:
        """Copies some batches; returns their bytes, 0 at the end of the log."""
        log, future = self.partition.log, self.future
        log.check_online()
        future.check_online()
        future.now_ms = now_ms
        if log.truncations != self._truncations or future.log_end_offset < log.log_start_offset:
            self._begin_anew(log)
        result = log.read(future.log_end_offset, max_bytes)
        self.is_near_end = result.records is None or result.next_offset >= log.log_end_offset
        if result.records is None:
            return 0
        future.append_as_follower(memoryview(result.records.read()))
        return result.size

    def _begin_anew(self, log: Log) -> None:
        self._truncations = log.truncations
        self.future.truncate_fully_and_start_at(log.log_start_offset)
        self.future.cleaned_offset = log.cleaned_offset  # what is compacted later is copied as it was or as it is

    def catch_up(self, now_ms: int) -> bool:
        """Copies what was appended during the flush; False where that is too much for one turn."""
        log, future = self.partition.log, self.future
        self.copy(self._last_chunk_bytes, now_ms)
        self._last_chunk_bytes *= 2
        if future.log_end_offset < log.log_end_offset:
            return False
        future.delete_records_before(log.log_start_offset)
        future.epochs.clear()  # those without records are in no batch
        for leader_epoch, start_offset in log.epochs.entries:
            future.epochs.assign(leader_epoch, start_offset)
        return True
