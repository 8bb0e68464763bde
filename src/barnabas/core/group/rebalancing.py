"""Starts and completes rebalances, for joining, leaving and timing out."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.group import classic
from barnabas.core.group.classic import ClassicGroup, Member, State
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.turn import Turn
from barnabas.model.errors import ErrorCode
from barnabas.wire.stored.classic_group import GroupMetadataKey

LONGEST_REASON = 200
"""Of what a client says about why it joins or leaves, so much is remembered."""


class RebalancingTurn(Turn):
    def _prepare(self, group: ClassicGroup, cause: str) -> None:
        delay_ms = self._policy.initial_rebalance_delay_ms
        self.replies += group.prepare(self._now_ms, self._request.wall_ms, cause, delay_ms)

    def _rebalance(self, group: ClassicGroup, cause: str) -> None:
        """Starts a join phase unless there is one, and completes it if no member is missing."""
        if group.state is State.PREPARING:
            group.note(cause)
        else:
            self._prepare(group, cause)
        self._try_complete(group)

    def _try_complete(self, group: ClassicGroup, *, time_is_up: bool = False) -> None:
        """Completes the join phase when all members have joined; a group that was empty waits for its initial delay."""
        if group.state is not State.PREPARING:
            return
        if group.members and not time_is_up:
            waits_for_more = group.is_initial and self._policy.initial_rebalance_delay_ms > 0
            if waits_for_more or not group.everyone_joined:
                return
        self.replies += group.complete_join(self._now_ms, self._request.wall_ms)
        if not group.members:
            self._record(group)

    def _record(self, group: ClassicGroup) -> None:
        self.records.append(GroupRecord(GroupMetadataKey(group.group_id), group.as_record()))

    def _record_id(self, group: ClassicGroup, member: Member) -> None:
        """The log knows a static member's new id before the member does: after a restart the old one would fence it.

        The rest stays as it was recorded, since the generation under way counts only when its leader has synced.
        Kafka records the id in a stable group only.
        """
        renamed = group.recorded_as(member)
        if renamed is not None:
            self.records.append(GroupRecord(GroupMetadataKey(group.group_id), renamed))

    def _remove(self, group: ClassicGroup, members: Sequence[Member], cause: str) -> None:
        for member in members:
            self.replies += classic.dismissed(member, ErrorCode.UNKNOWN_MEMBER_ID)
            group.remove(member.member_id)
        self._rebalance(group, cause)


def who(*members: Member) -> str:
    names = [f"static member {m.instance_id}" if m.instance_id else f"member {m.member_id}" for m in members]
    return ", ".join(names)


def because(reason: str | None) -> str:
    return f" ({reason[:LONGEST_REASON]})" if reason else ""
