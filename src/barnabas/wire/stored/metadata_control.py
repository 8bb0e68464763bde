"""Records of `__cluster_metadata`: features, producer ids, transactions of the log itself."""

from typing import Annotated

from barnabas.wire.schema import Message, Tag, int8, int16, int32, int64


class AbortTransactionRecord(Message):
    versions = "0-0"
    flexible = "0+"

    reason: Annotated[str | None, Tag(0)] = None


class BeginTransactionRecord(Message):
    versions = "0-0"
    flexible = "0+"

    name: Annotated[str | None, Tag(0)] = None


class EndTransactionRecord(Message):
    versions = "0-0"
    flexible = "0+"


class FeatureLevelRecord(Message):
    versions = "0-0"
    flexible = "0+"

    name: str = ""
    feature_level: int16 = 0


class NoOpRecord(Message):
    versions = "0-0"
    flexible = "0+"


class ProducerIdsRecord(Message):
    versions = "0-0"
    flexible = "0+"

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    next_producer_id: int64 = 0


class ZkMigrationStateRecord(Message):
    versions = "0-0"
    flexible = "0+"

    zk_migration_state: int8 = 0
