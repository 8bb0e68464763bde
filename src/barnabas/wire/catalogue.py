"""Finds message classes by name and by API key. Modules are imported on first use."""

import re
from functools import cache
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

STORED = (
    *("classic_group", "consumer_group", "share_group", "streams_group"),
    *("metadata_topics", "metadata_nodes", "metadata_security", "metadata_control"),
    *("transaction", "share_state", "raft", "remote_log", "consumer_protocol", "log"),
)
"""Modules of ``stored``, whose messages are records of logs and files."""

_pairs: dict[int, tuple[type[Message], type[Message]]] = {}


def names() -> list[str]:
    """Every message of Kafka's."""
    return [name for api in APIS.values() for name in _messages(api)] + list(_stored())


def message_class(name: str) -> type[Message]:
    """The class of a name such as ``FetchRequest``. Raises KeyError."""
    api = re.sub("(Request|Response)$", "", name)
    if api == name or api not in {*APIS.values(), *OWN_APIS.values()}:
        return _stored()[name]
    module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api).lower()
    found: type[Message] = getattr(import_module(f"barnabas.wire.api.{module}"), name)
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


@cache
def _stored() -> dict[str, type[Message]]:
    """The stored messages and the headers, by name."""
    modules = [import_module(f"barnabas.wire.{name}") for name in (*(f"stored.{name}" for name in STORED), "header")]
    items = [item for module in modules for item in sorted(vars(module).items())]
    return {
        name: item
        for name, item in items
        if isinstance(item, type) and issubclass(item, Message) and item is not Message
    }
