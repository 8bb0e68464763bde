"""Connection limits that can be changed while the broker runs (KIP-226)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.app.listeners import limits_by_address
from barnabas.model.broker_settings import BrokerSettings
from barnabas.net.listener import ConnectionLimits


def limit_connections(limits: ConnectionLimits, settings: BrokerSettings, descriptors: int) -> None:
    """Connections that are open stay open, whatever the limit."""
    limits.max_connections_per_ip = settings.max_connections_per_ip
    limits.max_connections = min(settings.max_connections, descriptors)


class AddressLimits:
    """max.connections.per.ip.overrides. Its names of hosts are looked up beside the loop, which may take seconds."""

    def __init__(
        self,
        limits: ConnectionLimits,
        settings: BrokerSettings,
        loop: asyncio.AbstractEventLoop,
        report: Callable[..., None],
    ) -> None:
        """At the start host names are resolved synchronously, so that a failure stops the start."""
        self._limits = limits
        self._loop = loop
        self._report = report
        self._wanted = settings.max_connections_per_ip_overrides
        limits.max_connections_per_ip_overrides = limits_by_address(self._wanted)

    def obey(self, settings: BrokerSettings) -> None:
        wanted = settings.max_connections_per_ip_overrides
        if wanted != self._wanted:
            self._wanted = wanted
            found = self._loop.run_in_executor(None, limits_by_address, wanted)
            found.add_done_callback(lambda future: self._found(wanted, future))

    def _found(self, wanted: str, found: asyncio.Future[dict[str, int]]) -> None:
        if found.cancelled() or wanted != self._wanted:  # another value has come since
            return
        problem = found.exception()
        if problem is None:
            self._limits.max_connections_per_ip_overrides = found.result()
        else:
            self._report("a setting was not taken", reason=str(problem))
