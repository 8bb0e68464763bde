"""The context of handlers: the committed metadata image, the local partitions, requests to the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.core.metadata.image import EMPTY_IMAGE, BrokerImage, Endpoint, MetadataImage, TopicImage
from barnabas.core.replication.leader import LeaderState
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import ApiError
from barnabas.model.ids import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from barnabas.model.ports import Clock, Random, Timer
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.replication_throttle import ReplicationThrottle
from barnabas.wire.schema import Message

if TYPE_CHECKING:
    from barnabas.runtime.group_coordinator import GroupCoordinator
    from barnabas.runtime.pipeline import Api
    from barnabas.runtime.replica_moves import ReplicaMoves
    from barnabas.runtime.transaction_coordinator import TransactionCoordinator
    from barnabas.runtime.transaction_markers import ToBroker
    from barnabas.runtime.transaction_verification import TransactionVerifier

Then = Callable[[Any], None]
"""Takes a response, or the ApiError that stands for it."""


class ToController(Protocol):
    def __call__(self, request: Message, timeout_ms: int, then: Then, *, version: int | None = None) -> None:
        """``then`` gets the response of the active controller, or an ApiError."""


IMAGE_TIMEOUT_MS = 5_000
CONTROLLER_TIMEOUT_MS = 30_000
"""How long the controller may take to decide; a full disk can hold it up until there is room."""


class Broker:
    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        settings: BrokerSettings,
        static_settings: Mapping[str, str],
        partitions: LocalPartitions,
        make_groups: Callable[[], GroupCoordinator],
        make_transactions: Callable[[], TransactionCoordinator],
        clock: Clock,
        random: Random,
        to_controller: ToController,
        to_broker: ToBroker,
        throttle: ReplicationThrottle,
        describe_directories: Callable[[], list[Any]],
        moves: Callable[[], ReplicaMoves],
        served: Callable[[], list[tuple[int, int, int]]],
        apis: Callable[[], Mapping[int, Api]],
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.settings = settings
        self.static_settings = static_settings
        self.partitions = partitions
        self._make_groups = make_groups
        self._groups: GroupCoordinator | None = None
        self._make_transactions = make_transactions
        self._transactions: TransactionCoordinator | None = None
        self._verifier: TransactionVerifier | None = None
        self.clock = clock
        self.image: MetadataImage = EMPTY_IMAGE
        self._to_controller = to_controller
        self.to_broker = to_broker
        self.throttle = throttle
        self.describe_directories = describe_directories
        self.moves = moves
        self.served = served
        """(key, lowest, highest version) of each API that is advertised."""
        self.apis = apis
        """Every API of the pipeline, by key, with its counters."""
        self.sessions = FetchSessions(settings.max_incremental_fetch_session_cache_slots, clock, random)
        self.producer_ids = ProducerIds(self)
        self._waiting_for_image: list[tuple[Callable[[MetadataImage], bool], Callable[[], None]]] = []
        self.metadata_cache: dict[tuple[int, str], Message] = {}
        """Answers about all topics for the present image, by version and listener."""

    def apply(self, delta: Any, image: MetadataImage) -> None:
        """A new image is committed."""
        self.image = image
        self.metadata_cache.clear()
        self.partitions.apply(delta, image)
        if self._groups is not None:
            self._groups.apply(image)
            if delta is not None:
                self._groups.on_deleted_topics(delta)
        elif OFFSETS_TOPIC in image.topics:
            self.load_groups()
        if self._transactions is not None:
            self._transactions.apply(image)
        elif TRANSACTIONS_TOPIC in image.topics:
            self.load_transactions()
        if self._waiting_for_image:
            self._release_waiting(image)

    def on_leadership(self) -> None:
        """Partitions have stood down, or are led again, without a new image."""
        self.metadata_cache.clear()
        for coordinator in (self._groups, self._transactions):
            if coordinator is not None:
                coordinator.apply(self.image)

    def leader_of(self, topic: TopicImage, number: int) -> int:
        """As the metadata says, but for partitions of this broker that have stood down: others may know better."""
        leader = topic.partitions[number].leader
        if leader == self.node_id and self.partitions.stood_down:
            partition = self.partitions.get_by_id(topic.topic_id, number)
            if partition in self.partitions.stood_down:
                return NO_LEADER
        return leader

    def when_image(self, condition: Callable[[MetadataImage], bool], then: Callable[[], None]) -> None:
        """Calls ``then`` when the image meets the condition, or after a while: the controller may be ahead of it."""
        if condition(self.image):
            then()
            return
        timer: Timer

        def over() -> None:
            timer.cancel()
            if entry in self._waiting_for_image:
                self._waiting_for_image.remove(entry)
                then()

        entry = (condition, over)
        self._waiting_for_image.append(entry)
        timer = self.clock.call_at(self.clock.monotonic_ms() + IMAGE_TIMEOUT_MS, over)

    def _release_waiting(self, image: MetadataImage) -> None:
        for condition, over in list(self._waiting_for_image):
            if condition(image):
                over()

    @property
    def groups(self) -> GroupCoordinator:
        """Made with the first question about groups: a broker without any does not load the code for them."""
        return self._groups or self.load_groups()

    def load_groups(self) -> GroupCoordinator:
        self._groups = self._make_groups()
        self._groups.apply(self.image)
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """Made with the first question about transactions."""
        return self._transactions or self.load_transactions()

    def load_transactions(self) -> TransactionCoordinator:
        self._transactions = self._make_transactions()
        self._transactions.apply(self.image)
        return self._transactions

    @property
    def verifier(self) -> TransactionVerifier:
        if self._verifier is None:
            from barnabas.runtime.transaction_verification import TransactionVerifier  # noqa: PLC0415 -- first use only

            self._verifier = TransactionVerifier(
                coordinator_of=self.transaction_coordinator_of, to_broker=self.to_broker, clock=self.clock
            )
        return self._verifier

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        topic = self.image.topics.get(TRANSACTIONS_TOPIC)
        return NO_LEADER if topic is None else self.leader_of(topic, self.transactions.partition_of(transactional_id))

    def leader_of_partition(self, partition: TopicPartition) -> int | None:
        """None where there is no such partition."""
        topic = self.image.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return self.leader_of(topic, partition.partition)

    def upkeep(self) -> None:
        """Lets coordinators look for what has expired."""
        for coordinator in (self._groups, self._transactions):
            if coordinator is not None:
                coordinator.upkeep()

    def close(self) -> None:
        for coordinator in (self._groups, self._transactions):
            if coordinator is not None:
                coordinator.close()

    def to_controller(self, request: Message, then: Then, version: int | None = None) -> None:
        """``then`` gets the response, or the ApiError that stands for it."""
        self._to_controller(request, CONTROLLER_TIMEOUT_MS, then, version=version)

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        broker = self.image.brokers.get(node_id)
        return broker.endpoint(listener) if broker is not None else None

    def may_be_in_sync(self, node_id: int, broker_epoch: int) -> bool:
        """Whether the metadata knows that very incarnation of a broker as one that serves (KIP-841, KIP-903)."""
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.serves and broker_epoch in (-1, broker.broker_epoch)

    def replica_in_rack(self, rack: str, leader: LeaderState, offset: int) -> int | None:
        """The in-sync follower of a rack that holds most of the log; None where the leader serves as well."""
        brokers = self.image.brokers
        if brokers[self.node_id].rack == rack:
            return None
        found = [
            (follower.end_offset, node)
            for node, follower in leader.followers.items()
            if node in leader.in_sync_replicas
            and follower.end_offset >= offset
            and node in brokers
            and brokers[node].serves
            and brokers[node].rack == rack
        ]
        return max(found)[1] if found else None

    def live_brokers(self) -> list[BrokerImage]:
        """Never empty: some clients do not reconnect after a Metadata response without brokers."""
        brokers = self.image.brokers
        return [broker for broker in brokers.values() if not broker.fenced] or [brokers[self.node_id]]


class ProducerIds:
    """Hands out producer ids from blocks that the controller allots (KIP-730)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next = 0
        self._end = 0
        self._waiting: list[Callable[[int | ApiError], None]] = []

    def allocate(self, then: Callable[[int | ApiError], None]) -> None:
        if self._next < self._end:
            self._next += 1
            then(self._next - 1)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._ask()

    def _ask(self) -> None:
        from barnabas.wire.api.allocate_producer_ids import AllocateProducerIdsRequest  # noqa: PLC0415 -- first use only

        me = self._broker.image.brokers[self._broker.node_id]
        request = AllocateProducerIdsRequest(broker_id=me.node_id, broker_epoch=me.broker_epoch)
        self._broker.to_controller(request, self._allotted)

    def _allotted(self, response: Any) -> None:
        waiting, self._waiting = self._waiting, []
        problem = response if isinstance(response, ApiError) else None
        if problem is None and response.error_code:
            problem = ApiError(response.error_code)
        if problem is None:
            self._next, self._end = response.producer_id_start, response.producer_id_start + response.producer_id_len
        for then in waiting:
            if problem is not None:
                then(problem)
            else:
                self.allocate(then)
