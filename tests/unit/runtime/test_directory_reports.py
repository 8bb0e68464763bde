"""Which folder holds which replica is reported once for each difference, and again until the controller answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.runtime import directory_reports
from barnabas.runtime.directory_reports import DirectoryReports, Key
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)

NOWHERE, ONE, TWO = (bytes([number]) * 16 for number in range(3))
TOPIC, OTHER = b"t" * 16, b"u" * 16


class Place:
    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.sent: list[tuple[AssignReplicasToDirsRequest, Callable[[Any], None]]] = []
        self.reports = DirectoryReports(
            node_id=3,
            broker_epoch=lambda: 17,
            to_controller=lambda request, then: self.sent.append((request, then)),
            clock=NodeClock(self.scheduler),
        )

    def take(self) -> tuple[dict[Key, bytes], Callable[[Any], None]]:
        ((request, then),) = self.sent
        self.sent.clear()
        assert (request.broker_id, request.broker_epoch) == (3, 17)
        found = {
            (topic.topic_id, partition.partition_index): directory.id
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        return found, then


def answer(found: dict[Key, bytes], codes: dict[Key, int] | None = None) -> AssignReplicasToDirsResponse:
    return AssignReplicasToDirsResponse(
        directories=[
            AssignReplicasToDirsResponseDirectoryData(
                id=directory,
                topics=[
                    AssignReplicasToDirsResponseTopicData(
                        topic_id=topic_id,
                        partitions=[
                            AssignReplicasToDirsResponsePartitionData(number, (codes or {}).get((topic_id, number), 0))
                        ],
                    )
                ],
            )
            for (topic_id, number), directory in found.items()
        ]
    )


def test_only_differences_are_reported_one_request_at_a_time() -> None:
    place = Place()
    place.reports.compare((TOPIC, 0), ONE, ONE)
    assert not place.sent
    place.reports.compare((TOPIC, 0), ONE, NOWHERE)
    found, then = place.take()
    assert found == {(TOPIC, 0): ONE}
    place.reports.compare((TOPIC, 1), TWO, NOWHERE)
    place.reports.compare((OTHER, 0), ONE, TWO)
    place.reports.compare((TOPIC, 0), ONE, NOWHERE)  # an older image: it is under way
    assert not place.sent
    then(answer(found))
    found, then = place.take()
    assert found == {(TOPIC, 1): TWO, (OTHER, 0): ONE}
    then(answer(found))
    assert not place.sent


def test_what_is_not_answered_is_sent_again() -> None:
    place = Place()
    place.reports.compare((TOPIC, 0), ONE, NOWHERE)
    for problem in (ApiError(ErrorCode.NETWORK_EXCEPTION), AssignReplicasToDirsResponse(error_code=77)):
        _, then = place.take()
        then(problem)
        assert not place.sent, "not at once"
        place.scheduler.run_until(place.scheduler.now_ms + directory_reports.RETRY_MS)
    place.reports.compare((TOPIC, 0), TWO, NOWHERE)
    found, then = place.take()
    assert found == {(TOPIC, 0): ONE}
    then(ApiError(ErrorCode.REQUEST_TIMED_OUT))
    place.scheduler.run_until(place.scheduler.now_ms + directory_reports.RETRY_MS)
    found, then = place.take()
    assert found == {(TOPIC, 0): TWO}, "it was moved again meanwhile"
    then(answer(found))
    assert not place.sent


def test_what_came_back_with_the_metadata_is_not_reported() -> None:
    place = Place()
    place.reports.compare((TOPIC, 0), ONE, NOWHERE)
    found, then = place.take()
    place.reports.compare((TOPIC, 1), ONE, NOWHERE)
    place.reports.compare((TOPIC, 1), ONE, ONE)
    then(answer(found))
    assert not place.sent


def test_replicas_that_are_not_ours_any_more_are_dropped_and_others_retried() -> None:
    place = Place()
    place.reports.compare((TOPIC, 0), ONE, NOWHERE)
    place.take()[1](ApiError(ErrorCode.NOT_CONTROLLER))
    place.reports.compare((TOPIC, 1), ONE, NOWHERE)
    place.reports.compare((OTHER, 0), ONE, NOWHERE)
    place.scheduler.run_until(place.scheduler.now_ms + directory_reports.RETRY_MS)
    found, then = place.take()
    assert len(found) == 3
    codes = {
        (TOPIC, 0): int(ErrorCode.UNKNOWN_SERVER_ERROR),
        (TOPIC, 1): int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (OTHER, 0): int(ErrorCode.UNKNOWN_TOPIC_ID),
    }
    then(answer(found, codes))
    place.scheduler.run_until(place.scheduler.now_ms + directory_reports.RETRY_MS)
    found, _ = place.take()
    assert found == {(TOPIC, 0): ONE}


def test_a_request_is_limited_and_nothing_is_sent_after_the_close() -> None:
    place = Place()
    for number in range(directory_reports.MAX_REPLICAS + 10):
        place.reports.compare((TOPIC, number), ONE, NOWHERE)
    found, then = place.take()
    then(answer(found))
    found, then = place.take()
    assert len(found) == directory_reports.MAX_REPLICAS
    then(answer(found))
    found, then = place.take()
    assert len(found) == 9
    place.reports.close()
    then(ApiError(ErrorCode.NETWORK_EXCEPTION))
    place.scheduler.run_until(place.scheduler.now_ms + 10 * directory_reports.RETRY_MS)
    assert not place.sent
