"""How one partition changes: the rules of elections, in-sync sets and reassignments in one place.

A decision sets targets (in-sync set, replicas, directories …) and ``build`` works out the record:

    complete the reassignment if the new replicas are in sync
    -> eligible leader replicas: who left the in-sync set while it is below min.insync.replicas (KIP-966)
    -> elect: the in-sync set, else the eligible, else the last known leader, else anybody (unclean election)
    -> leader epoch: raised by a change of leader and by replicas that leave, not by in-sync changes

With eligible leader replicas an in-sync set may become empty: those that were in it last are eligible, or, if they
stopped uncleanly, the last leader is remembered and may lead again when it is back. Without them (the feature is not
finalized), the last members stay in the set while nobody leads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

from barnabas.core.metadata.image import PartitionImage
from barnabas.model.ids import NO_LEADER
from barnabas.wire.stored.metadata_topics import PartitionChangeRecord

NO_LEADER_CHANGE = -2
RECOVERED, RECOVERING = 0, 1
"""Leader recovery states: after an unclean election the leader recovers (KIP-704)."""


class Election(Enum):
    ONLINE = "keep the leader if it may lead, else the next that is in sync or eligible"
    PREFERRED = "the first of the replicas if it may lead, else as ONLINE"
    UNCLEAN = "as ONLINE, else any replica that serves"


class PartitionChange:
    def __init__(
        self,
        before: PartitionImage,
        *,
        may_lead: Callable[[int], bool],
        min_in_sync: int,
        with_eligible: bool,
        bumps_on_shrink: bool = False,
    ) -> None:
        """``may_lead`` says which brokers serve, with the replica's directory online."""
        self.before = before
        self.replicas = list(before.replicas)
        self.in_sync = list(before.in_sync_replicas)
        self.adding = list(before.adding_replicas)
        self.removing = list(before.removing_replicas)
        self.recovery_state = before.leader_recovery_state
        self.directories: dict[int, bytes] = {}
        """Directories that change, or of replicas that are new."""
        self.stopped_uncleanly: Collection[int] = ()
        self.election = Election.ONLINE
        self._may_lead = may_lead
        self._min_in_sync = min_in_sync
        self._with_eligible = with_eligible
        self._bumps_on_shrink = bumps_on_shrink
        self._eligible = list(before.eligible_leader_replicas)

    def build(self, topic_id: bytes, number: int) -> PartitionChangeRecord | None:
        """The record, or None where nothing changes."""
        record = PartitionChangeRecord(partition_id=number, topic_id=topic_id)
        plain = PartitionChangeRecord(partition_id=number, topic_id=topic_id)
        self._complete_reassignment()
        self._update_eligible()
        self._elect(record)
        self._set_in_sync(record)
        self._bump_leader_epoch(record)
        self._set_last_known_leader(record)
        self._set_assignment(record)
        if record.leader_recovery_state == -1 and self.recovery_state != self.before.leader_recovery_state:
            record.leader_recovery_state = self.recovery_state
        return None if record == plain else record

    # Reassignment

    def _complete_reassignment(self) -> None:
        """The old replicas go when every one of the new is in sync."""
        if not self.adding and not self.removing:
            return
        in_sync = [node for node in self.in_sync if node not in self.removing]
        replicas = [node for node in self.replicas if node not in self.removing]
        if in_sync and set(replicas) <= set(in_sync):
            self.in_sync, self.replicas = in_sync, replicas
            self.adding, self.removing = [], []

    # Eligible leader replicas

    def _update_eligible(self) -> None:
        if not self._with_eligible or self._is_enough():
            self._eligible = []
            return
        candidates = dict.fromkeys((*self._eligible, *self.before.in_sync_replicas))
        self._eligible = [
            node
            for node in candidates
            if node in self.replicas and node not in self.in_sync and node not in self.stopped_uncleanly
        ]

    def _is_enough(self) -> bool:
        return len(self.in_sync) >= min(self._min_in_sync, len(self.replicas))

    # Election

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, is_unclean = self._choose()
        if leader == self.before.leader:
            return
        record.leader = leader
        if is_unclean:
            self.in_sync, self._eligible = [leader], []
            if self.before.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
        elif leader in self._eligible:
            self.in_sync = [leader]
            self._eligible.remove(leader)
            if self._is_enough():
                self._eligible = []  # they would miss what is acknowledged from now on

    def _choose(self) -> tuple[int, bool]:
        """(leader, whether the election is unclean)."""
        preferred = self.replicas[:1] if self.election is Election.PREFERRED else []
        for node in (*preferred, self.before.leader, *self.replicas):
            if self._is_valid(node):
                return node, False
        if self._last_known_may_lead():
            return self.before.last_known_eligible[0], True
        if self.election is Election.UNCLEAN:
            return next(((node, True) for node in self.replicas if self._may_lead(node)), (NO_LEADER, False))
        return NO_LEADER, False

    def _is_valid(self, node: int) -> bool:
        is_candidate = node in (self.in_sync or self._eligible) and node in self.replicas
        return is_candidate and self._may_lead(node)

    def _last_known_may_lead(self) -> bool:
        known = self.before.last_known_eligible
        if not self._with_eligible or self.in_sync or self._eligible or len(known) != 1:
            return False
        return known[0] in self.replicas and self._may_lead(known[0])

    # The record

    def _set_in_sync(self, record: PartitionChangeRecord) -> None:
        if self._eligible != list(self.before.eligible_leader_replicas):
            record.eligible_leader_replicas = self._eligible
        if self.in_sync != list(self.before.in_sync_replicas) and (self.in_sync or self._with_eligible):
            record.isr = self.in_sync

    def _bump_leader_epoch(self, record: PartitionChangeRecord) -> None:
        """Replicas that leave must not be taken for followers by a leader of the same epoch."""
        if record.leader != NO_LEADER_CHANGE:
            return
        shrinks = record.isr is not None and not set(self.before.in_sync_replicas) <= set(record.isr)
        if not set(self.before.replicas) <= set(self.replicas) or (self._bumps_on_shrink and shrinks):
            record.leader = self.before.leader

    def _set_last_known_leader(self, record: PartitionChangeRecord) -> None:
        """Remembered from when the in-sync set becomes empty until somebody leads."""
        if not self._with_eligible:
            return
        before = self.before
        leader = before.leader if record.leader == NO_LEADER_CHANGE else record.leader
        known = list(before.last_known_eligible) if leader == NO_LEADER else []
        if record.isr is not None and not record.isr:
            known = [before.leader if before.leader != NO_LEADER else before.in_sync_replicas[0]]
        if not set(known) <= set(self.replicas):  # a reassignment took it away
            known = self._eligible[:1]
        if known != list(before.last_known_eligible):
            record.last_known_elr = known

    def _set_assignment(self, record: PartitionChangeRecord) -> None:
        before = self.before
        directories = [self.directories.get(node, before.directory_of(node)) for node in self.replicas]
        if self.replicas != list(before.replicas):
            record.replicas = self.replicas
            record.directories = directories
        elif self.directories and directories != list(before.directories):
            record.directories = directories
        if self.removing != list(before.removing_replicas):
            record.removing_replicas = self.removing
        if self.adding != list(before.adding_replicas):
            record.adding_replicas = self.adding
