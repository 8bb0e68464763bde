"""One node: broker and controller over the ports, without sockets, threads or asyncio.

    open:  lock and identify the folders, open the metadata log
    start: join the quorum -> register -> catch up with the metadata -> open the logs -> be unfenced -> serve
    stop:  hand over leadership -> be fenced -> leave the quorum -> close the logs; the clean shutdown marker comes last

``process.roles`` says what the node is. A controller votes in the quorum and is active while it leads it; a broker
without that role observes the metadata log. Operations that wait call back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from barnabas.controller import apis as controller_apis
from barnabas.controller.controller import Controller
from barnabas.core.metadata.image import Endpoint, MetadataImage
from barnabas.core.metadata.machine import MetadataPolicy
from barnabas.core.metadata.records import UnknownRecord
from barnabas.core.raft.machine import UnsupportedQuorum
from barnabas.core.raft.settings import QuorumSettings
from barnabas.core.raft.voters import Voter
from barnabas.model.broker_settings import BrokerSettings, all_broker_settings
from barnabas.model.errors import StartError
from barnabas.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from barnabas.model.ports import Address, Clock, DiskError, Network, Random
from barnabas.model.topic_settings import TopicSettings
from barnabas.node import folders, quorum, registration
from barnabas.node import format as formatting
from barnabas.node.broker_lifecycle import BrokerLifecycle, Phase
from barnabas.node.broker_part import BrokerPart
from barnabas.node.controller_link import ControllerLink
from barnabas.node.metadata_snapshots import Snapshots
from barnabas.node.ports import NodeDisk, Workers
from barnabas.node.shutdown import Shutdown
from barnabas.runtime.cluster_metadata import ClusterMetadata
from barnabas.runtime.local_peer import LocalPeer
from barnabas.runtime.metadata_snapshot import CorruptSnapshot
from barnabas.runtime.pipeline import Pipeline
from barnabas.runtime.raft_driver import LostVote, RaftDriver
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory, LogOptions
from barnabas.storage.log_manager import LogManager
from barnabas.storage.validation import Validation

METADATA_SETTINGS = TopicSettings(retention_ms=-1, retention_bytes=-1, max_message_bytes=8 << 20)

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
        network: Network,
        report: Report,
        on_failure: Callable[[str], None],
        on_settings: Callable[[BrokerSettings], None] = lambda _: None,
        drop_connections: Callable[[], None] = lambda: None,
        check_metadata: CheckMetadata = lambda *_: None,
    ) -> None:
        """``directories`` are absolute paths. ``on_settings`` gets the settings in force whenever they change.

        ``drop_connections`` closes those of clients, who then look for other brokers.
        """
        self.settings = settings
        self._static = static_settings
        self._roots = list(directories)
        self._disk = disk
        self._clock = clock
        self._random = random
        self._workers = workers
        self._network = network
        self._report = report
        self._on_failure = on_failure
        self._on_settings = on_settings
        self._drop_connections = drop_connections
        self._check_metadata = check_metadata
        self._snapshots: Snapshots | None = None
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
        self.metadata = ClusterMetadata(self._publish)
        self.controller: Controller | None = None
        self.controller_pipeline: Pipeline | None = None
        self.broker_part: BrokerPart | None = None
        self._is_closed = False

    @property
    def phase(self) -> Phase:
        return self.lifecycle.phase

    @property
    def is_broker(self) -> bool:
        return "broker" in self.settings.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.settings.process_roles

    @property
    def broker(self) -> Any:
        """The context of the broker's handlers."""
        return self._part.broker

    @property
    def pipeline(self) -> Pipeline:
        return self._part.pipeline

    @property
    def broker_epoch(self) -> int:
        return self.lifecycle.broker_epoch

    @property
    def _part(self) -> BrokerPart:
        assert self.broker_part is not None
        return self.broker_part

    # Opening

    def open(self, endpoints: Sequence[Endpoint], controller_endpoint: tuple[str, str, int]) -> None:
        """Takes the folders and loads the metadata; ``endpoints`` are the advertised ones. Raises StartError."""
        self._endpoints = endpoints
        self._controller_endpoint = controller_endpoint
        try:
            self._open()
        except START_PROBLEMS as problem:
            raise _as_start_error(problem) from problem

    def _open(self) -> None:
        folders.lock_all(self._directories, may_fail=folders.joins_cluster(self.settings), report=self._report)
        usable = [directory for directory in self._directories if directory.failure is None]
        self._roots = [directory.path for directory in usable]
        settings = self.settings = self._as_stored(self.settings)
        formatting.check_unclaimed(self._disk, self._roots)
        formatting.check_undamaged(self._disk, self._roots[0])
        formatting.check_formatted(self._disk, self._roots[0], settings)
        self.cluster_id, self._directory_ids, fresh = formatting.identify(
            self._disk, self._roots, settings.id, self._random
        )
        for directory, directory_id in zip(usable, self._directory_ids, strict=True):
            directory.id = directory_id
        if len(fresh) == len(self._roots):
            formatting.claim(self._disk, fresh, self.cluster_id, settings.id)
        self._previous_epoch = folders.stopped_in_epoch(self._directories)
        self.driver = self._make_driver()
        link_own = self._make_controller() if self.is_controller else None
        self.link = ControllerLink(
            node_id=settings.id, own=link_own, where=self._active_controller, network=self._network, clock=self._clock
        )
        self.lifecycle = self._make_lifecycle()
        if self.is_broker:
            self.broker_part = self._make_broker_part()
        loaded = self.driver.load()
        self.metadata.install(
            loaded.records,
            next_offset=loaded.next_offset,
            raft_epoch=max(0, self.driver.log.latest_epoch),
            timestamp_ms=loaded.timestamp_ms,
        )
        image = self.metadata.committed
        is_only_voter = [voter.node_id for voter in loaded.voters] == [settings.id]
        if not image.features and is_only_voter:  # other voters may have what this one lacks
            formatting.check_empty(self._disk, self._roots, f"the metadata log in {self._roots[0]} is empty")
        if len(fresh) < len(self._roots):
            if is_only_voter:
                formatting.check_complete(self._disk, self._roots, list(fresh), image, settings.id)
            formatting.claim(self._disk, fresh, self.cluster_id, settings.id)
        self._check_metadata(self._disk, self._roots[0], image)

    def _make_driver(self) -> RaftDriver:
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
            random=self._random,
            log=log,
            directory=directory,
            cluster_id=self.cluster_id,
            me=me,
            endpoints=endpoints,
            can_vote=self.is_controller,
            bootstrap=quorum.bootstrap_addresses(self.settings),
            network=self._network,
            settings=QuorumSettings.of(self.settings),
            listener=quorum.Listener(self),
            report=self._report,
            on_failure=self._on_failure,
        )

    def _make_controller(self) -> LocalPeer:
        controller = self.controller = Controller(
            metadata=self.metadata,
            policy=self._policy(),
            random=self._random,
            bootstrap=lambda: formatting.bootstrap_records(
                self._disk, self._roots[0], self._static.get("min.insync.replicas", "1")
            ),
            clock=self._clock,
            report=self._report,
        )
        controller.driver = self.driver
        self._network.on_refused = controller.on_refused
        self.controller_pipeline = Pipeline(controller_apis.table(controller), self._clock, report=self._report)
        return LocalPeer(
            self.controller_pipeline,
            self._clock,
            listener=self._controller_endpoint[0],
            client_id=f"broker-{self.settings.id}",
        )

    def _make_lifecycle(self) -> BrokerLifecycle:
        settings = self.settings
        return BrokerLifecycle(
            broker_id=settings.id,
            link=self.link,
            metadata_offset=lambda: self.metadata.committed.next_offset,
            offline_directories=self._offline_directories,
            heartbeat_ms=settings.broker_heartbeat_interval_ms,
            session_ms=settings.broker_session_timeout_ms,
            on_answered=self._renew_lease,
            clock=self._clock,
            report=self._report,
            on_start_failure=self._start_failed,
            on_failure=self._on_failure,
        )

    def _make_broker_part(self) -> BrokerPart:
        return BrokerPart(
            settings=self.settings,
            static_settings=self._static,
            cluster_id=self.cluster_id,
            logs=self.logs,
            directories=self._directories,
            disk=self._disk,
            clock=self._clock,
            random=self._random,
            workers=self._workers,
            network=self._network,
            link=self.link,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            image=lambda: self.metadata.committed,
            on_settings=self._on_settings,
            drop_connections=self._drop_connections,
            report=self._report,
        )

    def _as_stored(self, settings: BrokerSettings) -> BrokerSettings:
        """Without node.id in the settings, the id in the data folder is used."""
        stored = formatting.node_id_of(self._disk, self._roots[0])
        if stored is None or "node.id" in self._static or "broker.id" in self._static:
            return settings
        return replace(settings, node_id=stored)

    def _policy(self) -> MetadataPolicy:
        settings = self.settings
        return MetadataPolicy(
            node_id=settings.id,
            cluster_id=self.cluster_id,
            default_partitions=settings.num_partitions,
            default_replication_factor=settings.default_replication_factor,
            delete_topic_enabled=settings.delete_topic_enable,
            broker_session_timeout_ms=settings.broker_session_timeout_ms,
            auto_leader_rebalance_enabled=settings.auto_leader_rebalance_enable,
            leader_imbalance_check_interval_ms=settings.leader_imbalance_check_interval_seconds * 1000,
            static_settings=self._static,
            broker_settings=all_broker_settings(),
        )

    def _active_controller(self) -> tuple[int, Address | None]:
        return self.driver.leader_id, self.driver.leader_address

    def _renew_lease(self, sent_ms: int) -> None:
        """A controller that is cut off answers the broker of its own process for a while, and does not count."""
        confirmed_ms = self.driver.machine.majority_heard_ms
        if self.broker_part is not None:
            self.broker_part.lease.renew(sent_ms if confirmed_ms is None else min(sent_ms, confirmed_ms))

    def _offline_directories(self) -> list[bytes]:
        """Those that failed since this node registered."""
        return [each.id for each in self._directories if each.failure is not None and each.id]

    # Starting

    def start(self, then: Callable[[StartError | None], None]) -> None:
        """``then`` gets None once the node serves: a broker is unfenced, a controller has joined the quorum."""
        self._started = then
        self._snapshots = Snapshots(
            settings=self.settings,
            driver=self.driver,
            metadata=self.metadata,
            disk=self._disk,
            workers=self._workers,
            clock=self._clock,
            report=self._report,
        )
        try:
            self.driver.start(self._joined)
        except START_PROBLEMS as problem:
            self._start_failed(_as_start_error(problem))

    def _start_failed(self, problem: StartError) -> None:
        self._started(problem)

    def _joined(self, problem: DiskError | None) -> None:
        """The quorum has a leader; or the disk did not take what this node had to write for that."""
        if problem is not None:
            self._start_failed(_as_start_error(problem))
        elif self.is_controller:
            incarnation_id = formatting.random_uuid(self._random)
            request = registration.of_controller(self.settings, incarnation_id, self._controller_endpoint)
            self.lifecycle.ask(Phase.CONTROLLER, request, lambda _: self._register_broker())
        else:
            self._register_broker()

    def _register_broker(self) -> None:
        if not self.is_broker:
            self.lifecycle.phase = Phase.SERVING
            self._started(None)
            return
        request = registration.of_broker(
            self.settings,
            formatting.random_uuid(self._random),
            cluster_id=self.cluster_id,
            endpoints=self._endpoints,
            directory_ids=self._directory_ids,
            previous_epoch=self._previous_epoch,
        )
        self.lifecycle.register(request, self._recover)

    def _recover(self) -> None:
        try:
            self._part.open_logs()
        except START_PROBLEMS as problem:
            self._start_failed(_as_start_error(problem))
            return
        self.lifecycle.unfence(self._serve)

    def _serve(self) -> None:
        assert self._snapshots is not None
        self._part.serve(self._snapshots)
        self._started(None)

    # Metadata

    def _publish(self, delta: Any, image: MetadataImage) -> None:
        if self.broker_part is not None:
            self.broker_part.apply(delta, image)
            self.settings = self.broker_part.settings
        self.lifecycle.on_metadata()
        if self._snapshots is not None:
            self._snapshots.look()

    @property
    def is_alone(self) -> bool:
        """Whether no other broker can take over what this one leads."""
        others = (broker for node, broker in self.metadata.committed.brokers.items() if node != self.settings.id)
        return self.is_broker and not any(broker.serves for broker in others)

    # Failing and stopping

    def _directory_failed(self, directory: LogDirectory, reason: str) -> None:
        self._report("a data folder is offline", folder=directory.path, reason=reason)
        if all(each.failure is not None for each in self._directories) or directory is self._directories[0]:
            self._on_failure(f"The data folder {directory.path} failed: {reason}")
        elif self.broker_part is not None:
            self.broker_part.stop_offline()

    def stop(self, end_connections: Callable[[], None], then: Callable[[bool], None]) -> None:
        """A clean stop, after listeners stopped reading (``shutdown``).

        ``then`` gets False if the disk failed: nothing acknowledged is lost, but the next start has to recover.
        """
        Shutdown(
            clock=self._clock,
            broker=self.broker_part,
            is_alone=self.is_alone,
            lifecycle=self.lifecycle,
            driver=self.driver,
            end_connections=end_connections,
            then=lambda high_watermarks: then(self._close(high_watermarks)),
        ).begin()

    def abort(self) -> None:
        """Stops at once, as a crash would: nothing is marked clean."""
        for directory in self._directories:
            directory.failure = directory.failure or "aborted"
        self._close(None)

    def abandon(self) -> None:
        """The start failed, or never began: gives back what was taken."""
        if self._is_closed:
            return
        self._is_closed = True
        for attribute in ("lifecycle", "driver"):
            part = getattr(self, attribute, None)
            if part is not None:
                part.stop() if attribute == "lifecycle" else part.close()
        if self.broker_part is not None:
            self.broker_part.close()
        self._disk.close()

    def _close(self, high_watermarks: dict[TopicPartition, int] | None) -> bool:
        self._is_closed = True
        self.lifecycle.stop()
        if self.broker_part is not None:
            self.broker_part.close()
        if self._snapshots is not None:
            self._snapshots.close()
        self.link.close()
        self.driver.close()
        try:
            self.driver.log.close(clean=high_watermarks is not None)
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
