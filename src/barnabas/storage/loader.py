"""Opens a log's folder: loads its segments, and recovers after an unclean shutdown.

After a clean shutdown the indexes and the last producer snapshot are trusted, and only the few batches after the last
index entry are scanned. Otherwise every segment from the one with the recovery point on is read: length, magic,
checksum and ascending offsets of each batch. The log ends at the first batch that is not sound. What follows may have
been acknowledged, and readers lose it: so every cut is reported, and all but the torn end of the last segment is kept
under names that are never loaded (``.corrupt-<number>``), for the operator. The same pass rebuilds the indexes, the
leader epochs, the producer state and the aborted transactions. Segments before the recovery point were synced with
their indexes; those are checked on first use, and rebuilt if they are missing or have an impossible size.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from barnabas.model.ports import DiskError, FileMissing
from barnabas.model.settings import INT_MAX
from barnabas.storage import damage
from barnabas.storage.follower import replay
from barnabas.storage.producer_snapshot import Snapshots
from barnabas.storage.scan import CHUNK_BYTES, SegmentScan, scan_segment, sound_headers
from barnabas.storage.segment import DELETED_SUFFIX, LOG_SUFFIX, SUFFIXES, Segment, aside_suffix
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.batch import CONTROL, TRANSACTIONAL, CorruptBatch, add_sequence, check_crc, read_header
from barnabas.wire.walk import BatchFields, IndexScan, ScanState, Stop

if TYPE_CHECKING:
    from barnabas.storage.log import Log

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_METADATA_SNAPSHOT_DELETED = ".checkpoint.deleted"


def load(log: Log, *, now_ms: int, clean: bool, recovery_point: int, log_start_offset: int) -> None:
    names = _list_or_create(log)
    if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
        finish_interrupted(log, names)
        names = log.disk.list(log.directory)
    log.snapshots = Snapshots(log.disk, log.directory, names)
    _find_segments(log, names, now_ms)
    log.log_start_offset = max(log_start_offset, log.bases[0] if log.bases else 0)
    epochs_known = log.epochs.load() or not log.segments
    if log.segments and clean:
        _drop_empty_tail(log)
        clean = _trust_tail(log)
    first_torn = len(log.segments) if clean else _first_torn(log, recovery_point)
    if not epochs_known:
        _find_epochs(log, first_torn)
    if clean:
        log.log_end_offset = log.segments[-1].next_offset if log.segments else log.log_start_offset
        if log.snapshots.offsets:
            rebuild_producers(log)
    else:
        _recover(log, first_torn)
    if recovery_point > log.log_end_offset:
        log.report(
            "a log ends before its recovery point: records that were on the disk are missing",
            partition=str(log.partition),
            recovery_point=recovery_point,
            log_end_offset=log.log_end_offset,
        )
    _settle(log, now_ms)
    log.is_stored = clean
    log.flushed_offset = log.log_end_offset if clean else min(recovery_point, log.log_end_offset)
    for segment in log.segments:
        synced = clean or segment.next_offset <= log.flushed_offset
        segment.synced_size = segment.size if synced else 0
        if not (synced and segment.size):
            segment.note_new_name()  # unknown whether it was synced; an empty one may have no file yet


def _list_or_create(log: Log) -> list[str]:
    try:
        return log.disk.list(log.directory)
    except FileMissing:
        log.disk.make_directory(log.directory)
        log.parent_unsynced = True
        return []


def finish_interrupted(log: Log, names: list[str]) -> None:
    """Deletions are completed, half-made cleanings dropped, and finished cleanings (.swap) put in place."""
    disk, directory = log.disk, log.directory
    names = [name for name in names if name[:20].isdigit()]
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    # A split that was interrupted leaves .cleaned beside .swap; its .swap files from there on are incomplete.
    first_cleaned = min((int(name[:20]) for name in cleaned), default=1 << 63)
    for name in names:
        is_deleted = name.endswith(DELETED_SUFFIX) and not name.endswith(_METADATA_SNAPSHOT_DELETED)
        is_partial_swap = name.endswith(SWAP_SUFFIX) and int(name[:20]) >= first_cleaned
        if is_deleted or is_partial_swap or name in cleaned:
            disk.remove(f"{directory}/{name}")
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX) and int(name[:20]) < first_cleaned]
    logs = [name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if logs:
        start = min(int(name[:20]) for name in logs)
        end = max(_next_offset_of(log, name) for name in logs)
        for name in names:
            if name.endswith(SUFFIXES) and name[:20].isdigit() and start <= int(name[:20]) < end:
                disk.remove(f"{directory}/{name}")
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    disk.sync_directory(directory)


def _next_offset_of(log: Log, name: str) -> int:
    file = log.disk.open(f"{log.directory}/{name}")
    next_offset = int(name[:20])
    for _, header in sound_headers(file, 0, file.size(), 1 << 20):
        next_offset = header.next_offset
    file.close()
    return next_offset


def _find_segments(log: Log, names: list[str], now_ms: int) -> None:
    bases = sorted(int(name[:20]) for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdigit())
    known = set(bases)
    for name in names:
        if name.endswith(SUFFIXES) and name[:20].isdigit() and int(name[:20]) not in known:
            log.disk.remove(f"{log.directory}/{name}")  # an index whose segment is gone
    for base in bases:
        interval = log.settings.index_interval_bytes
        segment = Segment(log.disk, log.directory, base, created_ms=now_ms, index_interval_bytes=interval, stored=True)
        segment.size = segment.open_log().size()
        segment.on_rebuild = partial(damage.tell_rebuilt, log)
        if not segment.size and base != bases[-1]:
            segment.remove()
            continue
        if log.segments:
            log.segments[-1].next_offset = base
        log.segments.append(segment)
        log.bases.append(base)


def _first_torn(log: Log, recovery_point: int) -> int:
    """The number of the first segment to check. An empty last file does not prove where the one before it ends."""
    first = max(bisect_right(log.bases, recovery_point) - 1, 0)
    is_empty_tail = 0 < first == len(log.segments) - 1 and not log.active.size
    return first - 1 if is_empty_tail else first


def _drop_empty_tail(log: Log) -> None:
    """Removes the file of a roll that failed halfway, after which the segment before it went on growing."""
    if len(log.segments) < 2 or log.active.size:
        return
    empty, previous = log.segments[-1], log.segments[-2]
    previous.open_indexes()
    batches = previous.sound_batches(previous.offset_index.last_position())
    if any(header.next_offset > empty.base_offset for _, header in batches):
        _set_aside_from(log, len(log.segments) - 1, "it is empty")


def _trust_tail(log: Log) -> bool:
    """Finds the end offset behind the last index entry; False where the tail is not what a clean stop leaves."""
    segment = log.segments[-1]
    if not segment.size:
        return True
    segment.next_offset = segment.base_offset + INT_MAX + 1  # not known yet, and not read before it is
    segment.open_indexes()
    position = end = segment.offset_index.last_position()
    timestamp, offset = segment.time_index.last()
    segment.next_offset = segment.base_offset
    for found, header in segment.sound_batches(position):
        end = found + header.size
        segment.next_offset = header.next_offset
        if header.max_timestamp > timestamp:
            timestamp, offset = header.max_timestamp, header.last_offset
    segment.max_timestamp, segment.offset_of_max_timestamp = timestamp, offset
    segment.bytes_since_index = end - position
    return end == segment.size


def _recover(log: Log, first_torn: int) -> None:
    """Reads the segments from ``first_torn`` on through, and ends the log where they are no longer sound."""
    torn = log.segments[first_torn:]
    if torn:
        log.log_end_offset = torn[0].base_offset
        rebuild_producers(log)
    for index, segment in enumerate(torn, first_torn):
        if segment is not torn[0] and _is_missing_before(log, segment, index):
            _set_aside_from(log, index, f"the segment before ends at {log.log_end_offset}")
            break
        found = _recover_segment(log, segment)
        if found.position < segment.open_log().size():
            # What follows goes first: killed in between, the log still has the damaged place to stop at.
            _set_aside_from(log, index + 1, f"the segment before is damaged at offset {log.log_end_offset}")
            _cut(log, segment, found, is_last=segment is torn[-1])
            break
        if segment is not torn[-1]:
            segment.seal()
    _sync_aborted(log, torn)
    log.log_end_offset = log.segments[-1].next_offset if log.segments else log.log_start_offset


def _sync_aborted(log: Log, torn: list[Segment]) -> None:
    """Aborted transactions that were found again: where the recovery point lies behind them, no flush would do it."""
    indexes = [segment.transaction_index for segment in torn if not segment.removed]
    files = [file for file in (index.unsynced_file() for index in indexes) if file is not None]
    for file in files:
        file.sync()
    if files:
        log.disk.sync_directory(log.directory)


def _is_missing_before(log: Log, segment: Segment, index: int) -> bool:
    """The end of the segment before was lost on a batch boundary. A hole would be served as if it were whole."""
    if segment.base_offset == log.log_end_offset:
        return False
    if segment.base_offset < log.log_end_offset and not segment.size:
        return True  # left by a roll that failed, while the segment before went on growing
    if log.settings.compacts:
        return False
    return not damage.was_compacted(log.segments[index - 1])


def _set_aside_from(log: Log, index: int, reason: str) -> None:
    """Ends the log before the segment; segments with data are renamed to names that are never loaded."""
    for segment in reversed(log.segments[index:]):
        if not segment.size:
            segment.remove()
            continue
        kept = segment.set_aside()
        log.report(
            "recovery has taken a segment out of the log",
            partition=str(log.partition),
            offset=segment.base_offset,
            bytes=segment.size,
            reason=reason,
            kept_as=kept,
        )
    if index < len(log.segments):
        log.disk.sync_directory(log.directory)  # or a crash could bring back what the log has gone on without
    del log.segments[index:], log.bases[index:]


def _cut(log: Log, segment: Segment, found: SegmentScan, *, is_last: bool) -> None:
    """Cuts the unsound end off, and keeps a copy unless all of it can be a torn write."""
    file = segment.open_log()
    size = file.size()
    fields: dict[str, object] = {
        "partition": str(log.partition),
        "offset": log.log_end_offset,
        "bytes": size - found.position,
    }
    if is_last and (found.reason is Stop.PARTIAL or _is_unwritten(segment, found.position, size)):
        log.report("recovery has cut off an unfinished write", **fields)
    else:
        kept = _keep_rest(log, segment, found.position, size)
        log.report("recovery has ended a log at a damaged place", **fields, reason=found.reason.name, kept_as=kept)
    file.truncate(found.position)
    file.sync()  # or a crash could bring back what was cut, behind what is written next


def _is_unwritten(segment: Segment, position: int, size: int) -> bool:
    """Zeros to the end: blocks that were reserved, or reached the disk's tables before the data reached the disk."""
    file = segment.open_log()
    chunks = (file.read(min(CHUNK_BYTES, size - start), start) for start in range(position, size, CHUNK_BYTES))
    return all(chunk.count(0) == len(chunk) for chunk in chunks)


def _keep_rest(log: Log, segment: Segment, position: int, size: int) -> str:
    """Copies the bytes to be cut off, of which all but one bit may be sound. Best effort: the disk may be full."""
    name = f"{log.directory}/{log.log_end_offset:020d}"
    path = name + LOG_SUFFIX + aside_suffix(log.disk, name)
    source = segment.open_log()
    try:
        target = log.disk.open(path, create=True)
        for start in range(position, size, CHUNK_BYTES):
            target.write([source.read(min(CHUNK_BYTES, size - start), start)], start - position)
        target.sync()
        target.close()
    except DiskError as problem:
        log.disk.remove(path)
        return f"nothing: {problem}"
    return path


def _recover_segment(log: Log, segment: Segment) -> SegmentScan:
    """Takes the sound batches in."""
    segment.forget()
    segment.transaction_index.reset()

    def take(scan: IndexScan, data: bytes, data_position: int) -> None:
        segment.take_scan(scan, data_position + scan.stop)
        for leader_epoch, start in zip(scan.epochs[::2], scan.epochs[1::2], strict=True):
            log.epochs.assign(leader_epoch, start)
        for entry in _replay_all(log, scan.producers, data, data_position):
            segment.transaction_index.append(entry)

    state = ScanState(max(segment.base_offset, log.log_end_offset), leader_epoch=log.epochs.latest)
    found = scan_segment(segment, segment.open_log().size(), take, state=state, check_crc=True)
    segment.next_offset = max(segment.next_offset, segment.base_offset)
    log.log_end_offset = segment.next_offset
    log.producers.end_offset = log.log_end_offset
    return found


def _replay_all(log: Log, batches: list[BatchFields], data: bytes, data_position: int) -> list[AbortedTransaction]:
    """Takes batches with a producer id into the producer state; returns the transactions that were aborted."""
    remember = log.producers.remember
    aborted: list[AbortedTransaction] = []
    for position, base, last, timestamp, _, producer_id, producer_epoch, sequence, _, attributes in batches:
        if producer_id < 0:
            continue
        if not attributes & CONTROL:
            last_sequence = add_sequence(sequence, last - base) if sequence >= 0 else -1
            transactional = attributes & TRANSACTIONAL != 0
            remember(
                producer_id, producer_epoch, sequence, last_sequence, base, last, timestamp, transactional, log.now_ms
            )
            continue
        header = read_header(data, position - data_position)
        entry = replay(log.producers, data, position - data_position, header, log.now_ms)
        if entry is not None:
            aborted.append(entry)
    return aborted


def rebuild_producers(log: Log) -> None:
    """The producer state at the end of the log: the newest sound snapshot, and the batches since."""
    end_offset = log.log_end_offset
    log.snapshots.load_latest(
        log.producers,
        start_offset=log.log_start_offset,
        end_offset=end_offset,
        now_ms=log.now_ms,
        expiration_ms=log.producer_id_expiration_ms,
    )
    index = max(bisect_right(log.bases, log.producers.end_offset) - 1, 0)
    for segment in log.segments[index:]:
        if segment.base_offset >= end_offset:
            break
        _replay_segment(log, segment, log.producers.end_offset)
    log.producers.end_offset = end_offset


def _replay_segment(log: Log, segment: Segment, start_offset: int) -> None:
    if not segment.size:
        return
    try:
        place = damage.position_of(log, segment, start_offset) if start_offset > segment.base_offset else (0, None)
    except CorruptBatch:
        return  # which has been told; producers that wrote there only are not known any more
    if place is None:
        return

    def take(scan: IndexScan, data: bytes, data_position: int) -> None:
        sound = [found for found in scan.producers if _is_undamaged(log, segment, data, found, data_position)]
        _replay_all(log, sound, data, data_position)

    state = ScanState(segment.base_offset)
    scan_segment(segment, segment.size, take, position=place[0], state=state, check_crc=False)


def _is_undamaged(log: Log, segment: Segment, data: bytes, found: BatchFields, data_position: int) -> bool:
    """A damaged batch says nothing about its producer. Those behind it do, so the scan does not end there."""
    at = found[0] - data_position
    if check_crc(data, at, read_header(data, at).size):
        return True
    log.report(
        "a damaged batch is left out of the producer state",
        partition=str(log.partition),
        file=segment.name + LOG_SUFFIX,
        position=found[0],
        offset=found[1],
    )
    return False


def _find_epochs(log: Log, end: int) -> None:
    """The checkpoint of leader epochs is lost: every batch knows its own."""
    for segment in log.segments[:end]:

        def take(scan: IndexScan, _data: bytes, _position: int) -> None:
            for leader_epoch, start in zip(scan.epochs[::2], scan.epochs[1::2], strict=True):
                log.epochs.assign(leader_epoch, start)

        state = ScanState(segment.base_offset, leader_epoch=log.epochs.latest)
        scan_segment(segment, segment.size, take, state=state, check_crc=False)


def _settle(log: Log, now_ms: int) -> None:
    """Brings offsets, epochs and snapshots into line with the segments that are left."""
    if log.segments and log.log_end_offset < log.log_start_offset:
        _distrust_start(log)
    if not log.segments:
        log.log_end_offset = log.log_start_offset
        log.add_segment(log.log_start_offset, now_ms)
    elif log.active.size:
        log.active.load_first_timestamp()
    log.producers.end_offset = log.log_end_offset
    log.epochs.truncate_from_end(log.log_end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    log.snapshots.remove_outside(log.bases[0] - 1, log.log_end_offset)
    log.snapshots.remove_strays(log.bases)


def _distrust_start(log: Log) -> None:
    """The checkpoint says that the log begins behind its end: the number is wrong, or the end of the log is gone.

    Kafka deletes all segments then. A wrong number in a text file should not cost what is there: it is served from its
    first record on. Where nothing is there, the checkpoint is believed, so that no offset is given twice.
    """
    checkpoint = log.log_start_offset
    has_records = any(segment.size for segment in log.segments)
    log.report(
        "the log start offset checkpoint lies beyond the end of the log; "
        + ("what there is of the log is kept" if has_records else "the empty log goes on from there"),
        partition=str(log.partition),
        log_start_offset=checkpoint,
        log_end_offset=log.log_end_offset,
    )
    if has_records:
        log.log_start_offset = log.bases[0]
        rebuild_producers(log)
        return
    _set_aside_from(log, 0, "it is empty")
    log.epochs.clear()
    log.producers.clear(checkpoint)
