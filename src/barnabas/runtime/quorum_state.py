"""The file ``quorum-state``: epoch, leader and vote of a node in the quorum, in Kafka's form.

A vote that is forgotten could be cast twice. So among several voters a lost or damaged file is never read as epoch 0:
the node does not start, and says how it can join again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from barnabas.core.raft.events import NO_VOTE, Vote
from barnabas.model.ids import ZERO_UUID, uuid_from_text, uuid_text
from barnabas.model.ports import Disk, DiskError, FileMissing
from barnabas.model.settings import INT_MAX
from barnabas.storage.durable_files import replace_files

QUORUM_STATE = "quorum-state"


class LostVote(Exception):
    """The file with the vote is lost, and the quorum has other voters."""


def read_vote(disk: Disk, directory: str) -> Vote:
    """Raises FileMissing, and ValueError where it cannot be made out."""
    content = disk.read_file(f"{directory}/{QUORUM_STATE}")
    try:
        stored = json.loads(content)
        raft_epoch, leader_id = stored["leaderEpoch"], stored.get("leaderId", -1)
        voted_id, directory_text = stored.get("votedId", -1), stored.get("votedDirectoryId")
        voted_directory_id = ZERO_UUID if directory_text is None else uuid_from_text(directory_text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"{type(problem).__name__}: {problem}") from None
    if not _is_between(raft_epoch, 0):
        raise ValueError(f"the leader epoch cannot be {raft_epoch}")
    if not _is_between(leader_id, -1) or not _is_between(voted_id, -1):
        raise ValueError(f"the leader cannot be {leader_id}, nor the vote {voted_id}")
    return Vote(raft_epoch, leader_id, voted_id, voted_directory_id)


def _is_between(number: Any, low: int) -> bool:
    return isinstance(number, int) and low <= number < INT_MAX


def read_stored_epoch(disk: Disk, directory: str) -> int:
    """The epoch of the last vote. Raises as ``read_vote`` does."""
    return read_vote(disk, directory).raft_epoch


def load_vote(disk: Disk, directory: str, *, is_new: bool, others_vote: bool, report: Callable[..., None]) -> Vote:
    """``is_new`` is a log without a record: no vote has been cast. ``others_vote`` where there are other voters.

    The only voter has cast no vote that its log does not show. It may have, where it died between the vote and its
    first record; nobody else has heard of that one.
    """
    path = f"{directory}/{QUORUM_STATE}"
    try:
        return read_vote(disk, directory)
    except FileMissing:
        if is_new:
            return NO_VOTE
        reason = f"{path} is missing"
    except ValueError as problem:
        reason = f"{path} is damaged: {problem}"
    if others_vote:
        raise LostVote(
            f"{reason}, and the quorum has other voters: a node that forgets its vote could vote twice. Remove it from "
            "the voters and add it again with a new directory.id"
        )
    report("the vote is lost: the epoch is taken from the metadata log", reason=reason)
    return NO_VOTE


def store_vote(disk: Disk, directory: str, vote: Vote, then: Callable[[DiskError | None], None]) -> None:
    """Off the loop; the vote takes effect with ``then``, not before."""
    content = {
        "leaderId": vote.leader_id,
        "leaderEpoch": vote.raft_epoch,
        "votedId": vote.voted_id,
        "votedDirectoryId": uuid_text(vote.voted_directory_id),
        "data_version": 1,
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    replace_files(disk, directory, {QUORUM_STATE: text}, then)
