"""DescribeQuorum 0–2: who votes on the metadata log, and how far each is (KIP-595, KIP-836)."""

from __future__ import annotations

from barnabas.broker.context import Broker
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


def handle(broker: Broker, exchange: Request, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    response = DescribeQuorumResponse(error_message=None)
    for topic in request.topics:
        numbers = dict.fromkeys(wanted.partition_index for wanted in topic.partitions)  # each once
        answers = [_partition(broker, topic.topic_name, number) for number in numbers]
        response.topics.append(DescribeQuorumResponseTopicData(topic.topic_name, answers))
    response.nodes = [
        Node(controller.node_id, [Listener(e.name, e.host, e.port) for e in controller.endpoints])
        for controller in broker.image.controllers.values()
    ]
    return response


def _partition(broker: Broker, topic: str, number: int) -> DescribeQuorumResponsePartitionData:
    if topic != METADATA_TOPIC or number != 0:
        return DescribeQuorumResponsePartitionData(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    quorum = broker.describe_quorum()
    now_ms = broker.clock.now_ms()
    voters = [
        ReplicaState(voter.node_id, voter.directory_id, quorum.log_end_offset, now_ms, now_ms)
        for voter in quorum.voters
    ]
    return DescribeQuorumResponsePartitionData(
        number, 0, None, quorum.leader_id, quorum.raft_epoch, quorum.high_watermark, voters, []
    )
