"""Planted bugs of a cluster: the quorum, replication, in-sync replicas, elections, groups.

Each is a small change of one function, as a wrong or forgotten line would make it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from barnabas.broker.context import Broker, ProducerIds
from barnabas.broker.handlers import fetch
from barnabas.core.metadata import alter_partition, registration
from barnabas.core.metadata import records as framing
from barnabas.core.metadata.partition_change import PartitionChange
from barnabas.core.metadata.partition_rules import PartitionRules
from barnabas.core.raft.election import Election
from barnabas.core.raft.events import HighWatermark, InstallSnapshot, LeadershipBegins, LogTruncated
from barnabas.core.raft.follower import Following
from barnabas.core.raft.leader import Leadership
from barnabas.core.raft.quorum import Quorum
from barnabas.core.raft.roles import Follower, Leading, Unattached
from barnabas.core.raft.voters import Voter
from barnabas.core.replication.leader import LeaderState
from barnabas.model.errors import ErrorCode
from barnabas.model.settings import LONG_MAX
from barnabas.runtime import metadata_snapshot, quorum_state
from barnabas.runtime.coordinator import CoordinatorShard
from barnabas.runtime.group_coordinator import GroupShard
from barnabas.runtime.leader_lease import LeaderLease
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.runtime.replica_fetcher import ReplicaFetcher
from barnabas.storage import follower
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager
from barnabas.wire import batch, records
from barnabas.wire.api.allocate_producer_ids import AllocateProducerIdsResponse

Patch = tuple[Any, str, Any]

# The quorum


def _forget_vote(*arguments: Any, **options: Any) -> Any:
    return replace(_load_vote(*arguments, **options), leader_id=-1, voted_id=-1)


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


def _vote_not_synced(disk: Any, directory: str, vote: Any, then: Callable[[Any], None]) -> None:
    _store_vote(_Unsynced(disk), directory, vote, then)


def _commit_any_epoch(leadership: Any) -> None:
    """As ``update_high_watermark``, without the start of the epoch."""
    quorum, state = leadership._quorum, leadership._quorum.state
    if not isinstance(state, Leading) or not state.has_appended:
        return
    ends = sorted((leadership._end_of(state, voter) for voter in quorum.voters), reverse=True)
    reached = ends[quorum.voters.majority - 1] if ends else -1
    if reached <= quorum.high_watermark:
        return
    quorum.high_watermark = reached
    quorum.emit(HighWatermark(reached))
    if not state.has_begun and reached > state.epoch_start_offset:
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
                snapshot.records.append(framing.decode(record.value or b""))
            else:
                metadata_snapshot._read_control(snapshot, records.read_control_type(record), record.value or b"")
    return snapshot


def _vote_for_anyone(election: Any, asked: Any) -> bool:
    if asked.pre_vote:
        return True
    quorum = election._quorum
    candidate = Voter(asked.replica_id, asked.replica_directory_id)
    is_free = isinstance(quorum.state, Unattached) and quorum.leader_id < 0 and quorum.voted in (None, candidate)
    if is_free:
        quorum.to_unattached(quorum.raft_epoch, voted=candidate)
    return is_free


def _skip_raft_truncation(driver: Any, effect: Any) -> None:
    driver._step(LogTruncated())


# Replication


def _move_one_too_far(leader: Any, now_ms: int) -> bool:
    moved = _move(leader, now_ms)
    if moved and leader.high_watermark < leader._end_offset:
        leader.high_watermark += 1
    return moved


def _move_alone(leader: Any, now_ms: int) -> bool:
    if leader._end_offset <= leader.high_watermark:
        return False
    leader.high_watermark = leader._end_offset
    return True


def _acknowledge_when_durable(partition: Any, last_offset: int, then: Callable[[ErrorCode], None]) -> None:
    partition.when_durable(last_offset, then)


def _count_what_is_sent(leader: Any, node: int, **options: Any) -> bool:
    return _on_fetch(leader, node, **{**options, "offset": options["leader_end_offset"]})


def _fetch_without_flush(fetcher: Any, key: Any, following: Any, data: Any) -> None:
    partition = following.partition
    durable_end, partition.durable_end = partition.durable_end, LONG_MAX
    _take(fetcher, key, following, data)
    partition.durable_end = durable_end


def _keep_divergent_tail(partition: Any, offset: int) -> None:
    partition.log.epochs.assign(partition.leader_epoch, partition.log_end_offset)


def _append_without_epoch(log: Any, appended: Any, leader_epoch: int, now_ms: int, **options: Any) -> Any:
    return _append_as_leader(log, appended, 0, now_ms, **options)


def _shrink_alone(leader: Any, now_ms: int) -> bool:
    kept = [
        node
        for node in leader.in_sync_replicas
        if node == leader.me or leader._is_caught_up(leader.followers[node], now_ms)
    ]
    leader.in_sync_replicas = tuple(kept)
    return False


# In-sync replicas and elections


def _ignore_broker_epochs(decision: Any, members: Any) -> None:
    _check_eligible(decision, [replace(member, broker_epoch=-1) for member in members])


def _reuse_broker_epoch(request: Any, broker_epoch: int) -> Any:
    return _broker(request, max(1, request.previous_broker_epoch))


def _elect_anyone(change: Any, node: int) -> bool:
    return node in change.replicas and change._may_lead(node)


def _count_from_zero(producer_ids: Any, response: Any) -> None:
    if isinstance(response, AllocateProducerIdsResponse):
        response.producer_id_start = 0
    _allotted(producer_ids, response)


# Groups


def _serve_before_loaded(shard: Any, steps: Any) -> None:
    if isinstance(shard, GroupShard):
        shard._serve()
    else:
        _await_commit(shard, steps)


_load_vote = quorum_state.load_vote
_store_vote = quorum_state.store_vote
_advance = Leadership.advance
_go_on = Following._go_on
_move = LeaderState._move
_on_fetch = LeaderState.on_fetch
_take = ReplicaFetcher._take
_append_as_leader = Log.append_as_leader
_check_eligible = alter_partition._Decision._check_eligible
_broker = registration._broker
_allotted = ProducerIds._allotted
_await_commit = CoordinatorShard._await_commit

CLUSTER_MUTANTS: dict[str, list[Patch]] = {
    "vote forgotten at a restart": [(quorum_state, "load_vote", _forget_vote)],
    "vote answered before it is on disk": [(quorum_state, "store_vote", _vote_not_synced)],
    "records of an old epoch committed": [(Leadership, "update_high_watermark", _commit_any_epoch)],
    "check quorum off": [(Leadership, "advance", _never_check_quorum)],
    "half a metadata snapshot installed": [
        (Following, "_go_on", _install_first_part),
        (metadata_snapshot, "read", _read_without_footer),
    ],
    "vote without a look at the log": [(Election, "_judge", _vote_for_anyone)],
    "metadata log not truncated": [(RaftDriver, "_truncate", _skip_raft_truncation)],
    "voter fetches before it has synced": [(Following, "is_synced", property(lambda _: True))],
    "removed voter never stands": [(Quorum, "may_stand", property(lambda quorum: quorum.is_voter))],
    "high watermark one too high": [(LeaderState, "_move", _move_one_too_far)],
    "high watermark without followers": [(LeaderState, "_move", _move_alone)],
    "acks=all without followers": [(Partition, "when_acknowledged", _acknowledge_when_durable)],
    "follower counted for what it was sent": [(LeaderState, "on_fetch", _count_what_is_sent)],
    "follower fetches before it has flushed": [(ReplicaFetcher, "_take", _fetch_without_flush)],
    "leader does not look for divergence": [(fetch._Fetch, "_diverges", lambda *_: False)],
    "follower keeps a divergent tail": [(Partition, "truncate_to", _keep_divergent_tail)],
    "records without a leader epoch": [
        (Log, "append_as_leader", _append_without_epoch),
        (Log, "assign_epoch_start", lambda *_: None),
    ],
    "in-sync set shrunk without the controller": [(LeaderState, "shrink", _shrink_alone)],
    "min.insync.replicas ignored": [(LeaderState, "has_enough_in_sync", property(lambda _: True))],
    "leader that is cut off leads on": [(LeaderLease, "_check", lambda *_: None)],
    "consumers see what is not committed": [
        (Partition, "visible_end", lambda partition, **_: partition.log_end_offset)
    ],
    "producers unknown to followers": [(follower, "replay", lambda *_: None)],
    "stale AlterPartition accepted": [(alter_partition, "_check_epochs", lambda *_: None)],
    "restarted replica taken for its former self": [
        (alter_partition._Decision, "_check_eligible", _ignore_broker_epochs)
    ],
    "fenced replica counted as in sync": [
        (alter_partition._Decision, "_check_eligible", lambda *_: None),
        (Broker, "may_be_in_sync", lambda *_: True),
    ],
    "broker epoch used again": [(registration, "_broker", _reuse_broker_epoch)],
    "replica outside the in-sync set elected": [(PartitionChange, "_is_valid", _elect_anyone)],
    "unclean election without being asked": [(PartitionRules, "is_unclean_allowed", lambda *_: True)],
    "producer ids allotted twice": [(ProducerIds, "_allotted", _count_from_zero)],
    "group served before it is loaded": [(CoordinatorShard, "_await_commit", _serve_before_loaded)],
    "log of a deleted topic used again": [
        (LogManager, "delete", lambda *_: None),
        (LocalPartitions, "_set_strays_aside", lambda *_: None),
    ],
}
"""Found by clusters of three, or by a schedule."""
