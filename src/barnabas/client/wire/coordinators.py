"""Requests to the coordinators of groups and of transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TypeVar

from barnabas.client.wire.client import RETRIED, Client
from barnabas.client.wire.errors import BrokerUnavailable, check
from barnabas.model.errors import ErrorCode
from barnabas.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.wire.api.end_txn import EndTxnRequest
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.api.init_producer_id import InitProducerIdRequest
from barnabas.wire.api.offset_commit import OffsetCommitRequest
from barnabas.wire.api.offset_fetch import OffsetFetchRequest
from barnabas.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.wire.schema import Message

R = TypeVar("R", bound=Message)

LAST_VERSIONS: Mapping[type[Message], int] = {
    # Above, topics go by their ids.
    OffsetCommitRequest: 9,
    OffsetFetchRequest: 9,
    # Above, brokers go by transaction.version 2 (KIP-890), and the end of a transaction raises the producer's epoch.
    # With these, every broker lets a transaction be ended again in the same way.
    AddPartitionsToTxnRequest: 3,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
    InitProducerIdRequest: 5,
}


class CoordinatorKind(Enum):
    """The number in FindCoordinator, and what it looks after."""

    GROUP = 0, "group"
    TRANSACTION = 1, "transactional id"

    def __init__(self, key_type: int, noun: str) -> None:
        self.key_type = key_type
        self.noun = noun


def find_coordinator(client: Client, kind: CoordinatorKind, key: str) -> int:
    """The node that looks after a group or a transactional id. Raises BrokerError."""
    request = FindCoordinatorRequest(key=key, key_type=kind.key_type, coordinator_keys=[key])
    reply = client.call(request, FindCoordinatorResponse, codes=lambda reply: [_found(reply)[0]])
    code, node_id, message = _found(reply)
    check(code, f"{kind.noun} {key}", message)
    return node_id


def _found(reply: FindCoordinatorResponse) -> tuple[int, int, str | None]:
    only = reply.coordinators[0] if reply.coordinators else reply
    return only.error_code, only.node_id, only.error_message


def ask_coordinator(
    client: Client,
    kind: CoordinatorKind,
    key: str,
    request: Message,
    answer: type[R],
    codes: Callable[[R], Iterable[int]],
    *,
    retried: frozenset[ErrorCode] = RETRIED,
) -> tuple[R, int]:
    """The coordinator's reply and its node id; finds the coordinator again if it has moved.

    Raises BrokerError for the first code that is an error.
    """
    retry = client.retry()
    while True:
        node_id = find_coordinator(client, kind, key)
        try:
            connection = client.node(node_id)
            version = connection.version_for(type(request))
            version = min(version, LAST_VERSIONS.get(type(request), version))
            reply = connection.request(request, answer, version=version)
        except BrokerUnavailable:
            if not retry.again():
                raise
            continue
        if all(code not in retried for code in codes(reply)) or not retry.again():
            check(next(filter(None, codes(reply)), 0), f"{kind.noun} {key}")
            return reply, node_id
