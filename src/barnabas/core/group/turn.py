"""One decision about groups in progress: the request, and the records and replies so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from barnabas.core.group.classic import ClassicGroup, Member, Reply
from barnabas.core.group.offsets import Offsets
from barnabas.core.group.records import GroupRecord
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ports import Random
from barnabas.wire.schema import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPolicy:
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    new_member_join_timeout_ms: int = 300_000
    """How long the JoinGroup of a new member may wait: its client may be gone without notice."""
    max_size: int = (1 << 31) - 1
    heartbeat_hold_ms: int = 0
    """How long a heartbeat response is delayed while there is no rebalance, for clients that allow it (ADR 5). At most
    a third of the member's session timeout."""
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    offsets_check_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A request with what the machine needs to know of its sender."""

    message: Message
    version: int
    client_id: str
    client_host: str
    wall_ms: int
    may_wait: bool = False
    """The sender goes on with its work while an answer of no consequence is held back."""
    guard: object = None
    """Of a commit in a transaction: its coordinator knows the partition of this group (``core.txn.marker``)."""


class Groups(Protocol):
    """What a decision looks at."""

    groups: dict[str, ClassicGroup]
    offsets: Offsets
    policy: GroupPolicy
    random: Random


class Turn:
    def __init__(self, machine: Groups, token: object, request: GroupRequest, now_ms: int) -> None:
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []
        self._machine = machine
        self._policy = machine.policy
        self._token = token
        self._request = request
        self._now_ms = now_ms

    def _reply(self, response: Message) -> None:
        self.replies.append((self._token, response))

    def _existing(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        group = self._machine.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    @staticmethod
    def _find(group: ClassicGroup, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            known = group.static_ids.get(instance_id)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = group.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    @staticmethod
    def _check_generation(group: ClassicGroup, generation: int) -> None:
        if generation != group.generation:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
