"""What a task promises of its records: who sends them, under which numbers, and what makes them count.

``Idempotent`` is stored once within a task attempt: retries find their sequence used. A task that is run again writes
its records again. The exactly-once mode is to be a third kind: its ``begin`` takes a transactional id made of query and
partition, its ``end`` commits together with a marker of the batch, and its batches carry the transactional attribute.
"""

from __future__ import annotations

import os
from typing import Protocol, TypeAlias

from barnabas.client.arrow.encoding import EncodedBatch
from barnabas.client.wire.client import Client
from barnabas.client.wire.errors import BrokerError
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.batch import add_sequence

_NOBODY = -1
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class Delivery(Protocol):
    transactional_id: str | None

    def begin(self, client: Client) -> None:
        """Before the first batch, on the executor. Raises BrokerError."""

    def stamp(self, place: TopicPartition, batch: EncodedBatch) -> None:
        """Gives a batch its producer and its sequence. Once for each batch, in the order of a partition."""

    def end(self) -> None:
        """When all batches are stored. Not called where the task fails."""


class Plain:
    """At least once, and no way to tell a retry from a new batch."""

    transactional_id: str | None = None

    def begin(self, client: Client) -> None:
        """Nobody is asked."""

    def stamp(self, _place: TopicPartition, batch: EncodedBatch) -> None:
        batch.stamp(_NOBODY, _NOBODY, _NOBODY)

    def end(self) -> None:
        """Nothing is to be made to count."""


class _Identity:
    """A producer id and how far it has counted in each partition."""

    __slots__ = ("producer_epoch", "producer_id", "sequences")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences: dict[TopicPartition, int] = {}


_Key: TypeAlias = tuple[int, str | None, str]

_rested: dict[_Key, _Identity] = {}
"""Of tasks of this process that ended well. A broker remembers every producer for a day, in each partition: a stream
with a new one for every task of every micro-batch would fill its memory."""


class Idempotent:
    transactional_id: str | None = None

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._key: _Key | None = None
        self._identity = _Identity(_NOBODY, _NOBODY)

    def begin(self, client: Client) -> None:
        if not client.metadata.brokers:
            client.load([])
        self._key = (os.getpid(), client.metadata.cluster_id, self._bootstrap_servers)
        # Taken out while it is in use: after a failure nobody knows how far its sequences have come.
        rested = _rested.pop(self._key) if self._key in _rested else None
        self._identity = rested or _new_identity(client)

    def stamp(self, place: TopicPartition, batch: EncodedBatch) -> None:
        identity = self._identity
        sequence = identity.sequences.get(place, 0)
        identity.sequences[place] = add_sequence(sequence, batch.record_count)
        batch.stamp(identity.producer_id, identity.producer_epoch, sequence)

    def end(self) -> None:
        if self._key is not None:
            _rested[self._key] = self._identity
            self._key = None


def _new_identity(client: Client) -> _Identity:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
    reply = client.call(request, InitProducerIdResponse, codes=lambda reply: [reply.error_code])
    if reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        text = "idempotent writing is not allowed here; kafka.enable.idempotence=false does without it"
        raise BrokerError(reply.error_code, "producer id", text)
    if reply.error_code:
        raise BrokerError(reply.error_code, "producer id")
    return _Identity(reply.producer_id, reply.producer_epoch)
