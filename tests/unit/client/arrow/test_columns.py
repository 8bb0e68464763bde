"""Fetched bytes to Arrow columns: what is taken, what is left out, what is refused, and that both collectors agree."""

from __future__ import annotations

import platform
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.arrow import columns
from barnabas.client.arrow.columns import ColumnsRead, arrow_schema, read_columns
from barnabas.client.wire.data import Fetched
from barnabas.client.wire.decoding import decode
from barnabas.client.wire.errors import ProtocolError
from barnabas.model.ids import TopicPartition
from barnabas.wire import batch
from barnabas.wire.batch import CorruptBatch, InvalidRecord, UnsupportedCodec, UnsupportedMagic
from barnabas.wire.compression import Codec, DecompressionError
from barnabas.wire.records import Record, encode_batch, encode_end_marker

PLACE = TopicPartition("orders", 3)
END = 2**62
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ERRORS = (InvalidRecord, CorruptBatch, UnsupportedMagic, UnsupportedCodec, DecompressionError, ProtocolError)


@pytest.fixture(params=[True, False], ids=["native", "python"])
def twin(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param and not columns.NATIVE_AVAILABLE:
        pytest.skip("the extension was not built")
    before = columns.NATIVE
    columns.use(request.param)
    yield
    columns.use(before)


def fetched(*parts: bytes, aborted: Sequence[tuple[int, int]] = ()) -> Fetched:
    return Fetched(PLACE, 0, 0, 0, 0, memoryview(b"".join(parts)), tuple(aborted))


def read(data: Fetched, start: int = 0, stop: int = END, **named: Any) -> ColumnsRead:
    options = {"headers": True, "read_committed": True} | named
    found = read_columns(data, start, stop, **options)
    if found.batch is not None:
        found.batch.validate(full=True)
    return found


def both(data: Fetched, start: int, stop: int, **named: Any) -> list[Any]:
    """What the two collectors say, or refuse."""
    answers: list[Any] = []
    before = columns.NATIVE
    for native in (True, False):
        columns.use(native)
        try:
            answers.append(read(data, start, stop, **named))
        except ERRORS as error:
            answers.append((type(error), str(error)))
        finally:
            columns.use(before)
    return answers


def rows(found: ColumnsRead) -> list[dict[str, Any]]:
    return [] if found.batch is None else found.batch.to_pylist()


def offsets(found: ColumnsRead) -> list[int]:
    return [row["offset"] for row in rows(found)]


def record(offset: int, value: bytes | None = b"v", **named: Any) -> Record:
    return Record(offset, 1_700_000_000_000 + offset, value=value, **named)


def plain(base: int, count: int, **named: Any) -> bytes:
    return encode_batch([record(base + i) for i in range(count)], base_offset=base, **named)


def with_right_checksum(data: bytes) -> bytes:
    whole = bytearray(data)
    batch.restamp(whole, 0)
    return bytes(whole)


@pytest.mark.usefixtures("twin")
class TestColumns:
    def test_all_columns(self) -> None:
        kept = Record(5, 1_700_000_000_123, b"key", b"value", (("a", b"x"), ("ü", None), ("a", b"")))
        bare = Record(6, 0)
        found = read(fetched(encode_batch([kept, bare], base_offset=5)), 5)
        assert found.next_offset == 7
        assert found.batch is not None
        assert found.batch.schema.equals(arrow_schema(headers=True))
        constant = {"topic": "orders", "partition": 3, "timestampType": 0}
        headers = [{"key": "a", "value": b"x"}, {"key": "ü", "value": None}, {"key": "a", "value": b""}]
        time = EPOCH + timedelta(milliseconds=1_700_000_000_123)
        assert rows(found) == [
            {"key": b"key", "value": b"value", "offset": 5, "timestamp": time, "headers": headers} | constant,
            {"key": None, "value": None, "offset": 6, "timestamp": EPOCH, "headers": None} | constant,
        ]

    def test_without_headers(self) -> None:
        found = read(fetched(encode_batch([record(0, headers=(("a", b"b"),))])), headers=False)
        assert found.batch is not None
        assert found.batch.schema.equals(arrow_schema(headers=False))

    def test_nothing_fetched(self) -> None:
        assert read(fetched(), 7) == ColumnsRead(None, 7)

    @pytest.mark.parametrize("codec", list(Codec))
    def test_codecs(self, codec: Codec) -> None:
        found = read(fetched(plain(0, 50, codec=codec), plain(50, 50, codec=codec)), 10, 90)
        assert offsets(found) == list(range(10, 90))
        assert found.next_offset == 90

    def test_log_append_time(self) -> None:
        found = read(fetched(plain(0, 2, log_append_time=1_800_000_000_000)))
        assert [(row["timestampType"], row["timestamp"].year) for row in rows(found)] == [(1, 2027)] * 2

    def test_timestamps_that_microseconds_cannot_hold_are_clamped(self) -> None:
        found = read(fetched(encode_batch([Record(0, 2**63 - 1), Record(1, -1)])))
        assert found.batch is not None
        numbers = found.batch.column("timestamp").cast(pa.int64()).to_pylist()
        assert numbers == [(2**63 - 1) // 1000 * 1000, -1000]

    def test_header_keys_that_are_no_utf8_become_readable(self) -> None:
        found = read(fetched(encode_batch([record(0, headers=(("a\udcff", b"x"), ("é", b"y")))])))
        assert [header["key"] for header in rows(found)[0]["headers"]] == ["a�", "é"]

    def test_compacted_batch(self) -> None:
        data = encode_batch([record(3), record(8)], base_offset=0, last_offset=20)
        assert offsets(read(fetched(data), 2)) == [3, 8]
        assert read(fetched(data), 2).next_offset == 21
        assert read(fetched(data), 9) == ColumnsRead(None, 21)
        assert read(fetched(data), 9, 15) == ColumnsRead(None, 15)

    def test_batch_without_records(self) -> None:
        data = encode_batch([], base_offset=4, last_offset=9)
        assert read(fetched(data), 4) == ColumnsRead(None, 10)

    def test_a_range_ends_within_a_gap(self) -> None:
        assert read(fetched(plain(100, 5)), 7, 20) == ColumnsRead(None, 20)

    def test_batches_before_the_start_are_passed_over_unread(self) -> None:
        damaged = bytearray(plain(0, 3))
        damaged[-1] ^= 1
        assert offsets(read(fetched(bytes(damaged), plain(3, 3)), 4)) == [4, 5]

    def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(self) -> None:
        second = plain(3, 3)
        for size in (1, batch.HEADER_SIZE - 1, batch.HEADER_SIZE, len(second) - 1):
            found = read(fetched(plain(0, 3), second[:size]))
            assert (offsets(found), found.next_offset) == ([0, 1, 2], 3)

    def test_not_one_whole_batch(self) -> None:
        with pytest.raises(ProtocolError, match=r"orders-3: \d+ bytes at offset 0 hold no whole batch"):
            read(fetched(plain(0, 3)[:-1]))

    def test_what_does_not_fit_is_left_for_the_next_fetch(self) -> None:
        data = fetched(plain(0, 10), plain(10, 10), plain(20, 10, codec=Codec.GZIP))
        first = read(data, 0, max_bytes=120)
        assert (offsets(first), first.next_offset) == (list(range(10)), 10)
        second = read(data, 10, max_bytes=120)
        assert (offsets(second), second.next_offset) == (list(range(10, 20)), 20)
        assert offsets(read(data, 20, max_bytes=120)) == list(range(20, 30))


@pytest.mark.usefixtures("twin")
class TestTransactions:
    def data(self, *, codec: Codec = Codec.NONE) -> Fetched:
        mine = {"producer_id": 7, "producer_epoch": 0, "transactional": True, "codec": codec}
        other = {"producer_id": 8, "producer_epoch": 0, "transactional": True, "codec": codec}
        end = {"coordinator_epoch": 0, "producer_epoch": 0, "timestamp": 0}
        return fetched(
            plain(0, 2, base_sequence=0, **mine),
            plain(2, 2),
            plain(4, 2, base_sequence=0, **other),
            encode_end_marker(commit=False, producer_id=7, base_offset=6, **end),
            plain(7, 2, base_sequence=2, **mine),
            encode_end_marker(commit=True, producer_id=8, base_offset=9, **end),
            encode_end_marker(commit=True, producer_id=7, base_offset=10, **end),
            aborted=[(7, 0)],
        )

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_aborted_records_are_left_out(self, codec: Codec) -> None:
        found = read(self.data(codec=codec))
        assert (offsets(found), found.next_offset) == ([2, 3, 4, 5, 7, 8], 11)

    def test_uncommitted_reads_take_all_but_markers(self) -> None:
        found = read(self.data(), read_committed=False)
        assert (offsets(found), found.next_offset) == ([0, 1, 2, 3, 4, 5, 7, 8], 11)

    def test_markers_before_the_start_count(self) -> None:
        assert offsets(read(self.data(), 7)) == [7, 8]


@pytest.mark.usefixtures("twin")
class TestRefusals:
    def test_checksum(self) -> None:
        damaged = bytearray(plain(12, 3))
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatch, match=r"orders-3: the batch at offset 12 has a bad checksum"):
            read(fetched(plain(10, 2), bytes(damaged)), 10)

    def test_record(self) -> None:
        damaged = bytearray(plain(12, 3))
        damaged[-1] = 3  # one header that is not there, of the last record
        with pytest.raises(InvalidRecord, match=r"record 2: orders-3: the batch at offset 12: its number of headers"):
            read(fetched(with_right_checksum(bytes(damaged))), 12)

    def test_count(self) -> None:
        damaged = bytearray(plain(12, 3))
        damaged[57:61] = (2**31 - 1).to_bytes(4, "big")
        with pytest.raises(InvalidRecord, match=r"offset 12 claims 2147483647 records"):
            read(fetched(with_right_checksum(bytes(damaged))), 12)

    def test_offsets_that_go_back(self) -> None:
        damaged = bytearray(plain(12, 2))
        damaged[-5] = 0  # the second record's offset delta
        with pytest.raises(InvalidRecord, match="not above the one before"):
            read(fetched(with_right_checksum(bytes(damaged))), 12)

    def test_impossible_offsets(self) -> None:
        damaged = bytearray(plain(12, 2))
        damaged[0] = 0xFF
        with pytest.raises(CorruptBatch, match="impossible offsets"):
            read(fetched(bytes(damaged)), 12)

    def test_length(self) -> None:
        damaged = bytearray(plain(12, 2))
        damaged[8:12] = bytes(4)
        with pytest.raises(CorruptBatch, match=r"orders-3: the batch at offset 12: "):
            read(fetched(bytes(damaged)), 12)

    def test_old_formats(self) -> None:
        old = bytearray(plain(12, 2))
        old[16] = 1
        with pytest.raises(UnsupportedMagic) as caught:
            read(fetched(bytes(old)), 12)
        assert caught.value.__notes__ == ["orders-3: the batch at offset 12"]

    def test_codec(self) -> None:
        odd = bytearray(plain(12, 2))
        odd[22] |= 6
        with pytest.raises(UnsupportedCodec) as caught:
            read(fetched(with_right_checksum(bytes(odd))), 12)
        assert caught.value.__notes__ == ["orders-3: the batch at offset 12"]


texts = st.binary(max_size=200) | st.none()
header_keys = st.binary(max_size=6).map(lambda key: key.decode("utf-8", "surrogateescape"))
plain_records = st.builds(
    Record,
    st.just(-1),
    st.integers(-(2**44), 2**44),
    texts,
    texts,
    st.lists(st.tuples(header_keys, texts), max_size=3).map(tuple),
)


@st.composite
def fetches(draw: st.DrawFn) -> Fetched:
    base = draw(st.integers(0, 2**40))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        base += draw(st.integers(0, 3))
        found = draw(st.lists(plain_records, max_size=20))
        gaps = draw(st.lists(st.integers(0, 2), min_size=len(found), max_size=len(found)))
        placed = []
        offset = base
        for item, gap in zip(found, gaps, strict=True):
            offset += gap
            placed.append(item._replace(offset=offset))
            offset += 1
        last = max(offset - 1, base) + draw(st.integers(0, 2))
        parts.append(
            encode_batch(
                placed,
                base_offset=base,
                last_offset=last,
                codec=draw(st.sampled_from(Codec)),
                log_append_time=draw(st.none() | st.integers(0, 2**42)),
            )
        )
        base = last + 1
    return fetched(*parts)


def expected(data: Fetched, start: int, stop: int) -> list[Any]:
    found = decode(data, start)
    return [
        (row.offset, row.timestamp, row.key, row.value, [(key, value) for key, value in row.headers] or None)
        for row in found.records
        if start <= row.offset < stop
    ]


def readable(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@given(fetches(), st.integers(0, 10), st.integers(0, 100))
@settings(max_examples=200, deadline=None)
def test_as_the_decoder_of_records_has_it(data: Fetched, skipped: int, wanted: int) -> None:
    start = batch.read_header(data.records).base_offset + skipped
    stop = start + wanted
    if decode(data._replace(records=data.records), 0).next_offset <= start:
        return
    native, python = both(data, start, stop)
    assert native == python
    assert [
        (
            row["offset"],
            (row["timestamp"] - EPOCH) // timedelta(milliseconds=1),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]] if row["headers"] is not None else None,
        )
        for row in rows(native)
    ] == [
        (*row[:4], [(readable(key), value) for key, value in row[4]] if row[4] else None)
        for row in expected(data, start, stop)
    ]


def mutated(dice: random.Random) -> bytes:
    """A batch with a few bytes of its records changed and a checksum that fits again."""
    headers = (("h", b"x"), ("g", None)) if dice.random() < 0.5 else ()
    made = [
        record(i, dice.randbytes(dice.choice([0, 1, 5, 70, 200])), headers=headers) for i in range(dice.randint(1, 9))
    ]
    whole = bytearray(encode_batch(made, codec=dice.choice([Codec.NONE, Codec.NONE, Codec.LZ4])))
    for _ in range(dice.randint(0, 3)):
        place = dice.randrange(21 if dice.random() < 0.2 else batch.HEADER_SIZE, len(whole))
        whole[place] = dice.choice([dice.randrange(256), whole[place] ^ 1 << dice.randrange(8), 0xFF, 0x80, 1])
    return with_right_checksum(bytes(whole))


@pytest.mark.skipif(not columns.NATIVE_AVAILABLE, reason="the extension was not built")
@pytest.mark.parametrize("seed", range(20))
def test_damaged_records_are_refused_for_the_same_reason(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(100):
        data = fetched(mutated(dice), mutated(dice)[: dice.choice([None, dice.randint(0, 80)])])
        native, python = both(
            data, 0, dice.choice([END, 4]), headers=dice.random() < 0.8, max_bytes=dice.choice([END, 64])
        )
        assert native == python


@pytest.mark.skipif(not columns.NATIVE_AVAILABLE, reason="the extension was not built")
@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes(data: bytes) -> None:
    native, python = both(fetched(data), 0, END)
    assert native == python


def test_the_schema_is_sparks() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    convert = pytest.importorskip("pyspark.sql.pandas.types").to_arrow_schema
    header = types.StructType().add("key", "string").add("value", "binary")
    spark = types.StructType().add("key", "binary").add("value", "binary").add("topic", "string")
    spark = spark.add("partition", "integer").add("offset", "long").add("timestamp", "timestamp")
    spark = spark.add("timestampType", "integer")
    assert convert(spark, timezone="UTC").equals(arrow_schema(headers=False))
    assert convert(spark.add("headers", types.ArrayType(header)), timezone="UTC").equals(arrow_schema(headers=True))


FAULTS_OF_A_SECOND_ROUND = """
import resource
from barnabas.client.arrow.columns import keep_freed_memory
keep_freed_memory()
bytearray(16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(16 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is another library's business")
@pytest.mark.skipif(not columns.NATIVE_AVAILABLE, reason="the extension was not built")
def test_freed_memory_is_kept() -> None:
    program = [sys.executable, "-c", FAULTS_OF_A_SECOND_ROUND]
    told = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert int(told) < (16 << 20) / resource.getpagesize() / 4
