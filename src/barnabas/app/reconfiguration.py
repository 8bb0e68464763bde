"""Broker settings that are changed while the broker runs (KIP-226).

Those that give topics their defaults reach the logs with every image (``runtime/partitions``); this is for the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from barnabas.app.errors import StartError
from barnabas.app.listeners import limits_by_address
from barnabas.core.metadata.configs import DYNAMIC_SOURCES, origins
from barnabas.core.metadata.image import MetadataImage
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.settings import InvalidSetting, described
from barnabas.net.listener import ConnectionLimits
from barnabas.storage.log_directory import LogManager


def in_force(given: BrokerSettings, image: MetadataImage, static: Mapping[str, str]) -> BrokerSettings:
    """The settings that a broker was started with, and over them those that were set since."""
    changed = {}
    for name, entry in described(BrokerSettings).values():
        first = origins(entry, given.id, image, None, static)[0]
        if entry.dynamic and first.source in DYNAMIC_SOURCES:
            with contextlib.suppress(InvalidSetting):  # a folder of Kafka's may hold what we do not take
                changed[name] = entry.parse(first.text)
    return replace(given, **changed)


def limit_connections(limits: ConnectionLimits, settings: BrokerSettings, descriptors: int) -> None:
    """Connections that are open stay open, whatever the limit."""
    limits.max_connections_per_ip = settings.max_connections_per_ip
    limits.max_connections = min(settings.max_connections, descriptors)


def limit_addresses(
    limits: ConnectionLimits, before: BrokerSettings, settings: BrokerSettings, report: Callable[..., None]
) -> None:
    """Only where they have changed: to look a name up may take a while."""
    if settings.max_connections_per_ip_overrides != before.max_connections_per_ip_overrides:
        try:
            limits.max_connections_per_ip_overrides = limits_by_address(settings)
        except StartError as problem:
            report("a setting was not taken", reason=str(problem))


def expire_producers(logs: LogManager, settings: BrokerSettings) -> None:
    logs.options.producer_id_expiration_ms = settings.producer_id_expiration_ms
    for log in logs:
        log.producer_id_expiration_ms = settings.producer_id_expiration_ms
