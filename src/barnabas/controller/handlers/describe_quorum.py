"""DescribeQuorum 0–2: the voters of the metadata log, and how far each is (KIP-595, KIP-836)."""

from __future__ import annotations

from barnabas.controller.controller import Controller
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import METADATA_TOPIC
from barnabas.runtime.pipeline import Request
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
    driver, now_ms = controller.driver, controller.clock.now_ms()
    machine = driver.machine
    voters = [
        ReplicaState(voter.node_id, voter.directory_id, driver.log_end_offset, now_ms, now_ms)
        for voter in machine.voters
    ]
    return DescribeQuorumResponsePartitionData(
        number, 0, None, machine.me.node_id, machine.raft_epoch, machine.high_watermark, voters, []
    )
