"""The broker of a node: its partitions and their replication, its handlers, its periodic work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.broker import apis as broker_apis
from barnabas.broker.context import Broker
from barnabas.core.metadata import features
from barnabas.core.metadata.configs import topic_settings
from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import BROKER_RESOURCE, MetadataImage, PartitionImage
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import TopicPartition, Uuid
from barnabas.model.ports import Address, Clock, DiskError, Network, Random, Timer
from barnabas.model.topic_settings import TopicSettings
from barnabas.node import reconfiguration
from barnabas.node.controller_link import ControllerLink
from barnabas.node.description import describe_directories
from barnabas.node.folders import joins_cluster
from barnabas.node.metadata_snapshots import Snapshots
from barnabas.node.ports import NodeDisk, Workers
from barnabas.node.upkeep import Upkeep
from barnabas.runtime.directory_reports import DirectoryReports
from barnabas.runtime.in_sync_changes import ToController
from barnabas.runtime.leader_lease import LeaderLease
from barnabas.runtime.local_peer import LocalPeer
from barnabas.runtime.partition import Partition
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.pipeline import Pipeline
from barnabas.runtime.replica_fetcher import FetchSettings
from barnabas.runtime.replication import Replication
from barnabas.runtime.replication_throttle import ReplicationThrottle
from barnabas.storage.errors import LogOffline
from barnabas.storage.log_directory import LogDirectory, SettingsOf
from barnabas.storage.log_manager import LogManager
from barnabas.wire.schema import Message

if TYPE_CHECKING:
    from barnabas.node.compaction import Compaction
    from barnabas.runtime.group_coordinator import GroupCoordinator
    from barnabas.runtime.replica_moves import ReplicaMoves
    from barnabas.runtime.transaction_coordinator import TransactionCoordinator

COMPACTION_DELAY_MS = 200
PROPOSAL_TIMEOUT_MS = 2_000


class BrokerPart:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        static_settings: Mapping[str, str],
        cluster_id: str,
        logs: LogManager,
        directories: Sequence[LogDirectory],
        disk: NodeDisk,
        clock: Clock,
        random: Random,
        workers: Workers,
        network: Network,
        link: ControllerLink,
        broker_epoch: Callable[[], int],
        image: Callable[[], MetadataImage],
        on_settings: Callable[[BrokerSettings], None],
        drop_connections: Callable[[], None],
        report: Callable[..., None],
    ) -> None:
        self.settings = self._given = settings
        self._static = static_settings
        self._logs = logs
        self._directories = directories
        self._disk = disk
        self._clock = clock
        self._random = random
        self._workers = workers
        self._network = network
        self._link = link
        self._image = image
        self._on_settings = on_settings
        self._report = report
        self._is_applying = False
        """From the moment the logs are open, every image is applied."""
        self._upkeep: Upkeep | None = None
        self._compaction_timer: Timer | None = None
        self.compaction: Compaction | None = None
        self._moves: ReplicaMoves | None = None
        self._local: LocalPeer | None = None
        self._reports = DirectoryReports(
            node_id=settings.id,
            broker_epoch=broker_epoch,
            to_controller=self._to_controller("directories"),
            clock=clock,
        )
        self._replication = self._make_replication(broker_epoch)
        self.broker = self._make_broker(cluster_id)
        self.lease = LeaderLease(
            partitions=self.broker.partitions,
            session_ms=settings.broker_session_timeout_ms,
            follower_ms=2 * settings.replica_fetch_wait_max_ms,
            clock=clock,
            on_change=self.broker.on_leadership,
            drop_connections=drop_connections,
            report=report,
        )
        self.pipeline = Pipeline(broker_apis.table(self.broker), clock, report=report)

    def _make_replication(self, broker_epoch: Callable[[], int]) -> Replication:
        settings = self.settings
        return Replication(
            node_id=settings.id,
            broker_epoch=broker_epoch,
            address_of=self._address_of,
            network=self._network,
            to_controller=self._to_controller("in-sync"),
            clock=self._clock,
            settings=FetchSettings(
                max_wait_ms=settings.replica_fetch_wait_max_ms,
                min_bytes=settings.replica_fetch_min_bytes,
                max_bytes=settings.replica_fetch_max_bytes,
                response_max_bytes=settings.replica_fetch_response_max_bytes,
                timeout_ms=settings.replica_socket_timeout_ms,
                backoff_ms=settings.replica_fetch_backoff_ms,
            ),
            max_lag_ms=settings.replica_lag_time_max_ms,
            throttle=ReplicationThrottle(settings.id, self._clock, self._is_in_sync),
            report=self._report,
        )

    def _to_controller(self, lane: str) -> ToController:
        return lambda request, then: self._link.send(request, PROPOSAL_TIMEOUT_MS, then, lane=lane, retry=False)

    def _is_in_sync(self, partition: Partition) -> bool:
        topic = self._image().topics_by_id.get(partition.topic_id)
        return topic is not None and self.settings.id in topic.partitions[partition.name.partition].in_sync_replicas

    def _address_of(self, node_id: int) -> Address | None:
        broker = self._image().brokers.get(node_id)
        endpoint = broker.endpoint(self.settings.inter_broker_listener) if broker is not None else None
        return Address(endpoint.host, endpoint.port) if endpoint is not None else None

    def _make_broker(self, cluster_id: str) -> Broker:
        partitions = LocalPartitions(
            node_id=self.settings.id,
            logs=self._logs,
            disk=self._disk,
            clock=self._clock,
            random=self._random,
            static_settings=self._static,
            effective=self._effective,
            report=self._report,
            max_lag_ms=self.settings.replica_lag_time_max_ms,
            replication=self._replication,
            on_placed=self._compare_directory,
        )
        return Broker(
            node_id=self.settings.id,
            cluster_id=cluster_id,
            settings=self.settings,
            static_settings=self._static,
            partitions=partitions,
            make_groups=lambda: self._make_groups(partitions),
            make_transactions=lambda: self._make_transactions(partitions),
            clock=self._clock,
            random=self._random,
            to_controller=self._link.send,
            to_broker=self._to_broker,
            throttle=self._replication.throttle,
            describe_directories=lambda: describe_directories(self._disk, self._directories),
            moves=lambda: self._moves or self._make_moves(),
            served=broker_apis.advertised,
            apis=lambda: self.pipeline.apis,
        )

    def _effective(self, settings: TopicSettings) -> TopicSettings:
        """``--durable`` holds for every topic, whatever its own flush settings say."""
        return replace(settings, flush_messages=1) if self.settings.durable else settings

    def _make_groups(self, partitions: LocalPartitions) -> GroupCoordinator:
        from barnabas.core.group.turn import GroupPolicy  # noqa: PLC0415 -- see Broker.groups
        from barnabas.runtime.group_coordinator import GroupCoordinator  # noqa: PLC0415

        settings = self.settings
        policy = GroupPolicy(
            min_session_timeout_ms=settings.group_min_session_timeout_ms,
            max_session_timeout_ms=settings.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
            heartbeat_hold_ms=settings.group_heartbeat_hold_ms,
            offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
            offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
            offsets_check_interval_ms=settings.offsets_retention_check_interval_ms,
        )
        return GroupCoordinator(
            partitions=partitions, policy=policy, clock=self._clock, random=self._random, report=self._report
        )

    def _make_transactions(self, partitions: LocalPartitions) -> TransactionCoordinator:
        from barnabas.core.txn.machine import TxnPolicy  # noqa: PLC0415 -- see Broker.transactions
        from barnabas.runtime.transaction_coordinator import TransactionCoordinator  # noqa: PLC0415
        from barnabas.runtime.transaction_markers import MarkerSender  # noqa: PLC0415

        settings = self.settings
        policy = TxnPolicy(
            max_timeout_ms=settings.transaction_max_timeout_ms,
            id_expiration_ms=settings.transactional_id_expiration_ms,
            expiration_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
            version=lambda: self._image().features.get(features.TRANSACTION_VERSION, 0),
        )
        broker = self.broker
        markers = MarkerSender(leader_of=broker.leader_of_partition, to_broker=self._to_broker, clock=self._clock)
        return TransactionCoordinator(
            partitions=partitions,
            policy=policy,
            markers=markers,
            allocate=broker.producer_ids.allocate,
            clock=self._clock,
            report=self._report,
        )

    def _to_broker(
        self, node_id: int, lane: str, request: Message, timeout_ms: int, then: Callable[[Any], None]
    ) -> None:
        """To this very broker without a socket, but as by one: when the present request has been handled.

        Both ways lead to appends. What is appended while a follower's fetch is being handled may be missed by that
        fetch, which then waits for more.
        """
        if node_id == self.settings.id:
            self._soon(lambda: self._to_myself(request, timeout_ms, then))
            return
        address = self._address_of(node_id)
        if address is None:
            then(ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not registered"))
        else:
            self._network.send(address, lane, request, timeout_ms, then)

    def _to_myself(self, request: Message, timeout_ms: int, then: Callable[[Any], None]) -> None:
        if not self._is_applying:
            then(ApiError(ErrorCode.NETWORK_EXCEPTION, "the broker is stopping"))
            return
        if self._local is None:
            listener, client_id = self.settings.inter_broker_listener, f"broker-{self.settings.id}"
            self._local = LocalPeer(self.pipeline, self._clock, listener=listener, client_id=client_id)
        self._local.send(request, timeout_ms, lambda outcome: self._soon(lambda: then(outcome)))

    def _soon(self, callback: Callable[[], None]) -> None:
        self._clock.call_at(self._clock.monotonic_ms(), callback)

    # Data folders

    def _compare_directory(self, partition: Partition, state: PartitionImage) -> None:
        """The controller has to know where a replica is, so that it knows what a failed folder takes offline."""
        directory = self._logs.directory_of(partition.name)
        level = self._image().features.get(features.METADATA_VERSION, 0)
        if directory is not None and level >= features.DIRECTORY_ASSIGNMENT_LEVEL:
            key = (partition.topic_id, partition.name.partition)
            self._reports.compare(key, directory.id, state.directory_of(self.settings.id))

    def _make_moves(self) -> ReplicaMoves:
        from barnabas.runtime.replica_moves import ReplicaMoves  # noqa: PLC0415 -- seldom needed

        self._moves = ReplicaMoves(
            partitions=self.broker.partitions,
            logs=self._logs,
            disk=self._disk,
            clock=self._clock,
            random=self._random,
            on_moved=self._moved,
            report=self._report,
        )
        self._moves.limit(self.settings.replica_alter_log_dirs_io_max_bytes_per_second)
        return self._moves

    def _moved(self, partition: Partition) -> None:
        state = self.broker.partitions.state_of(partition)
        if state is not None:
            self._compare_directory(partition, state)

    # Starting

    def open_logs(self) -> None:
        """Opens what is in the folders and applies the present image as a whole; recovers after a crash."""
        image = self._image()

        def settings_of(partition: TopicPartition, topic_id: Uuid | None) -> TopicSettings:
            return self._effective(topic_settings(image, partition.topic, self.settings.id, self._static))

        now_ms = self._clock.now_ms()
        for directory in self._directories:
            if directory.failure is None:
                self._load(directory, settings_of, now_ms)
        self._logs.resolve_doubles(lambda: self._random.randbytes(16))
        self._is_applying = True
        self.broker.apply(None, image)
        self._reconfigure(image)

    def _load(self, directory: LogDirectory, settings_of: SettingsOf, now_ms: int) -> None:
        """A folder that cannot be read is offline; the others are served, if replicas of its logs are elsewhere."""
        try:
            directory.load(settings_of, now_ms=now_ms, options=self._logs.options)
        except (DiskError, LogOffline) as problem:
            if directory is self._directories[0] or not joins_cluster(self.settings):
                raise
            directory.take_offline(str(problem))

    def serve(self, snapshots: Snapshots) -> None:
        """The broker is unfenced."""
        self._upkeep = Upkeep(
            settings=self.settings,
            broker=self.broker,
            logs=self._logs,
            snapshots=snapshots,
            clock=self._clock,
            report=self._report,
        )
        self._compaction_timer = self._clock.call_at(
            self._clock.monotonic_ms() + COMPACTION_DELAY_MS, self._start_compaction
        )
        if any(directory.interrupted for directory in self._directories):
            self.broker.moves().resume()

    def _start_compaction(self) -> None:
        from barnabas.node.compaction import Compaction  # noqa: PLC0415 -- 30 ms that the first message need not wait for

        self.compaction = Compaction(
            settings=self.settings,
            partitions=self.broker.partitions,
            logs=self._logs,
            disk=self._disk,
            workers=self._workers,
            clock=self._clock,
            random=self._random,
            report=self._report,
        )

    # Metadata

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._is_applying:
            return
        self.broker.apply(delta, image)
        if any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.changed_configs):
            self._reconfigure(image)

    def _reconfigure(self, image: MetadataImage) -> None:
        self.settings = reconfiguration.in_force(self._given, image, self._static)
        reconfiguration.expire_producers(self._logs, self.settings)
        self._replication.throttle.obey(self.settings)
        if self._moves is not None:
            self._moves.limit(self.settings.replica_alter_log_dirs_io_max_bytes_per_second)
        if self.compaction is not None:
            self.compaction.obey(self.settings)
        self._on_settings(self.settings)

    # Stopping

    def stop_offline(self) -> None:
        """A data folder has failed."""
        if self._is_applying:
            self.broker.partitions.stop_offline()

    def close(self) -> None:
        self._is_applying = False
        self.broker.close()
        if self._local is not None:
            self._local.close()
        self.lease.close()
        self._replication.close()
        self._reports.close()
        if self._moves is not None:
            self._moves.close()
        if self._upkeep is not None:
            self._upkeep.stop()
        if self._compaction_timer is not None:
            self._compaction_timer.cancel()
        if self.compaction is not None:
            self.compaction.close()
