"""DescribeQuorum 0–2: the voters of the metadata log, and how far each is (KIP-595, KIP-836)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import METADATA_TOPIC, Uuid
from barnabas.runtime.pipeline import Request
from barnabas.runtime.quorum_figures import ReplicaFigures
from barnabas.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)


def handle(controller: Controller, request: Request, message: DescribeQuorumRequest) -> DescribeQuorumResponse:
    response = DescribeQuorumResponse(error_message=None)
    for topic in message.topics:
        numbers = dict.fromkeys(wanted.partition_index for wanted in topic.partitions)  # each once
        answers = [_partition(controller, topic.topic_name, number) for number in numbers]
        response.topics.append(DescribeQuorumResponseTopicData(topic.topic_name, answers))
    response.nodes = [
        Node(each.node_id, [Listener(e.name, e.host, e.port) for e in each.endpoints])
        for each in controller.committed.controllers.values()
    ]
    return response


def _partition(controller: Controller, topic: str, number: int) -> DescribeQuorumResponsePartitionData:
    if topic != METADATA_TOPIC or number != 0:
        return DescribeQuorumResponsePartitionData(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    driver = controller.driver
    known = (driver.leader_id, driver.raft_epoch)
    if not driver.is_leader:
        return DescribeQuorumResponsePartitionData(number, ErrorCode.NOT_LEADER_OR_FOLLOWER, None, *known)
    return DescribeQuorumResponsePartitionData(
        number, 0, None, *known, driver.high_watermark, _replicas(driver.voters), _replicas(driver.observers)
    )


def _replicas(figures: list[ReplicaFigures]) -> list[ReplicaState]:
    return [
        ReplicaState(
            each.voter.node_id,
            Uuid(each.voter.directory_id),
            each.log_end_offset,
            each.last_fetch_ms,
            each.last_caught_up_ms,
        )
        for each in figures
    ]
