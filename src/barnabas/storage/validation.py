"""Validates batches before they are written: Kafka's checks and error codes, and recompression if the topic sets it.

The common case, a batch that is kept as the producer made it, takes one look at the header, one checksum and, if it is
uncompressed, one walk over the records in native code. Compressed records are decompressed, within bounds, only if the
topic recompresses or ``Validation.ALL`` is set.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.topic_settings import TopicSettings
from barnabas.storage.producer_state import Origin
from barnabas.wire import walk
from barnabas.wire.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    InvalidRecord,
    UnsupportedCodec,
    UnsupportedMagic,
    check_header,
    encode_header,
    read_header,
    restamp,
)
from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Codec, DecompressionError, compress
from barnabas.wire.records import Record, decode_batch, payload
from barnabas.wire.walk import RecordsSummary

MAX_DECOMPRESSED_BYTES = 100 << 20
"""What one batch may grow to when it is looked into."""

MAX_NAMED_RECORDS = 10_000
MAX_NAMED_BYTES = 16 << 20
"""The largest batch whose records are checked one by one, on the loop, to name the invalid ones."""

_ATTRIBUTES_AT = 21
"""From here on a batch is covered by its checksum."""

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Validation(Enum):
    """How much of a produced batch is checked, beyond its header, checksum and count."""

    HEADER = "header"
    RECORDS = "records"
    """The records of uncompressed batches."""
    ALL = "all"
    """Those of compressed batches too."""


class BatchRules:
    """A topic's settings as the append path needs them."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "compacts",
        "level",
        "log_append_time",
        "looks_into_compressed",
        "max_message_bytes",
        "may_rewrite",
        "walks",
    )

    def __init__(self, settings: TopicSettings, validation: Validation) -> None:
        self.max_message_bytes = settings.max_message_bytes
        self.compacts = settings.compacts
        self.log_append_time = settings.message_timestamp_type == "LogAppendTime"
        self.before_max_ms = settings.message_timestamp_before_max_ms
        self.after_max_ms = settings.message_timestamp_after_max_ms
        self.codec = _CODECS.get(settings.compression_type)  # None keeps what the producer chose
        self.level = _level(settings, self.codec)
        self.walks = validation is not Validation.HEADER or self.compacts
        self.may_rewrite = self.log_append_time or self.codec is not None
        self.looks_into_compressed = validation is Validation.ALL or self.codec is not None or self.compacts


def _level(settings: TopicSettings, codec: Codec | None) -> int | None:
    if codec is Codec.GZIP and settings.compression_gzip_level != -1:
        return settings.compression_gzip_level
    if codec is Codec.LZ4:
        return settings.compression_lz4_level
    return settings.compression_zstd_level if codec is Codec.ZSTD else None


def read_one_header(batch: memoryview) -> BatchHeader:
    """The header of a buffer that must hold exactly one batch."""
    try:
        header = read_header(batch, 0)
    except (CorruptBatch, UnsupportedMagic) as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    if header.batch_length + LOG_OVERHEAD != len(batch):
        is_cut = header.batch_length + LOG_OVERHEAD > len(batch)
        raise ApiError(
            ErrorCode.INVALID_RECORD, "the batch is cut short" if is_cut else "more than one batch for a partition"
        )
    return header


def check_produced(batch: memoryview, rules: BatchRules, now_ms: int) -> tuple[BatchHeader, int]:
    """Everything that is asked of a client's batch but its sequence: its header, and the largest timestamp in it."""
    found = walk.inspect(batch) if rules.walks else None
    if found is not None:
        fields, max_timestamp, min_timestamp, has_null_key = found
        header = tuple.__new__(BatchHeader, fields)
    if found is None or (rules.looks_into_compressed and header.attributes & CODEC_MASK):
        header = read_one_header(batch)
        max_timestamp, _, min_timestamp, has_null_key = _look_closely(batch, header, rules)
    elif len(batch) > rules.max_message_bytes:
        raise too_large(len(batch), rules.max_message_bytes)
    if has_null_key and rules.compacts:
        raise _without_keys(batch, header)
    if not rules.log_append_time and (
        max_timestamp > now_ms + rules.after_max_ms
        or -1 < min_timestamp < now_ms - rules.before_max_ms  # a timestamp of -1 is none, and passes
        or header.attributes & LOG_APPEND_TIME
    ):
        raise _wrong_times(batch, header, rules, now_ms, min_timestamp, max_timestamp)
    return header, max_timestamp


def _look_closely(batch: memoryview, header: BatchHeader, rules: BatchRules) -> RecordsSummary:
    """Check by check, each with its own answer."""
    if len(batch) > rules.max_message_bytes:
        raise too_large(len(batch), rules.max_message_bytes)
    if crc32c(batch[_ATTRIBUTES_AT:]) != header.crc:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch does not match")
    try:
        check_header(header)
        if not header.attributes & CODEC_MASK and rules.walks:
            return walk.check_payload(batch[HEADER_SIZE:], header.record_count, header.base_timestamp)
        if header.attributes & CODEC_MASK and rules.looks_into_compressed:
            return _check_compressed(batch, header)
    except InvalidRecord as error:
        records = [(error.index, error.reason)] if error.index >= 0 else []
        raise ApiError(error.code, str(error), records) from None
    except UnsupportedCodec as error:
        raise ApiError(error.code, str(error)) from None
    return RecordsSummary(header.max_timestamp, -1, header.base_timestamp, False)


def _without_keys(batch: memoryview, header: BatchHeader) -> ApiError:
    reason = "a compacted topic takes no record without a key"
    return ApiError(ErrorCode.INVALID_RECORD, reason, _named(batch, header, lambda record: record.key is None, reason))


def _wrong_times(
    batch: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int, oldest: int, latest: int
) -> ApiError:
    if header.attributes & LOG_APPEND_TIME:
        return ApiError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the log append time")

    def is_outside(record: Record) -> bool:
        time_ms = record.timestamp  # -1 is none, and passes
        return time_ms > now_ms + rules.after_max_ms or -1 < time_ms < now_ms - rules.before_max_ms

    reason = (
        f"the timestamps of the batch reach from {oldest} to {latest}, outside what "
        f"message.timestamp.before.max.ms and message.timestamp.after.max.ms allow at {now_ms}"
    )
    named = _named(batch, header, is_outside, "the timestamp is too far from the broker's time")
    return ApiError(ErrorCode.INVALID_TIMESTAMP, reason, named)


def _named(
    batch: memoryview, header: BatchHeader, is_wrong: Callable[[Record], bool], reason: str
) -> list[tuple[int, str]]:
    """The invalid records, so that a producer can send the others again; none if finding them takes too long."""
    if header.record_count > MAX_NAMED_RECORDS:
        return []
    try:
        records = decode_batch(batch, max_bytes=MAX_NAMED_BYTES)
    except (InvalidRecord, CorruptBatch, UnsupportedCodec, DecompressionError):
        return []
    return [(index, reason) for index, record in enumerate(records) if is_wrong(record)]


def _check_compressed(batch: memoryview, header: BatchHeader) -> RecordsSummary:
    try:
        records = payload(batch, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
    except DecompressionError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return walk.check_payload(records, header.record_count, header.base_timestamp)


def too_large(size: int, limit: int) -> ApiError:
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {limit}")


def rewrite(batch: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int, max_timestamp: int) -> memoryview:
    """The batch as the topic wants it: recompressed, stamped with the append time, or with its true maximum."""
    if rules.codec is not None and rules.codec != header.attributes & CODEC_MASK and not header.attributes & CONTROL:
        batch = recompress(batch, header, rules.codec, rules.level)
        if len(batch) > rules.max_message_bytes:
            raise too_large(len(batch), rules.max_message_bytes)
        header = read_header(batch, 0)
    if rules.log_append_time:
        restamp(batch, 0, attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    elif max_timestamp != header.max_timestamp:
        restamp(batch, 0, max_timestamp=max_timestamp)
    return batch


def recompress(batch: memoryview, header: BatchHeader, codec: Codec, level: int | None) -> memoryview:
    try:
        records = payload(batch, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
    except DecompressionError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    body = compress(codec, records, level)
    attributes = header.attributes & ~CODEC_MASK | codec
    changed = header._replace(attributes=attributes, batch_length=HEADER_SIZE - LOG_OVERHEAD + len(body))
    whole = memoryview(bytearray(encode_header(changed) + body))
    restamp(whole, 0)
    return whole


def needs_rewrite(header: BatchHeader, rules: BatchRules, origin: Origin) -> bool:
    """Asked where ``rules.may_rewrite`` and the batch's timestamps are as its header says."""
    if rules.log_append_time and origin is not Origin.RAFT_LEADER:
        return True
    return rules.codec is not None and rules.codec != header.attributes & CODEC_MASK
