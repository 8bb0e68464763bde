"""One node: everything wired together on one event loop.

Start: lock and identify the folders, load the metadata, lead the quorum of one, register and unfence the broker (which
raises the leader epoch of what it leads), open the logs, listen. Stop: the same backwards; the clean shutdown marker
comes last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from barnabas.app import adoption, reconfiguration, registration
from barnabas.app import format as formatting
from barnabas.app.clock import LoopClock
from barnabas.app.description import describe_directories, describe_quorum
from barnabas.app.errors import StartError
from barnabas.app.folders import lock_all
from barnabas.app.listeners import BoundListener, bind, controller_endpoint, listen
from barnabas.app.read_ahead import ReadAhead
from barnabas.app.reconfiguration import AddressLimits
from barnabas.app.snapshots import Snapshots
from barnabas.app.upkeep import Upkeep
from barnabas.broker import apis
from barnabas.broker.context import Broker
from barnabas.controller.controller import Controller
from barnabas.core.metadata.configs import topic_settings
from barnabas.core.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.core.metadata.machine import Bootstrap, MetadataMachine, MetadataPolicy
from barnabas.core.metadata.records import UnknownRecord
from barnabas.core.raft.machine import UnsupportedQuorum, Voter
from barnabas.model.broker_settings import BrokerSettings, all_broker_settings
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition, Uuid
from barnabas.model.ports import DiskError
from barnabas.model.topic_settings import TopicSettings
from barnabas.net.listener import ConnectionLimits, Listener
from barnabas.runtime.metadata_snapshot import CorruptSnapshot
from barnabas.runtime.partitions import LocalPartitions
from barnabas.runtime.pipeline import Pipeline
from barnabas.runtime.raft_driver import RaftDriver
from barnabas.storage.errors import LogOffline
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory, LogManager, LogOptions
from barnabas.storage.validation import Validation
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest

METADATA_SETTINGS = TopicSettings(retention_ms=-1, retention_bytes=-1, max_message_bytes=8 << 20)
RESERVED_DESCRIPTORS = 64
COMPACTION_DELAY_S = 0.2
STOP_PATIENCE_S = 5.0
"""With what a stop waits for, each time."""

Report = Callable[..., None]


class Node:
    def __init__(
        self,
        *,
        settings: BrokerSettings,
        static_settings: Mapping[str, str],
        disk: Any,
        loop: asyncio.AbstractEventLoop,
        report: Report,
        on_failure: Callable[[str], None],
        descriptors: int,
    ) -> None:
        self.settings = settings
        self.listeners: list[Listener] = []
        self.bound: list[BoundListener] = []
        self._static = static_settings
        self._disk = disk
        self._loop = loop
        self._report = report
        self._on_failure = on_failure
        self._descriptors = descriptors
        self._clock = LoopClock(loop)
        self._random = random.Random(os.urandom(16))
        self._read_ahead = ReadAhead(loop)
        self._upkeep: Upkeep | None = None
        self._snapshots: Snapshots | None = None
        self._compaction_timer: asyncio.TimerHandle | None = None
        self._serving = False
        self._stopped = False
        self._compaction: Any = None
        self._roots = [os.path.abspath(path) for path in settings.data_directories]
        self._directories = [
            LogDirectory(disk, root, on_failure=self._directory_failed, report=report) for root in self._roots
        ]
        options = LogOptions(
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
            validation=Validation(settings.validation),
            random=self._random,
            report=report,
        )
        self._logs = LogManager(self._directories, options)

    # Starting

    async def start(self) -> None:
        """Raises StartError for what a person can mend."""
        try:
            self._limits = self._connection_limits()
            self._address_limits = AddressLimits(self._limits, self.settings, self._loop, self._report)
            self.bound = bind(self.settings)
            lock_all(self._directories)
            self._open()
            await self._join()
            self._listen()
        except (
            DiskError,
            LogOffline,
            CorruptSnapshot,
            UnknownRecord,
            UnsupportedQuorum,
            formatting.WrongFolder,
        ) as problem:
            self._abandon()
            raise StartError(f"{str(problem).rstrip('.')}.") from problem
        except BaseException:
            self._abandon()
            raise
        self._snapshots = Snapshots(
            settings=self.settings,
            controller=self.controller,
            disk=self._disk,
            loop=self._loop,
            clock=self._clock,
            report=self._report,
        )
        self._upkeep = Upkeep(
            settings=self.settings,
            broker=self.broker,
            logs=self._logs,
            snapshots=self._snapshots,
            loop=self._loop,
            clock=self._clock,
            report=self._report,
        )
        self._compaction_timer = self._loop.call_later(COMPACTION_DELAY_S, self._compact)

    def _open(self) -> None:
        settings = self.settings = self._given = self._as_stored(self.settings)
        formatting.check_unclaimed(self._disk, self._roots)
        formatting.check_undamaged(self._disk, self._roots[0])
        self.cluster_id, self._directory_ids, fresh = formatting.identify(
            self._disk, self._roots, settings.id, self._random
        )
        if len(fresh) == len(self._roots):
            formatting.claim(self._disk, fresh, self.cluster_id, settings.id)
        me = Voter(settings.id, self._directory_ids[0])
        endpoint = controller_endpoint(settings)
        now_ms = self._clock.now_ms()
        directory = formatting.format_metadata(self._disk, self._roots[0], me, [endpoint], now_ms)
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
        driver = RaftDriver(
            disk=self._disk,
            clock=self._clock,
            log=log,
            directory=directory,
            me=me,
            endpoints=[endpoint],
            on_high_watermark=self._on_high_watermark,
            report=self._report,
        )
        machine = MetadataMachine(self._policy(), self._random)
        self.controller = Controller(machine, driver, self._clock, self._publish)
        loaded = driver.load()
        machine.replay(
            loaded.records,
            next_offset=loaded.next_offset,
            raft_epoch=max(0, log.latest_epoch),
            timestamp_ms=loaded.timestamp_ms,
        )
        self._is_new = not machine.image.features
        if self._is_new:
            formatting.check_empty(self._disk, self._roots, f"the metadata log in {self._roots[0]} is empty")
        if len(fresh) < len(self._roots):
            formatting.check_complete(self._disk, self._roots, list(fresh), machine.image, settings.id)
            formatting.claim(self._disk, fresh, self.cluster_id, settings.id)
        driver.start(loaded.voters, first=self._is_new)
        if loaded.open_transaction is not None:
            driver.abort_transaction()
        adoption.check_served(self._disk, self._roots[0], machine.image)

    def _as_stored(self, settings: BrokerSettings) -> BrokerSettings:
        """Unless told otherwise a node is who its folder says it is."""
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

    async def _join(self) -> None:
        """Registers controller and broker, opens the logs, and takes the lead where the metadata says so."""
        if self._is_new:
            minimum = self._static.get("min.insync.replicas", "1")
            await self._ask(Bootstrap(formatting.bootstrap_records(minimum)))
        await self._ask(registration.of_controller(self.settings, formatting.random_uuid(self._random)))
        request = registration.of_broker(
            self.settings,
            formatting.random_uuid(self._random),
            cluster_id=self.cluster_id,
            endpoints=[listener.advertised for listener in self.bound],
            directory_ids=self._directory_ids,
        )
        registered = await self._ask(request)
        self.broker_epoch = registered.broker_epoch
        self.broker = self._make_broker()
        self._load_logs(self.controller.machine.image)
        await self._ask(self._heartbeat())
        self._serving = True
        self.broker.apply(None, self.controller.committed)
        self._reconfigure(self.controller.committed)

    async def _ask(self, request: Any) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(response: Any) -> None:
            if not future.done():
                future.set_result(response)

        self.controller.submit(request, answered)
        response = await future
        if isinstance(response, ApiError):
            raise StartError(f"The controller answered {type(request).__name__} with {response}.")
        code = getattr(response, "error_code", 0)
        if code:
            raise StartError(f"The controller answered {type(request).__name__} with {ErrorCode(code).name}.")
        return response

    def _heartbeat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=self.settings.id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.controller.committed.next_offset,
            want_shut_down=want_shut_down,
        )

    def _load_logs(self, image: MetadataImage) -> None:
        def settings_of(partition: TopicPartition, topic_id: Uuid | None) -> TopicSettings:
            return self._effective(topic_settings(image, partition.topic, self.settings.id, self._static))

        now_ms = self._clock.now_ms()
        for directory in self._directories:
            directory.load(settings_of, now_ms=now_ms, options=self._logs.options)

    def _effective(self, settings: TopicSettings) -> TopicSettings:
        """``--durable`` holds for every topic, whatever its own flush settings say."""
        return replace(settings, flush_messages=1) if self.settings.durable else settings

    def _make_broker(self) -> Broker:
        partitions = LocalPartitions(
            node_id=self.settings.id,
            logs=self._logs,
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
            to_controller=self.controller.submit,
            describe_quorum=lambda: describe_quorum(self.controller.driver),
            describe_directories=lambda: describe_directories(self._disk, self._directories),
            served=apis.advertised,
        )

    def _make_groups(self, partitions: LocalPartitions) -> Any:
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

    def _on_high_watermark(self) -> None:
        self.controller.on_high_watermark()

    def _publish(self, delta: Any, image: MetadataImage) -> None:
        if self._serving:
            self.broker.apply(delta, image)
            if any(resource_type == BROKER_RESOURCE for resource_type, _ in delta.changed_configs):
                self._reconfigure(image)
        if self._snapshots is not None:
            self._snapshots.look()

    def _reconfigure(self, image: MetadataImage) -> None:
        self.settings = reconfiguration.in_force(self._given, image, self._static)
        reconfiguration.limit_connections(self._limits, self.settings, self._descriptors)
        self._address_limits.obey(self.settings)
        reconfiguration.expire_producers(self._logs, self.settings)
        if self._compaction is not None:
            self._compaction.obey(self.settings)

    # Listening

    def _listen(self) -> None:
        self.pipeline = Pipeline(apis.table(self.broker), self._clock, report=self._report)
        for bound in self.bound:
            listen(bound, self.settings.socket_listen_backlog_size)
            listener = Listener(
                name=bound.address.name,
                sock=bound.socket,
                loop=self._loop,
                pipeline=self.pipeline,
                limits=self._limits,
                read_ahead=self._read_ahead,
                log=self._report,
                sendfile=hasattr(os, "sendfile") and not self.settings.portable,
            )
            listener.start()
            self.listeners.append(listener)

    def _connection_limits(self) -> ConnectionLimits:
        settings = self.settings
        limits = ConnectionLimits(
            max_frame_bytes=settings.socket_request_max_bytes,
            max_idle_ms=settings.connections_max_idle_ms,
            frame_timeout_ms=settings.frame_timeout_ms,
            max_buffered_bytes=settings.queued_max_request_bytes if settings.queued_max_request_bytes > 0 else 1 << 62,
        )
        reconfiguration.limit_connections(limits, settings, self._descriptors)
        return limits

    # Upkeep

    def _compact(self) -> None:
        from barnabas.app.compaction import Compaction  # noqa: PLC0415 -- 30 ms that the first message need not wait for

        self._compaction = Compaction(
            settings=self.settings,
            partitions=self.broker.partitions,
            logs=self._logs,
            disk=self._disk,
            loop=self._loop,
            clock=self._clock,
            random=self._random,
            report=self._report,
        )

    # Failing and stopping

    def _directory_failed(self, directory: LogDirectory, reason: str) -> None:
        self._report("a data folder is offline", folder=directory.path, reason=reason)
        if all(each.failure is not None for each in self._directories) or directory is self._directories[0]:
            self._on_failure(f"The data folder {directory.path} failed: {reason}")
        elif self._serving:
            self.broker.partitions.stop_offline()

    async def stop(self) -> bool:
        """A clean stop: no new connections, leadership given up, everything synced, the marker written.

        False where the disk did not let it be clean: nothing acknowledged is lost, but the next start has to look.
        """
        if self._stopped:
            return True
        self._stopped = True
        for listener in self.listeners:
            listener.stop_accepting()
            listener.halt()
        # Whoever is told that we no longer lead takes what it has sent for lost and sends it again, though it is there.
        await self._commit()
        high_watermarks = self.broker.partitions.high_watermarks()
        # Nobody is left to ask when we are fenced: a client that is told of a cluster without brokers may forget us for
        # good (librdkafka 2.10 and later do).
        told = await self._tell_that_we_stop()
        self._end_connections()
        if told:
            await self._tell_that_we_stop()
        return self._close_logs(high_watermarks)

    async def _commit(self) -> None:
        """Waits for flushes that acknowledgements wait for, within reason."""
        committed: asyncio.Future[None] = self._loop.create_future()

        def done() -> None:
            if not committed.done():
                committed.set_result(None)

        self.broker.partitions.when_all_committed(done)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE_S):
                await committed

    async def _tell_that_we_stop(self) -> bool:
        """The first time the controller takes leadership from us, the second time it fences us."""
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self._ask(self._heartbeat(want_shut_down=True))
        except (StartError, TimeoutError):
            return False
        return True

    def abort(self) -> None:
        """Stops at once, as a crash would: nothing is marked clean."""
        self._stopped = True
        self._end_connections()
        for directory in self._directories:
            directory.failure = directory.failure or "aborted"
        self._close_logs(None)

    def _end_connections(self) -> None:
        if self._upkeep is not None:
            self._upkeep.stop()
        if self._compaction_timer is not None:
            self._compaction_timer.cancel()
        for listener in self.listeners:
            listener.close()

    def _close_logs(self, high_watermarks: dict[TopicPartition, int] | None) -> bool:
        if self._compaction is not None:
            self._compaction.close()
        if self._snapshots is not None:
            self._snapshots.close()
        self._read_ahead.close()
        log = self.controller.driver.log
        try:
            log.close(clean=high_watermarks is not None)
        except (DiskError, LogOffline) as problem:
            self._report("the metadata log could not be closed", reason=str(problem))
        clean = False
        try:
            clean = self._logs.close(broker_epoch=self.broker_epoch, high_watermarks=high_watermarks)
        except DiskError as problem:
            self._report("the logs could not be marked as closed", reason=str(problem))
        self._disk.close()
        return clean

    def _abandon(self) -> None:
        """The start failed: give back what was taken."""
        for bound in self.bound:
            bound.socket.close()
        self._disk.close()
