"""The fast check of common batches and the full validation must agree."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.model.errors import ApiError
from barnabas.storage.validation import BatchRules, Validation, check_produced
from barnabas.wire import walk
from barnabas.wire.checksum import crc32c
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, encode_batch
from tests.unit.storage.kit import NOW, small

pytestmark = pytest.mark.skipif(not walk.NATIVE_AVAILABLE, reason="the native walks were not built")

RULES = [
    BatchRules(small(max_message_bytes=1000), Validation.RECORDS),
    BatchRules(small(), Validation.ALL),
    BatchRules(small(), Validation.HEADER),
    BatchRules(small(cleanup_policy=("compact",)), Validation.RECORDS),
    BatchRules(small(message_timestamp_type="LogAppendTime"), Validation.RECORDS),
]


@st.composite
def produced(draw: st.DrawFn) -> bytes:
    """A batch of some kind, perhaps changed somewhere, perhaps with the checksum made good again."""
    keys = st.one_of(st.none(), st.binary(max_size=3))
    times = st.sampled_from([NOW, NOW - 5, NOW + 10**10, -1, 0])
    records = [
        Record(-1, draw(times), draw(keys), draw(st.binary(max_size=20))) for _ in range(draw(st.integers(1, 4)))
    ]
    producer = draw(st.sampled_from([{}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3}]))
    data = bytearray(encode_batch(records, codec=draw(st.sampled_from(Codec)), **producer))
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        data[17:21] = crc32c(data[21:]).to_bytes(4)
    cut = draw(st.sampled_from([0, 0, 0, 1, 40]))
    return bytes(data[: len(data) - cut]) + draw(st.sampled_from([b"", b"", b"x"]))


def outcome(data: bytes, rules: BatchRules, *, native: bool) -> object:
    before = walk.NATIVE
    walk.use(native)
    try:
        return check_produced(memoryview(bytearray(data)), rules, NOW)
    except ApiError as problem:
        return problem.code, problem.message
    finally:
        walk.use(before)


@settings(max_examples=1000, deadline=None)
@given(data=produced(), rules=st.sampled_from(RULES))
@example(data=b"", rules=RULES[0])
@example(data=encode_batch([Record(-1, NOW, b"k", b"x" * 2000)]), rules=RULES[0])
def test_both_looks_agree(data: bytes, rules: BatchRules) -> None:
    assert outcome(data, rules, native=True) == outcome(data, rules, native=False)


def test_the_usual_batch_needs_one_look_only() -> None:
    for codec in Codec:
        assert walk._native.inspect(encode_batch([Record(-1, NOW, b"k", b"v")], codec=codec)) is not None
