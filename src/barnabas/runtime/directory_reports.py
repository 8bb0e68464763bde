"""Reports to the controller which data folder holds each replica: AssignReplicasToDirs (KIP-858).

The controller needs it to know what a failed folder takes offline. A replica is reported whenever the metadata names
another folder: after it was created, moved, or found at a start. One request is under way at a time, with all that
differs by then; what the controller does not answer is sent again. The metadata log brings the change back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import Uuid
from barnabas.model.ports import Clock, Timer
from barnabas.runtime.in_sync_changes import ToController
from barnabas.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)

RETRY_MS = 100
MAX_REPLICAS = 2000
"""Replicas in one request; the others wait for its answer."""
NOT_OURS = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)
"""The replica has been deleted or reassigned: there is nothing to report."""

Key = tuple[bytes, int]
"""(topic id, partition)"""


class DirectoryReports:
    def __init__(
        self, *, node_id: int, broker_epoch: Callable[[], int], to_controller: ToController, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._to_controller = to_controller
        self._clock = clock
        self._waiting: dict[Key, bytes] = {}
        self._sent: dict[Key, bytes] = {}
        self._timer: Timer | None = None
        self._is_closed = False

    def compare(self, key: Key, stored_in: bytes, assigned: bytes) -> None:
        """``stored_in`` is the folder that holds the replica, ``assigned`` the one that the metadata names."""
        if stored_in == assigned:
            self._waiting.pop(key, None)
        elif self._sent.get(key) != stored_in:
            self._waiting[key] = stored_in
            self._advance()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _advance(self) -> None:
        if self._is_closed or self._sent or self._timer is not None or not self._waiting:
            return
        self._sent = dict(list(self._waiting.items())[:MAX_REPLICAS])
        for key in self._sent:
            del self._waiting[key]
        self._to_controller(self._request(), self._on_answer)

    def _request(self) -> AssignReplicasToDirsRequest:
        places: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, number), directory in self._sent.items():
            places.setdefault(directory, {}).setdefault(topic_id, []).append(number)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=Uuid(directory), topics=[_topic(topic_id, numbers) for topic_id, numbers in topics.items()]
                )
                for directory, topics in places.items()
            ],
        )

    def _on_answer(self, answer: Any) -> None:
        sent, self._sent = self._sent, {}
        if isinstance(answer, ApiError) or answer.error_code:
            self._again(sent)
            return
        for directory in answer.directories:
            for topic in directory.topics:
                for result in topic.partitions:
                    if result.error_code == ErrorCode.NONE or result.error_code in NOT_OURS:
                        sent.pop((topic.topic_id, result.partition_index), None)
        if sent:
            self._again(sent)
        self._advance()

    def _again(self, unanswered: dict[Key, bytes]) -> None:
        """Later; what has been moved again meanwhile is not reported where it was."""
        self._waiting = {**unanswered, **self._waiting}
        if not self._is_closed:
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._advance()


def _topic(topic_id: bytes, numbers: list[int]) -> AssignReplicasToDirsRequestTopicData:
    partitions = [AssignReplicasToDirsRequestPartitionData(partition_index=number) for number in numbers]
    return AssignReplicasToDirsRequestTopicData(topic_id=Uuid(topic_id), partitions=partitions)
