"""Finds message classes by name and by API key. Modules are imported on first use."""

import re
from importlib import import_module

from barnabas.wire.schema import Message

APIS: dict[int, str] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    29: "DescribeAcls",
    30: "CreateAcls",
    31: "DeleteAcls",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    34: "AlterReplicaLogDirs",
    35: "DescribeLogDirs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    48: "DescribeClientQuotas",
    49: "AlterClientQuotas",
    50: "DescribeUserScramCredentials",
    51: "AlterUserScramCredentials",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    60: "DescribeCluster",
    61: "DescribeProducers",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    70: "ControllerRegistration",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    73: "AssignReplicasToDirs",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
    83: "InitializeShareGroupState",
    84: "ReadShareGroupState",
    85: "WriteShareGroupState",
    86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}
"""API keys and names. The gaps are APIs that Kafka has removed."""

OWN_APIS: dict[int, str] = {
    10000: "DescribeMetrics",
}
"""APIs that only Barnabas has. Brokers serve them without advertising them; ``names`` leaves their messages out."""

STORED: dict[str, tuple[str, ...]] = {
    "classic_group": (
        "GroupMetadataKey",
        "GroupMetadataValue",
        "LegacyOffsetCommitKey",
        "LegacyOffsetCommitValue",
        "OffsetCommitKey",
        "OffsetCommitValue",
    ),
    "consumer_group": (
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupCurrentMemberAssignmentValue",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMemberMetadataValue",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupMetadataValue",
        "ConsumerGroupPartitionMetadataKey",
        "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupRegularExpressionKey",
        "ConsumerGroupRegularExpressionValue",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMemberValue",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataValue",
    ),
    "share_group": (
        "ShareGroupCurrentMemberAssignmentKey",
        "ShareGroupCurrentMemberAssignmentValue",
        "ShareGroupMemberMetadataKey",
        "ShareGroupMemberMetadataValue",
        "ShareGroupMetadataKey",
        "ShareGroupMetadataValue",
        "ShareGroupStatePartitionMetadataKey",
        "ShareGroupStatePartitionMetadataValue",
        "ShareGroupTargetAssignmentMemberKey",
        "ShareGroupTargetAssignmentMemberValue",
        "ShareGroupTargetAssignmentMetadataKey",
        "ShareGroupTargetAssignmentMetadataValue",
    ),
    "streams_group": (
        "StreamsGroupCurrentMemberAssignmentKey",
        "StreamsGroupCurrentMemberAssignmentValue",
        "StreamsGroupMemberMetadataKey",
        "StreamsGroupMemberMetadataValue",
        "StreamsGroupMetadataKey",
        "StreamsGroupMetadataValue",
        "StreamsGroupTargetAssignmentMemberKey",
        "StreamsGroupTargetAssignmentMemberValue",
        "StreamsGroupTargetAssignmentMetadataKey",
        "StreamsGroupTargetAssignmentMetadataValue",
        "StreamsGroupTopologyKey",
        "StreamsGroupTopologyValue",
    ),
    "metadata_topics": (
        "ClearElrRecord",
        "ConfigRecord",
        "PartitionChangeRecord",
        "PartitionRecord",
        "RemoveTopicRecord",
        "TopicRecord",
    ),
    "metadata_nodes": (
        "BrokerRegistrationChangeRecord",
        "FenceBrokerRecord",
        "RegisterBrokerRecord",
        "RegisterControllerRecord",
        "UnfenceBrokerRecord",
        "UnregisterBrokerRecord",
    ),
    "metadata_security": (
        "AccessControlEntryRecord",
        "ClientQuotaRecord",
        "DelegationTokenRecord",
        "RemoveAccessControlEntryRecord",
        "RemoveDelegationTokenRecord",
        "RemoveUserScramCredentialRecord",
        "UserScramCredentialRecord",
    ),
    "metadata_control": (
        "AbortTransactionRecord",
        "BeginTransactionRecord",
        "EndTransactionRecord",
        "FeatureLevelRecord",
        "NoOpRecord",
        "ProducerIdsRecord",
        "ZkMigrationStateRecord",
    ),
    "transaction": (
        "TransactionLogKey",
        "TransactionLogValue",
    ),
    "share_state": (
        "ShareSnapshotKey",
        "ShareSnapshotValue",
        "ShareUpdateKey",
        "ShareUpdateValue",
    ),
    "raft": (
        "KRaftVersionRecord",
        "LeaderChangeMessage",
        "QuorumState",
        "SnapshotFooterRecord",
        "SnapshotHeaderRecord",
        "VotersRecord",
    ),
    "remote_log": (
        "RemoteLogSegmentMetadataRecord",
        "RemoteLogSegmentMetadataSnapshotRecord",
        "RemoteLogSegmentMetadataUpdateRecord",
        "RemotePartitionDeleteMetadataRecord",
    ),
    "consumer_protocol": (
        "ConsumerProtocolAssignment",
        "ConsumerProtocolSubscription",
    ),
    "log": (
        "ControlRecordTypeSchema",
        "DefaultPrincipal",
        "EndTxnMarker",
        "ProducerSnapshot",
    ),
}
"""Modules of ``stored`` and the records that they hold."""

_HEADERS = ("RequestHeader", "ResponseHeader")
_modules: dict[str, str] = {}
_pairs: dict[int, tuple[type[Message], type[Message]]] = {}


def names() -> list[str]:
    """Every message of Kafka's."""
    own = {message for name in OWN_APIS.values() for message in _messages(name)}
    return [name for name in _index() if name not in own]


def message_class(name: str) -> type[Message]:
    """The class of a name such as ``FetchRequest``. Raises KeyError."""
    found: type[Message] = getattr(import_module(_index()[name]), name)
    return found


def api_name(api_key: int) -> str:
    """The name of an API, Kafka's or our own. Raises KeyError."""
    return APIS[api_key] if api_key in APIS else OWN_APIS[api_key]


def api_classes(api_key: int) -> tuple[type[Message], type[Message]]:
    """The request and the response of an API. Raises KeyError."""
    pair = _pairs.get(api_key)
    if pair is None:
        request, response = _messages(api_name(api_key))
        pair = _pairs[api_key] = message_class(request), message_class(response)
    return pair


def _messages(api: str) -> tuple[str, str]:
    return f"{api}Request", f"{api}Response"


def _index() -> dict[str, str]:
    if not _modules:
        for name in (*APIS.values(), *OWN_APIS.values()):
            module = "barnabas.wire.api." + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            _modules.update(dict.fromkeys(_messages(name), module))
        for module, records in STORED.items():
            _modules.update(dict.fromkeys(records, f"barnabas.wire.stored.{module}"))
        _modules.update(dict.fromkeys(_HEADERS, "barnabas.wire.header"))
    return _modules
