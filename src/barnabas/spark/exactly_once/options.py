"""The options of the sink that say how rows are delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.spark.client_settings import GivenOptions, SparkOptionError, whole_number

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
DELIVERY_MODES = (AT_LEAST_ONCE, EXACTLY_ONCE)
DELIVERY_NAMES = ("deliveryMode", "applicationId", "batchId", "sourceColumn")

DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The most that Kafka's brokers allow by default. A transaction is open from a task's first row to the batch's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOptions:
    is_exactly_once: bool = False
    application_id: str | None = None
    batch_id: int | None = None
    source_column: str | None = None
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS


def parse_delivery(given: GivenOptions, kafka: Mapping[str, str], acks: str) -> DeliveryOptions:
    """Raises SparkOptionError."""
    found = DeliveryOptions(
        is_exactly_once=given.choice("deliveryMode", DELIVERY_MODES) == EXACTLY_ONCE,
        application_id=given.text("applicationId") or None,
        batch_id=given.number("batchId", None, smallest=0),
        source_column=given.text("sourceColumn") or None,
        transaction_timeout_ms=whole_number(
            kafka, "transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS, smallest=1
        ),
    )
    if not found.is_exactly_once:
        for name in ("applicationId", "batchId", "sourceColumn"):
            if name in given:
                raise SparkOptionError(f"{name} is for deliveryMode exactly-once")
        return found
    if acks not in ("all", "-1"):
        raise SparkOptionError(f"kafka.acks is {acks}: with deliveryMode exactly-once only all is right")
    if kafka.get("enable.idempotence", "true").strip().lower() == "false":
        raise SparkOptionError("kafka.enable.idempotence is false: deliveryMode exactly-once needs it")
    if found.source_column is not None and found.application_id is None:
        raise SparkOptionError("sourceColumn needs an applicationId, under which offsets outlive the checkpoint")
    return found


def check_kind(options: DeliveryOptions, *, streaming: bool) -> None:
    """What only a stream, or only a batch write, can have. Raises SparkOptionError."""
    if not options.is_exactly_once:
        return
    if streaming and options.batch_id is not None:
        raise SparkOptionError(f"batchId is {options.batch_id}: a stream numbers its batches itself")
    if not streaming and (options.batch_id is None) != (options.application_id is None):
        raise SparkOptionError(
            "applicationId and batchId go together in a batch write: a repeated write is known by both"
        )
