"""Delivery of committed metadata records to the node's listener.

Records come in order, each once, except those that this node appended as the present leader: its shard has replayed
them already, and publishes them with the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.model.ports import DiskError
from barnabas.runtime.metadata_log import CommittedRecords, MetadataLog
from barnabas.runtime.metadata_snapshot import CorruptSnapshot, Snapshot
from barnabas.storage.errors import LogOffline


class QuorumListener(Protocol):
    committed_offset: int
    """The next offset of the image that is published: records from here on are delivered."""

    def on_committed(self, batch: CommittedRecords) -> None:
        """``committed_offset`` is the batch's next offset when this returns."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """The image begins anew with these records; ``committed_offset`` is the snapshot's end when this returns."""

    def on_leader(self, leader_id: int, raft_epoch: int) -> None:
        """-1 where none is known."""

    def on_leadership(self, raft_epoch: int) -> None:
        """This node leads, and everything before its epoch is delivered: the controller may decide now."""

    def on_resigned(self) -> None:
        """It leads no more. What it appended counts only if it is delivered from now on."""

    def on_high_watermark(self) -> None: ...


class Delivery:
    def __init__(self, log: MetadataLog, listener: QuorumListener, on_failure: Callable[[str], None]) -> None:
        self.listener = listener
        self._log = log
        self._on_failure = on_failure
        self._lead_from = 0
        """The end of the leader's log when its epoch began, with its first records; 0 while this node does not lead.
        What is behind it is the shard's, until the effect that ends the leadership is performed."""
        self._has_begun = False

    def leadership_began(self, end_offset: int) -> None:
        self._lead_from, self._has_begun = end_offset, False

    def leadership_ended(self, high_watermark: int) -> None:
        """From here on the records of its own epoch are delivered like any other's."""
        self._lead_from, self._has_begun = 0, False
        self.listener.on_resigned()
        self._deliver(high_watermark)

    def advance(self, high_watermark: int, raft_epoch: int) -> None:
        if self._lead_from:
            self._deliver(min(high_watermark, self._lead_from))
            if not self._has_begun and high_watermark >= self._lead_from:
                self._has_begun = True
                self.listener.on_leadership(raft_epoch)
        else:
            self._deliver(high_watermark)
        self.listener.on_high_watermark()

    def _deliver(self, end_offset: int) -> None:
        start_offset = self.listener.committed_offset
        if start_offset >= end_offset or start_offset < self._log.log_start_offset:
            return
        try:
            for committed in self._log.committed(start_offset, end_offset):
                self.listener.on_committed(committed)
        except (CorruptSnapshot, DiskError, LogOffline) as problem:
            self._on_failure(f"The metadata log cannot be read: {problem}")
