"""Arrow columns to record batches: what is written is what is read, and the twins write the same bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.arrow import columns
from barnabas.client.arrow.columns import read_columns
from barnabas.client.arrow.encoding import BatchEncoder, EncodedBatch, RowRefused, rows_of
from barnabas.client.wire.data import Fetched
from barnabas.model.ids import TopicPartition
from barnabas.wire import batch as batches
from barnabas.wire.batch import read_header
from barnabas.wire.compression import Codec
from barnabas.wire.murmur2 import partition_for_key
from barnabas.wire.records import Record, decode_batch

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(params=[True, False], ids=["native", "python"])
def twin(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param and not columns.NATIVE_AVAILABLE:
        pytest.skip("the extension was not built")
    before = columns.NATIVE
    columns.use(request.param)
    yield
    columns.use(before)


def table(**given: Any) -> pa.RecordBatch:
    kinds = {"headers": HEADERS, "partition": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}
    arrays = {name: pa.array(values, kinds.get(name, pa.binary())) for name, values in given.items()}
    return pa.record_batch(list(arrays.values()), list(arrays))


def encode(*tables: pa.RecordBatch, partitions: int = 1, now_ms: int = NOW_MS, **named: Any) -> list[EncodedBatch]:
    encoder = BatchEncoder("orders", partitions, **named)
    found = [batch for each in tables for batch in encoder.append(rows_of(each), now_ms)]
    found += encoder.flush()
    for index, batch in enumerate(found):
        batch.stamp(77, 3, index)
        assert batches.check_crc(batch.data, 0, len(batch.data))
    return found


def records(found: list[EncodedBatch]) -> list[Record]:
    return [record for batch in found for record in decode_batch(batch.data)]


@pytest.mark.usefixtures("twin")
class TestRecords:
    def test_all_fields(self) -> None:
        headers = [[{"key": "a", "value": b"x"}, {"key": "ü", "value": None}], [], None]
        times = [NOW_MS * 1000 + 999, None, 5000]
        given = table(key=[b"k", None, b""], value=[b"v", b"", None], headers=headers, timestamp=times)
        (batch,) = encode(given)
        assert records([batch]) == [
            Record(0, NOW_MS, b"k", b"v", (("a", b"x"), ("ü", None))),
            Record(1, NOW_MS, None, b""),
            Record(2, 5, b"", None),
        ]
        header = read_header(batch.data)
        assert (header.base_timestamp, header.max_timestamp, header.last_offset_delta) == (NOW_MS, NOW_MS, 2)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 0)
        assert batch.record_count == header.record_count == 3

    def test_values_alone_and_as_text(self) -> None:
        given = pa.record_batch([pa.array(["grüße", None]), pa.array(["k", "l"], pa.large_string())], ["value", "key"])
        assert [(row.key, row.value) for row in records(encode(given))] == [(b"k", "grüße".encode()), (b"l", None)]

    def test_slices(self) -> None:
        headers = [[{"key": str(i), "value": b"%d" % i}] * (i % 3) for i in range(40)]
        whole = table(key=[b"k%d" % i for i in range(40)], value=[None, b"v"] * 20, headers=headers)
        assert [record._replace(offset=0) for record in records(encode(whole.slice(13, 20)))] == [
            record._replace(offset=0) for record in records(encode(whole))[13:33]
        ]

    @pytest.mark.parametrize("codec", list(Codec))
    def test_codecs(self, codec: Codec) -> None:
        given = table(value=[b"value %d" % i for i in range(1000)])
        (batch,) = encode(given, codec=codec)
        assert read_header(batch.data).codec is codec
        assert [row.value for row in records([batch])] == given.column(0).to_pylist()

    def test_nothing(self) -> None:
        assert encode(table(value=[])) == []

    def test_read_back_as_columns(self) -> None:
        given = table(key=[b"a", None], value=[None, b"b"], headers=[None, [{"key": "h", "value": None}]])
        (batch,) = encode(given)
        fetched = Fetched(TopicPartition("orders", 0), 0, 0, 0, 0, batch.data, ())
        found = read_columns(fetched, 0, 9, headers=True, read_committed=False).batch
        assert found is not None
        for name in given.schema.names:
            assert found.column(name).to_pylist() == given.column(name).to_pylist()

    def test_as_kafka_python_reads_it(self) -> None:
        kafka = pytest.importorskip("kafka.record.default_records")
        given = table(key=[b"a", None], value=[None, b"b" * 300], headers=[None, [{"key": "h", "value": b"x"}]])
        (batch,) = encode(given, codec=Codec.GZIP)
        reader = kafka.DefaultRecordBatch(bytes(batch.data))
        assert reader.validate_crc()
        found = [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in reader]
        assert found == [(0, NOW_MS, b"a", None, []), (1, NOW_MS, None, b"b" * 300, [("h", b"x")])]


@pytest.mark.usefixtures("twin")
class TestBatches:
    def test_no_batch_is_larger_than_asked(self) -> None:
        values = [bytes(random.Random(i).randint(0, 300)) for i in range(500)]
        found = encode(table(value=values[:250]), table(value=values[250:]), max_batch_bytes=2000)
        assert [row.value for row in records(found)] == values
        assert max(len(batch.data) for batch in found) <= 2000
        assert min(len(batch.data) for batch in found[:-1]) > 1600

    def test_a_record_that_is_larger_goes_alone(self) -> None:
        found = encode(table(value=[b"a", b"b" * 5000, b"c"]), max_batch_bytes=1000)
        assert [batch.record_count for batch in found] == [1, 1, 1]

    def test_much_in_many_open_batches_is_handed_over(self) -> None:
        encoder = BatchEncoder("orders", 100, max_open_bytes=50_000)
        keys = [b"%d" % i for i in range(1000)]
        assert encoder.append(rows_of(table(key=keys, value=[b""] * 1000)), NOW_MS) == []
        found = encoder.append(rows_of(table(key=keys, value=[b"v" * 50] * 1000)), NOW_MS)
        assert len({batch.partition for batch in found}) == len(found) == 100
        assert encoder.flush() == []


@pytest.mark.usefixtures("twin")
class TestPartitions:
    def test_keys_choose_as_kafka_does(self) -> None:
        keys = [bytes(random.Random(i).randbytes(i % 17)) for i in range(300)]
        found = encode(table(key=keys, value=keys), partitions=7)
        assert [batch.partition for batch in found] == list(range(7))
        for batch in found:
            wanted = [key for key in keys if partition_for_key(key, 7) == batch.partition]
            assert [row.key for row in records([batch])] == wanted

    def test_a_rows_own_partition_comes_first(self) -> None:
        given = table(key=[b"k"] * 4 + [None], value=[b"v"] * 5, partition=[2, None, 0, 2, 1])
        found = encode(given, partitions=3)
        by_key = partition_for_key(b"k", 3)
        wanted = sorted([2, by_key, 0, 2, 1])
        assert sorted(p for batch in found for p in [batch.partition] * batch.record_count) == wanted

    def test_rows_without_a_key_go_on_when_a_batch_is_full(self) -> None:
        found = encode(table(value=[b"v" * 100] * 100), partitions=3, max_batch_bytes=1000, sticky=1)
        assert [batch.partition for batch in found[:6]] == [1, 2, 0, 1, 2, 0]
        assert {batch.record_count for batch in found[:-1]} == {8}

    def test_no_such_partition(self) -> None:
        for bad in (3, -1):
            with pytest.raises(RowRefused, match=rf"column 'partition': {bad} is no partition of topic orders, .* 3"):
                encode(table(value=[b"a", b"b"], partition=[0, bad]), partitions=3)

    def test_header_without_a_key(self) -> None:
        for bad in ([{"key": None, "value": b"x"}], [None]):
            with pytest.raises(RowRefused, match="column 'headers': a header without a key"):
                encode(table(value=[b"a", b"b"], headers=[None, bad]))

    def test_time_before_1970(self) -> None:
        with pytest.raises(RowRefused, match="column 'timestamp'"):
            encode(table(value=[b"a"], timestamp=[-1]))


texts = st.binary(max_size=40) | st.none()
headers = st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": texts}), max_size=2) | st.none()
rows = st.tuples(texts, texts, headers, st.none() | st.integers(0, 2**50), st.none() | st.integers(0, 4))


@pytest.mark.skipif(not columns.NATIVE_AVAILABLE, reason="the extension was not built")
@given(st.lists(rows, min_size=1, max_size=60), st.sampled_from(Codec), st.integers(100, 2000), st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_the_twins_write_the_same_bytes(given: list[Any], codec: Codec, size: int, sticky: int) -> None:
    names = ("key", "value", "headers", "timestamp", "partition")
    whole = table(**{name: [row[i] for row in given] for i, name in enumerate(names)})
    answers = []
    before = columns.NATIVE
    for native in (True, False):
        columns.use(native)
        try:
            found = encode(whole, whole.slice(1), partitions=5, codec=codec, max_batch_bytes=size, sticky=sticky)
            answers.append([(batch.partition, batch.record_count, bytes(batch.data)) for batch in found])
        finally:
            columns.use(before)
    assert answers[0] == answers[1]


@pytest.mark.skipif(columns.native_module is None, reason="the extension was not built")
def test_damaged_memory_is_refused() -> None:
    """Nothing that Arrow makes looks like this; the encoder must not read beyond it all the same."""
    assert columns.native_module is not None
    dice = random.Random(5)
    for _ in range(3000):
        encoder = columns.native_module.Encoder(3, 0, 500)

        def column(width: int) -> Any:
            numbers = b"".join(
                dice.choice([0, 1, 5, 30, -1, 2**31 - 1]).to_bytes(4, "little", signed=True) for _ in range(12)
            )
            valid = dice.choice([None, dice.randbytes(2)])
            data = dice.choice([None, dice.randbytes(dice.randint(0, 40))])
            return dice.choice(
                [None, (valid, numbers, data if width else None, dice.randint(0, 3), dice.randint(0, 9))]
            )

        try:
            encoder.append(dice.randint(0, 8), 1, *(column(w) for w in (1, 1, 0, 0, 0, 1, 1)))
            encoder.flush()
        except ValueError:
            pass
