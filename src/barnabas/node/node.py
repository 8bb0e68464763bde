"""One node: broker, controller, logs and runtime over the ports, without sockets, threads or asyncio.

Start: lock and identify the folders, load the metadata, lead the quorum of one, register the broker, open the logs,
unfence the broker, which raises the leader epochs of its partitions (``startup`` has the phases). Stop: the reverse;
the clean shutdown marker comes last. Operations that wait call back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.broker import apis as broker_apis
from barnabas.broker.context import Broker
from barnabas.controller import apis as controller_apis
from barnabas.controller.controller import Controller
from barnabas.core.metadata.configs import topic_settings
from barnabas.core.metadata.image import BROKER_RESOURCE, Endpoint, MetadataImage
from barnabas.core.metadata.machine import MetadataMachine, MetadataPolicy
from barnabas.core.metadata.records import UnknownRecord
from barnabas.core.raft.machine import UnsupportedQuorum, Voter
from barnabas.model.broker_settings import BrokerSettings, all_broker_settings
from barnabas.model.errors import ApiError, StartError
from barnabas.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition, Uuid
from barnabas.model.ports import Clock, DiskError, Random, Timer, Transport
from barnabas.model.topic_settings import TopicSettings
from barnabas.node import folders, reconfiguration, registration
from barnabas.node import format as formatting
from barnabas.node.description import describe_directories
from barnabas.node.metadata_snapshots import Snapshots
from barnabas.node.ports import NodeDisk, Workers
from barnabas.node.shutdown import Shutdown
from barnabas.node.startup import Phase, Startup
from barnabas.node.transport import NodeTransport
from barnabas.node.upkeep import Upkeep
from barnabas.runtime.local_peer import LocalPeer
from barnabas.runtime.metadata_snapshot import CorruptSnapshot
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.pipeline import Pipeline
from barnabas.runtime.raft_driver import Loaded, LostVote, RaftDriver
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory, LogManager, LogOptions
from barnabas.storage.validation import Validation
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest

if TYPE_CHECKING:
    from barnabas.node.compaction import Compaction
    from barnabas.runtime.group_coordinator import GroupCoordinator

METADATA_SETTINGS = TopicSettings(retention_ms=-1, retention_bytes=-1, max_message_bytes=8 << 20)
COMPACTION_DELAY_MS = 200

START_PROBLEMS = (
    DiskError,
    LogOffline,
    CorruptSnapshot,
    UnknownRecord,
    UnsupportedQuorum,
    LostVote,
    formatting.WrongFolder,
)
"""Problems that the operator can fix; anything else is a defect."""

Report = Callable[..., None]
CheckMetadata = Callable[[NodeDisk, str, MetadataImage], None]
"""Raises StartError where the metadata asks for what this build cannot do."""


class Node:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        static_settings: Mapping[str, str],
        directories: Sequence[str],
        disk: NodeDisk,
        clock: Clock,
        random: Random,
        workers: Workers,
        report: Report,
        on_failure: Callable[[str], None],
        on_settings: Callable[[BrokerSettings], None] = lambda _: None,
        check_metadata: CheckMetadata = lambda *_: None,
        transport: Transport | None = None,
    ) -> None:
        """``directories`` are absolute paths. ``on_settings`` gets the settings in force whenever they change.

        ``transport`` reaches the other nodes.
        """
        self.settings = self._given = settings
        self._static = static_settings
        self._roots = list(directories)
        self._disk = disk
        self._clock = clock
        self._random = random
        self._workers = workers
        self._report = report
        self._on_failure = on_failure
        self._on_settings = on_settings
        self._check_metadata = check_metadata
        self._others = transport
        self._startup: Startup | None = None
        self._upkeep: Upkeep | None = None
        self._snapshots: Snapshots | None = None
        self._compaction_timer: Timer | None = None
        self.compaction: Compaction | None = None
        self._is_serving = False
        self._directories = [
            LogDirectory(disk, root, on_failure=self._directory_failed, report=report) for root in self._roots
        ]
        options = LogOptions(
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
            validation=Validation(settings.validation),
            random=random,
            report=report,
        )
        self.logs = LogManager(self._directories, options)

    @property
    def phase(self) -> Phase:
        return self._startup.phase if self._startup is not None else Phase.QUORUM

    # Starting

    def start(
        self,
        endpoints: Sequence[Endpoint],
        controller_endpoint: tuple[str, str, int],
        then: Callable[[StartError | None], None],
    ) -> None:
        """``endpoints`` are the advertised ones. ``then`` gets None once the node serves."""
        self._endpoints = endpoints
        self._controller_endpoint = controller_endpoint
        self._started = then
        try:
            loaded = self._open()
            self._startup = Startup(
                transport=self.transport,
                controller_id=self._controller_id,
                clock=self._clock,
                report=self._report,
                on_failure=then,
            )
            self.controller.driver.start(
                loaded.voters, first=self._is_new, then=lambda problem: self._led(problem, loaded)
            )
        except (StartError, *START_PROBLEMS) as problem:
            then(problem if isinstance(problem, StartError) else _as_start_error(problem))

    def _led(self, problem: DiskError | None, loaded: Loaded) -> None:
        """The quorum has a leader: us."""
        if problem is not None:
            self._fail(_as_start_error(problem))
            return
        if loaded.open_transaction is not None:
            self.controller.driver.abort_transaction()
        if self._is_new:
            minimum = self._static.get("min.insync.replicas", "1")
            self.controller.bootstrap(formatting.bootstrap_records(minimum), self._bootstrapped)
        else:
            self._register_controller()

    def _open(self) -> Loaded:
        folders.lock_all(self._directories)
        settings = self.settings = self._given = self._as_stored(self.settings)
        formatting.check_unclaimed(self._disk, self._roots)
        formatting.check_undamaged(self._disk, self._roots[0])
        self.cluster_id, self._directory_ids, fresh = formatting.identify(
            self._disk, self._roots, settings.id, self._random
        )
        if len(fresh) == len(self._roots):
            formatting.claim(self._disk, fresh, self.cluster_id, settings.id)
        driver = self._open_metadata_log()
        machine = MetadataMachine(self._policy(), self._random)
        self.controller = Controller(machine, driver, self._clock, self._publish)
        self.controller_pipeline = Pipeline(controller_apis.table(self.controller), self._clock, report=self._report)
        own = LocalPeer(
            self.controller_pipeline,
            self._clock,
            listener=self._controller_endpoint[0],
            client_id=f"broker-{settings.id}",
        )
        self.transport = NodeTransport(settings.id, own, self._others)
        loaded = driver.load()
        machine.replay(
            loaded.records,
            next_offset=loaded.next_offset,
            raft_epoch=max(0, driver.log.latest_epoch),
            timestamp_ms=loaded.timestamp_ms,
        )
        self._is_new = not machine.image.features
        if self._is_new:
            formatting.check_empty(self._disk, self._roots, f"the metadata log in {self._roots[0]} is empty")
        if len(fresh) < len(self._roots):
            formatting.check_complete(self._disk, self._roots, list(fresh), machine.image, settings.id)
            formatting.claim(self._disk, fresh, self.cluster_id, settings.id)
        self._check_metadata(self._disk, self._roots[0], machine.image)
        return loaded

    def _open_metadata_log(self) -> RaftDriver:
        me = Voter(self.settings.id, self._directory_ids[0])
        now_ms = self._clock.now_ms()
        endpoints = [self._controller_endpoint]
        directory = formatting.format_metadata(self._disk, self._roots[0], me, endpoints, now_ms)
        log = Log.open(
            self._disk,
            directory,
            TopicPartition(METADATA_TOPIC, 0),
            METADATA_SETTINGS,
            now_ms=now_ms,
            topic_id=METADATA_TOPIC_ID,
            on_failure=lambda log, reason: self._on_failure(f"The metadata log failed: {reason}"),
            report=self._report,
        )
        return RaftDriver(
            disk=self._disk,
            clock=self._clock,
            log=log,
            directory=directory,
            me=me,
            endpoints=endpoints,
            on_high_watermark=self._on_high_watermark,
            report=self._report,
        )

    def _on_high_watermark(self) -> None:
        self.controller.on_high_watermark()

    def _as_stored(self, settings: BrokerSettings) -> BrokerSettings:
        """Without node.id in the settings, the id in the data folder is used."""
        stored = formatting.node_id_of(self._disk, self._roots[0])
        if stored is None or "node.id" in self._static or "broker.id" in self._static:
            return settings
        return replace(settings, node_id=stored)

    def _policy(self) -> MetadataPolicy:
        return MetadataPolicy(
            node_id=self.settings.id,
            cluster_id=self.cluster_id,
            default_partitions=self.settings.num_partitions,
            default_replication_factor=self.settings.default_replication_factor,
            delete_topic_enabled=self.settings.delete_topic_enable,
            broker_session_timeout_ms=self.settings.broker_session_timeout_ms,
            static_settings=self._static,
            broker_settings=all_broker_settings(),
        )

    def _controller_id(self) -> int:
        return self.settings.id

    # Joining

    def _ask(self, phase: Phase, make_request: Callable[[], Any], then: Callable[[Any], None]) -> None:
        if self._startup is not None:
            self._startup.ask(phase, make_request, then)

    def _fail(self, problem: StartError) -> None:
        if self._startup is not None:
            self._startup.fail(problem)

    def _bootstrapped(self, outcome: Any) -> None:
        if isinstance(outcome, ApiError):
            self._fail(StartError(f"The first records of the metadata log could not be written: {outcome}."))
        else:
            self._register_controller()

    def _register_controller(self) -> None:
        incarnation_id = formatting.random_uuid(self._random)
        request = registration.of_controller(self.settings, incarnation_id, self._controller_endpoint)
        self._ask(Phase.CONTROLLER, lambda: request, lambda _: self._register_broker())

    def _register_broker(self) -> None:
        request = registration.of_broker(
            self.settings,
            formatting.random_uuid(self._random),
            cluster_id=self.cluster_id,
            endpoints=self._endpoints,
            directory_ids=self._directory_ids,
        )
        self._ask(Phase.BROKER, lambda: request, self._registered)

    def _registered(self, response: Any) -> None:
        self.broker_epoch: int = response.broker_epoch
        self.broker = self._make_broker()
        self.pipeline = Pipeline(broker_apis.table(self.broker), self._clock, report=self._report)
        if self._startup is not None:
            self._startup.phase = Phase.RECOVERY
        try:
            self._load_logs(self.controller.machine.image)
        except START_PROBLEMS as problem:
            self._fail(_as_start_error(problem))
            return
        self._ask(Phase.UNFENCING, self._heartbeat, lambda _: self._serve())

    def _load_logs(self, image: MetadataImage) -> None:
        def settings_of(partition: TopicPartition, topic_id: Uuid | None) -> TopicSettings:
            return self._effective(topic_settings(image, partition.topic, self.settings.id, self._static))

        now_ms = self._clock.now_ms()
        for directory in self._directories:
            directory.load(settings_of, now_ms=now_ms, options=self.logs.options)

    def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self.settings.id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.controller.committed.next_offset,
            want_shut_down=want_shut_down,
        )

    def _serve(self) -> None:
        self._is_serving = True
        self.broker.apply(None, self.controller.committed)
        self._reconfigure(self.controller.committed)
        if self._startup is not None:
            self._startup.finish()
        self._snapshots = Snapshots(
            settings=self.settings,
            controller=self.controller,
            disk=self._disk,
            workers=self._workers,
            clock=self._clock,
            report=self._report,
        )
        self._upkeep = Upkeep(
            settings=self.settings,
            broker=self.broker,
            logs=self.logs,
            snapshots=self._snapshots,
            clock=self._clock,
            report=self._report,
        )
        self._compaction_timer = self._clock.call_at(
            self._clock.monotonic_ms() + COMPACTION_DELAY_MS, self._start_compaction
        )
        self._started(None)

    def _effective(self, settings: TopicSettings) -> TopicSettings:
        """``--durable`` holds for every topic, whatever its own flush settings say."""
        return replace(settings, flush_messages=1) if self.settings.durable else settings

    def _make_broker(self) -> Broker:
        partitions = LocalPartitions(
            node_id=self.settings.id,
            logs=self.logs,
            disk=self._disk,
            clock=self._clock,
            random=self._random,
            static_settings=self._static,
            effective=self._effective,
            report=self._report,
        )
        return Broker(
            node_id=self.settings.id,
            cluster_id=self.cluster_id,
            settings=self.settings,
            static_settings=self._static,
            partitions=partitions,
            make_groups=lambda: self._make_groups(partitions),
            clock=self._clock,
            random=self._random,
            transport=self.transport,
            controller_id=self._controller_id,
            describe_directories=lambda: describe_directories(self._disk, self._directories),
            served=broker_apis.advertised,
            apis=lambda: self.pipeline.apis,
        )

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

    def _start_compaction(self) -> None:
        from barnabas.node.compaction import Compaction  # noqa: PLC0415 -- 30 ms that the first message need not wait for

        self.compaction = Compaction(
            settings=self.settings,
            partitions=self.broker.partitions,
            logs=self.logs,
            disk=self._disk,
            workers=self._workers,
            clock=self._clock,
            random=self._random,
            report=self._report,
        )

    # Metadata

    def _publish(self, delta: Any, image: MetadataImage) -> None:
        if self._is_serving:
            self.broker.apply(delta, image)
            if any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.changed_configs):
                self._reconfigure(image)
        if self._snapshots is not None:
            self._snapshots.look()

    def _reconfigure(self, image: MetadataImage) -> None:
        self.settings = reconfiguration.in_force(self._given, image, self._static)
        reconfiguration.expire_producers(self.logs, self.settings)
        if self.compaction is not None:
            self.compaction.obey(self.settings)
        self._on_settings(self.settings)

    # Failing and stopping

    def _directory_failed(self, directory: LogDirectory, reason: str) -> None:
        self._report("a data folder is offline", folder=directory.path, reason=reason)
        if all(each.failure is not None for each in self._directories) or directory is self._directories[0]:
            self._on_failure(f"The data folder {directory.path} failed: {reason}")
        elif self._is_serving:
            self.broker.partitions.stop_offline()

    def stop(self, end_connections: Callable[[], None], then: Callable[[bool], None]) -> None:
        """A clean stop, after listeners stopped reading (``shutdown``).

        ``then`` gets False if the disk failed: nothing acknowledged is lost, but the next start has to recover.
        """
        high_watermarks: dict[TopicPartition, int] = {}

        def ask_to_stop(timeout_ms: int, answered: Callable[[Any], None]) -> None:
            if not high_watermarks:
                high_watermarks.update(self.broker.partitions.high_watermarks())
            request = self._heartbeat(want_shut_down=True)
            self.transport.send(self._controller_id(), request, timeout_ms, answered)

        Shutdown(
            clock=self._clock,
            when_all_committed=self.broker.partitions.when_all_committed,
            ask_to_stop=ask_to_stop,
            end_connections=end_connections,
            then=lambda: then(self._close(high_watermarks)),
        ).begin()

    def abort(self) -> None:
        """Stops at once, as a crash would: nothing is marked clean."""
        for directory in self._directories:
            directory.failure = directory.failure or "aborted"
        self._close(None)

    def abandon(self) -> None:
        """The start failed: gives back what was taken."""
        if self._startup is not None:
            self._startup.give_up()
        self._disk.close()

    def _close(self, high_watermarks: dict[TopicPartition, int] | None) -> bool:
        self._is_serving = False
        if self._upkeep is not None:
            self._upkeep.stop()
        if self._compaction_timer is not None:
            self._compaction_timer.cancel()
        if self.compaction is not None:
            self.compaction.close()
        if self._snapshots is not None:
            self._snapshots.close()
        self.transport.close()
        try:
            self.controller.driver.log.close(clean=high_watermarks is not None)
        except (DiskError, LogOffline) as problem:
            self._report("the metadata log could not be closed", reason=str(problem))
        clean = False
        try:
            clean = self.logs.close(broker_epoch=self.broker_epoch, high_watermarks=high_watermarks)
        except DiskError as problem:
            self._report("the logs could not be marked as closed", reason=str(problem))
        self._disk.close()
        return clean


def _as_start_error(problem: Exception) -> StartError:
    error = StartError(f"{str(problem).rstrip('.')}.")
    error.__cause__ = problem
    return error
