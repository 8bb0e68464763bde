"""Broker settings that can be changed while the broker runs (KIP-226).

Defaults of topic settings reach the logs with every image (``runtime/partitions``); this module handles the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from barnabas.core.metadata.configs import DYNAMIC_SOURCES, origins
from barnabas.core.metadata.image import MetadataImage
from barnabas.model.broker_settings import BrokerSettings
from barnabas.model.settings import InvalidSetting, described
from barnabas.storage.log_manager import LogManager


def in_force(given: BrokerSettings, image: MetadataImage, static: Mapping[str, str]) -> BrokerSettings:
    """The settings that a broker was started with, and over them those that were set since."""
    changed = {}
    for name, entry in described(BrokerSettings).values():
        first = origins(entry, given.id, image, None, static)[0]
        if entry.dynamic and first.source in DYNAMIC_SOURCES:
            with contextlib.suppress(InvalidSetting):  # a folder of Kafka's may hold what we do not take
                changed[name] = entry.parse(first.text)
    return replace(given, **changed)


def expire_producers(logs: LogManager, settings: BrokerSettings) -> None:
    logs.options.producer_id_expiration_ms = settings.producer_id_expiration_ms
    for log in logs:
        log.producer_id_expiration_ms = settings.producer_id_expiration_ms
