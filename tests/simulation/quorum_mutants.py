"""Planted bugs of the quorum, patched in: a simulator that does not find them proves nothing when it finds nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.core.raft.election import Election
from barnabas.core.raft.events import HighWatermark, InstallSnapshot, LeadershipBegins, LogTruncated
from barnabas.core.raft.follower import Following
from barnabas.core.raft.leader import Leadership
from barnabas.core.raft.roles import Follower, Leading, Unattached
from barnabas.core.raft.voters import Voter
from barnabas.model.errors import ErrorCode
from barnabas.runtime import metadata_snapshot, quorum_state
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.wire import batch, records

Patch = tuple[Any, str, Any]


def _vote_not_stored(disk: Any, directory: str, vote: Any, then: Callable[[Any], None]) -> None:
    then(None)


def _vote_not_synced(disk: Any, directory: str, vote: Any, then: Callable[[Any], None]) -> None:
    before = disk.is_slow
    _store_vote(_Unsynced(disk), directory, vote, then)
    disk.is_slow = before


class _Unsynced:
    """A disk whose syncs do nothing."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync(self, file: Any, then: Callable[[Any], None]) -> None:
        then(None)

    def sync_names(self, path: str, then: Callable[[Any], None]) -> None:
        then(None)


def _commit_any_epoch(leadership: Any) -> None:
    quorum, state = leadership._quorum, leadership._quorum.state
    if not isinstance(state, Leading) or not state.has_appended:
        return
    ends = sorted((leadership._end_of(state, voter) for voter in quorum.voters), reverse=True)
    reached = ends[quorum.voters.majority - 1]
    if reached > quorum.high_watermark:
        quorum.high_watermark = reached
        quorum.emit(HighWatermark(reached))
        if not state.has_begun:
            state.has_begun = True
            quorum.emit(LeadershipBegins(quorum.raft_epoch))


def _never_check_quorum(leadership: Any, state: Any) -> None:
    state.check_quorum_ms = leadership._quorum.now_ms + 1_000_000
    _advance(leadership, state)


def _install_first_part(following: Any, key: Any, position: int) -> None:
    state = following._quorum.state
    if isinstance(state, Follower) and state.snapshot is not None and position:
        state.snapshot.position = position
        following._quorum.emit(InstallSnapshot(key))
    else:
        _go_on(following, key, position)


def _read_without_footer(disk: Any, path: str, end_offset: int = 0, raft_epoch: int = 0) -> Any:
    content = disk.read_file(path)
    snapshot = metadata_snapshot.Snapshot(end_offset, raft_epoch)
    for position, header in batch.iterate(content):
        for record in records.decode_batch(content, position):
            if not header.is_control:
                snapshot.records.append(metadata_snapshot.framing.decode(record.value or b""))
            else:
                metadata_snapshot._read_control(snapshot, records.read_control_type(record), record.value or b"")
    return snapshot


def _skip_truncation(driver: Any, effect: Any) -> None:
    driver._step(LogTruncated())


def _vote_for_anyone(election: Any, asked: Any) -> bool:
    if not asked.pre_vote:
        quorum = election._quorum
        candidate = Voter(asked.replica_id, asked.replica_directory_id)
        is_free = isinstance(quorum.state, Unattached) and quorum.leader_id < 0 and quorum.voted in (None, candidate)
        if is_free:
            quorum.to_unattached(quorum.raft_epoch, voted=candidate)
        return is_free
    return True


def _vote_twice(election: Any, asked: Any) -> bool:
    if not asked.pre_vote:
        election._quorum.voted = None
    return _judge(election, asked)


def _count_unsynced(leadership: Any, state: Any, voter: Voter) -> int:
    return (
        leadership._quorum.log.log_end_offset if voter == leadership._quorum.me else _end_of(leadership, state, voter)
    )


def _forget_voters(history: Any, end_offset: int) -> None:
    """Voter sets that were truncated stay in force."""


_store_vote = quorum_state.store_vote
_advance = Leadership.advance
_go_on = Following._go_on
_judge = Election._judge
_end_of = Leadership._end_of

MUTANTS: dict[str, list[Patch]] = {
    "vote not stored": [(quorum_state, "store_vote", _vote_not_stored)],
    "vote not synced": [(quorum_state, "store_vote", _vote_not_synced)],
    "records of an old epoch committed": [(Leadership, "update_high_watermark", _commit_any_epoch)],
    "check quorum off": [(Leadership, "advance", _never_check_quorum)],
    "half a snapshot installed": [
        (Following, "_go_on", _install_first_part),
        (metadata_snapshot, "read", _read_without_footer),
    ],
    "truncation skipped": [(RaftDriver, "_truncate", _skip_truncation)],
    "vote without a look at the log": [(Election, "_judge", _vote_for_anyone)],
    "two votes in an epoch": [(Election, "_judge", _vote_twice)],
    "leader counts what it has not synced": [(Leadership, "_end_of", _count_unsynced)],
    "voter fetches before it has synced": [(Following, "is_synced", property(lambda _: True))],
    "epoch of a fetch ignored": [(Leadership, "_is_continued", lambda *_: True)],
    "requests of old epochs served": [(Leadership, "leader_error", lambda *_: ErrorCode.NONE)],
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The bug of that name is in the code while this lasts."""
    before = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in MUTANTS[name]]
    for owner, attribute, mutant in MUTANTS[name]:
        setattr(owner, attribute, mutant)
    try:
        yield
    finally:
        for owner, attribute, original in before:
            setattr(owner, attribute, original)
