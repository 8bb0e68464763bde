"""A blocking client: connections to the brokers of a cluster, routing of requests, retries.

One client serves one thread. Nothing runs in the background: metadata is fetched when it is missing or a broker reports
that it is stale, and connections are opened on first use.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeVar

from barnabas.client.wire.address import Address, parse_addresses
from barnabas.client.wire.connection import Connection, ConnectionSettings, connect
from barnabas.client.wire.errors import BrokerError, BrokerUnavailable
from barnabas.client.wire.metadata import Metadata, TopicInfo
from barnabas.model.errors import RETRIABLE, ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.schema import Message

R = TypeVar("R", bound=Message)

RETRIED = RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
"""Unlike Kafka's clients we do not retry unknown topics: a mistyped name is reported at once."""

AUTO_CREATE_TIMEOUT_S = 3.0
"""So long a topic may take to appear; a broker that creates none by itself never says so."""


def no_codes(_reply: object) -> Iterable[int]:
    return ()


class Retry:
    """Waits that grow from one attempt to the next, up to a deadline."""

    __slots__ = ("_backoff_s", "_deadline", "_max_backoff_s")

    def __init__(self, timeout_s: float, backoff_s: float, max_backoff_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._backoff_s = backoff_s
        self._max_backoff_s = max_backoff_s

    def again(self) -> bool:
        """Waits and says True, or says False where the time is up."""
        wait_s = self._backoff_s * random.uniform(0.8, 1.2)  # so that many clients do not come back together
        if time.monotonic() + wait_s > self._deadline:
            return False
        time.sleep(wait_s)
        self._backoff_s = min(self._backoff_s * 2, self._max_backoff_s)
        return True


class Client:
    def __init__(
        self,
        bootstrap_servers: str | Sequence[Address],
        settings: ConnectionSettings | None = None,
        *,
        timeout_s: float = 30.0,
        backoff_s: float = 0.1,
        max_backoff_s: float = 1.0,
    ) -> None:
        """``timeout_s`` bounds one call with all its attempts. Connects on the first use, not here."""
        self.settings = settings or ConnectionSettings()
        self.metadata = Metadata()
        self._bootstrap = (
            parse_addresses(bootstrap_servers) if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
        )
        self._waits = timeout_s, backoff_s, max_backoff_s
        self._entry: Connection | None = None
        self._nodes: dict[int, Connection] = {}
        self._was_reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in [*self._nodes.values(), *([self._entry] if self._entry else [])]:
            connection.close()
        self._nodes.clear()
        self._entry = None

    def retry(self) -> Retry:
        return Retry(*self._waits)

    def call(
        self,
        request: Message,
        answer: type[R],
        *,
        node_id: int | None = None,
        codes: Callable[[R], Iterable[int]] = no_codes,
    ) -> R:
        """Asks a broker, any where none is named; again where it was lost or answers with a code that may pass.

        A request that was lost may have been done all the same: doing it again must be harmless, or its error must
        be telling ("already exists").
        """
        retry = self.retry()
        while True:
            try:
                connection = self.any_node() if node_id is None else self.node(node_id)
                reply = connection.request(request, answer)
            except BrokerUnavailable:
                if not self._was_reached or not retry.again():
                    raise
                continue
            if all(code not in RETRIED for code in codes(reply)) or not retry.again():
                return reply

    def any_node(self) -> Connection:
        """A connection to whichever broker answers. Raises BrokerUnavailable that names all that were tried."""
        if self._entry is not None and not self._entry.closed:
            return self._entry
        known = [broker.address for broker in self.metadata.brokers.values()]
        addresses = list(dict.fromkeys([*self._bootstrap, *known]))
        reason = ""
        for address in addresses:
            try:
                self._entry = connect(address, self.settings)
            except BrokerUnavailable as error:
                reason = error.reason
                continue
            self._was_reached = True
            return self._entry
        raise BrokerUnavailable(", ".join(map(str, addresses)), reason)

    def node(self, node_id: int) -> Connection:
        """The connection to one broker."""
        connection = self._nodes.get(node_id)
        if connection is not None and not connection.closed:
            return connection
        if node_id not in self.metadata.brokers:
            self.load([])
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise BrokerUnavailable(f"node {node_id}", "the cluster does not know it")
        connection = self._nodes[node_id] = connect(broker.address, self.settings)
        return connection

    def node_ids(self) -> list[int]:
        """The brokers of the cluster."""
        if not self.metadata.brokers:
            self.load([])
        return list(self.metadata.brokers)

    def load(self, topics: Iterable[str] | None, *, auto_create: bool = False) -> dict[str, TopicInfo]:
        """Asks for topics, all of them for None, and remembers them. Errors stand in each topic's code."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=auto_create)
        reply = self.call(request, MetadataResponse, codes=lambda reply: [topic.error_code for topic in reply.topics])
        if reply.error_code:
            raise BrokerError(reply.error_code)
        return self.metadata.update(reply)

    def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        """A topic from memory, or asked for. Raises BrokerError."""
        known = self.metadata.topics.get(name)
        if known is None:
            known = self.load([name], auto_create=auto_create).get(name)
        if auto_create and known is not None and known.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            known = self._wait_for_creation(name)
        if known is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}")
        if known.code is not ErrorCode.NONE:
            is_unknown = known.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(known.code, f"topic {name}", "there is no such topic" if is_unknown else None)
        return known

    def _wait_for_creation(self, name: str) -> TopicInfo | None:
        """Kafka starts to create a topic that it is asked about and answers that there is none yet."""
        retry = Retry(AUTO_CREATE_TIMEOUT_S, *self._waits[1:])
        while True:
            known = self.load([name], auto_create=True).get(name)
            if known is None or known.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not retry.again():
                return known

    def forget(self, topics: Iterable[str]) -> None:
        """A broker said that what is remembered of these is old."""
        for name in topics:
            self.metadata.topics.pop(name, None)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions by the node that leads them, -1 for those without a leader. Raises BrokerError."""
        groups: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            known = self.topic(partition.topic).partitions.get(partition.partition)
            if known is None:
                reason = f"topic {partition.topic} has no partition {partition.partition}"
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition), reason)
            groups.setdefault(known.leader, []).append(partition)
        return groups
