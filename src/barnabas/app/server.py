"""A node with its listeners, on the event loop of one process."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.app import adoption
from barnabas.app.clock import LoopClock
from barnabas.app.connection_limits import AddressLimits, limit_connections
from barnabas.app.listeners import BoundListener, bind, bind_controller, controller_endpoint, listen
from barnabas.app.network import PeerNetwork
from barnabas.app.offload import Worker
from barnabas.app.read_ahead import ReadAhead
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.errors import StartError
from barnabas.net.listener import ConnectionLimits, Listener
from barnabas.net.peer import PeerLimits
from barnabas.node.node import Node, Report
from barnabas.runtime.pipeline import Pipeline


class Server:
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
        self.listeners: list[Listener] = []
        self.bound: list[BoundListener] = []
        """Those for clients."""
        self._bound_controller: BoundListener | None = None
        self._loop = loop
        self._report = report
        self._descriptors = descriptors
        self._read_ahead = ReadAhead(loop)
        self._stopped = False
        self.limits = _connection_limits(settings)
        limit_connections(self.limits, settings, descriptors)
        self._address_limits: AddressLimits | None = None
        generator = random.Random(os.urandom(16))
        self._network = PeerNetwork(
            loop,
            client_id=lambda: f"broker-{self.settings.id}",
            random=generator,
            limits=PeerLimits(max_frame_bytes=settings.socket_request_max_bytes),
            report=report,
        )
        self.node = Node(
            settings=settings,
            static_settings=static_settings,
            directories=[os.path.abspath(path) for path in settings.data_directories],
            disk=disk,
            clock=LoopClock(loop),
            random=generator,
            workers=lambda name: Worker(loop, name),
            network=self._network,
            report=report,
            on_failure=on_failure,
            on_settings=self._on_settings,
            drop_connections=self._drop_connections,
            check_metadata=adoption.check_served,
        )

    @property
    def settings(self) -> BrokerSettings:
        return self.node.settings

    # Starting

    async def start(self) -> None:
        """Raises StartError for what a person can mend."""
        try:
            self._address_limits = AddressLimits(self.limits, self.settings, self._loop, self._report)
            self.bound = bind(self.settings) if self.node.is_broker else []
            self._bound_controller = bind_controller(self.settings) if self.node.is_controller else None
            endpoints = [listener.advertised for listener in self.bound]
            self.node.open(endpoints, controller_endpoint(self.settings, self._bound_controller))
            if self._bound_controller is not None and self.node.controller_pipeline is not None:
                self._serve(self._bound_controller, self.node.controller_pipeline)
            await self._start_node()
            for bound in self.bound:
                self._serve(bound, self.node.pipeline)
        except BaseException:
            self._abandon()
            raise

    async def _start_node(self) -> None:
        started: asyncio.Future[None] = self._loop.create_future()

        def done(problem: StartError | None) -> None:
            if started.done():
                return
            if problem is None:
                started.set_result(None)
            else:
                started.set_exception(problem)

        self.node.start(done)
        await started

    def _serve(self, bound: BoundListener, pipeline: Pipeline) -> None:
        listen(bound, self.settings.socket_listen_backlog_size)
        listener = Listener(
            name=bound.address.name,
            sock=bound.socket.socket,
            loop=self._loop,
            pipeline=pipeline,
            limits=self.limits,
            read_ahead=self._read_ahead,
            log=self._report,
            sendfile=hasattr(os, "sendfile") and not self.settings.portable,
        )
        listener.start()
        self.listeners.append(listener)

    def _on_settings(self, settings: BrokerSettings) -> None:
        limit_connections(self.limits, settings, self._descriptors)
        if self._address_limits is not None:
            self._address_limits.obey(settings)

    def _drop_connections(self) -> None:
        names = {bound.address.name for bound in self.bound}
        for listener in self.listeners:
            if listener.name in names:
                listener.drop_connections()

    # Stopping

    async def stop(self) -> bool:
        """A clean stop; False where the disk did not let it be clean (``Node.stop``)."""
        if self._stopped:
            return True
        self._stopped = True
        if self.node.is_alone:
            for listener in self.listeners:
                listener.stop_accepting()
                listener.halt()
        stopped: asyncio.Future[bool] = self._loop.create_future()
        self.node.stop(self._end_connections, stopped.set_result)
        return await stopped

    def abort(self) -> None:
        """Stops at once, as a crash would: nothing is marked clean."""
        self._stopped = True
        self._end_connections()
        self.node.abort()

    def _end_connections(self) -> None:
        for listener in self.listeners:
            listener.close()
        self._read_ahead.close()
        self._network.close()

    def _abandon(self) -> None:
        """The start failed: gives back what was taken."""
        self._end_connections()
        for bound in (*self.bound, *filter(None, [self._bound_controller])):
            bound.socket.close()
        self.node.abandon()


def _connection_limits(settings: BrokerSettings) -> ConnectionLimits:
    return ConnectionLimits(
        max_frame_bytes=settings.socket_request_max_bytes,
        max_idle_ms=settings.connections_max_idle_ms,
        frame_timeout_ms=settings.frame_timeout_ms,
        max_buffered_bytes=settings.queued_max_request_bytes if settings.queued_max_request_bytes > 0 else 1 << 62,
    )
