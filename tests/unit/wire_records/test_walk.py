"""The walks in Python and in C: what they find and refuse, and that they agree."""

import random
import threading
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import batch, records, walk
from barnabas.wire.batch import CorruptBatch, InvalidRecord
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record
from barnabas.wire.walk import Reason, ScannedBatch, ScanState, Stop

TWINS = [True, False]
needs_native = pytest.mark.skipif(not walk.NATIVE_AVAILABLE, reason="the extension was not built")


@pytest.fixture(params=TWINS, ids=["native", "python"])
def twin(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param and not walk.NATIVE_AVAILABLE:
        pytest.skip("the extension was not built")
    before = walk.NATIVE
    walk.use(request.param)
    yield
    walk.use(before)


def both(call: Any, *args: Any, **named: Any) -> list[Any]:
    """The answers of the two twins, or the errors."""
    answers = []
    before = walk.NATIVE
    for native in TWINS:
        walk.use(native)
        try:
            answers.append(call(*args, **named))
        except (InvalidRecord, CorruptBatch, batch.UnsupportedMagic, ValueError) as error:
            answers.append((type(error), str(error)))
        finally:
            walk.use(before)
    return answers


def varint(number: int) -> bytes:
    out = bytearray()
    records.append_varint(out, number)
    return bytes(out)


def body(index: int = 0, *, tail: bytes = b"\x00", key: bytes = b"\x02k", value: bytes = b"\x02v") -> bytes:
    inner = b"\x00" + varint(5) + varint(index) + key + value + tail
    return varint(len(inner)) + inner


@pytest.mark.usefixtures("twin")
def test_a_summary() -> None:
    found = [Record(timestamp=stamp, key=b"k", value=None) for stamp in (100, -1, 300, 50, 300)]
    whole = records.encode_batch(found)
    summary = walk.check_records(whole, 0, len(whole))
    assert summary == walk.RecordsSummary(300, 2, 50, has_null_key=False)
    assert walk.check_records(b"ab" + whole, 2, len(whole), batch.read_header(whole)) == summary
    whole = records.encode_batch([Record(timestamp=-1)])
    assert walk.check_records(whole, 0, len(whole)) == walk.RecordsSummary(-1, -1, -1, has_null_key=True)


@pytest.mark.usefixtures("twin")
def test_compressed_batches_are_walked_by_their_payload() -> None:
    whole = records.encode_batch([Record(timestamp=3, key=b"k")] * 9, codec=Codec.LZ4)
    header = batch.read_header(whole)
    summary = walk.check_payload(records.payload(whole, 0, header), header.record_count, header.base_timestamp)
    assert summary.max_timestamp == 3
    with pytest.raises(ValueError, match="compressed"):
        walk.check_records(whole, 0, len(whole))


FIVE_BYTES = b"\x80\x80\x80\x80\x10"
LIES = {
    "no record": (b"", Reason.VARINT),
    "length cut short": (b"\x80", Reason.VARINT),
    "length of six bytes": (b"\x80\x80\x80\x80\x80\x00", Reason.VARINT),
    "length above 32 bits": (FIVE_BYTES, Reason.VARINT),
    "length negative": (varint(-1), Reason.LENGTH),
    "length beyond the batch": (varint(100) + body(), Reason.LENGTH),
    "length beyond memory": (varint(2**31 - 1) + body(), Reason.LENGTH),
    "length zero": (varint(0), Reason.FIELDS),
    "length zero before a long varint": (varint(0) + b"\x80\xff\xff\x03\x00", Reason.FIELDS),
    "length too small": (varint(5) + body()[1:], Reason.VARINT),
    "length too large": (varint(9) + body()[1:] + b"\x00", Reason.FIELDS),
    "timestamp of eleven bytes": (varint(12) + b"\x00" + b"\x80" * 11, Reason.VARINT),
    "timestamp above 64 bits": (varint(11) + b"\x00" + b"\xff" * 9 + b"\x02", Reason.VARINT),
    "offset delta": (body(1), Reason.OFFSET),
    "negative offset delta": (body(-1), Reason.OFFSET),
    "key too long": (body(key=b"\x20k"), Reason.KEY),
    "key of length -2": (body(key=b"\x03"), Reason.KEY),
    "value too long": (body(value=b"\x20v"), Reason.VALUE),
    "value of length -2": (body(value=b"\x03"), Reason.VALUE),
    "negative header count": (body(tail=varint(-1)), Reason.HEADER_COUNT),
    "too many headers": (body(tail=varint(3)), Reason.HEADER_COUNT),
    "header with null key": (body(tail=varint(1) + b"\x01\x00"), Reason.HEADER),
    "header key too long": (body(tail=varint(1) + b"\x20\x00"), Reason.HEADER),
    "header value too long": (body(tail=varint(1) + b"\x00\x20"), Reason.HEADER),
    "header value of length -2": (body(tail=varint(1) + b"\x00\x03"), Reason.HEADER),
    "header count cut short": (body(tail=b""), Reason.VARINT),
    "bytes after the last record": (body() + b"\x00", Reason.TRAILING),
    "a second record": (body() + body(1), Reason.TRAILING),
}


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("name", LIES)
def test_lies(name: str) -> None:
    payload, reason = LIES[name]
    with pytest.raises(InvalidRecord) as caught:
        walk.check_payload(payload, 1, 0)
    assert caught.value.reason == walk.REASONS[reason]


@pytest.mark.usefixtures("twin")
def test_the_index_of_the_bad_record_is_told() -> None:
    with pytest.raises(InvalidRecord) as caught:
        walk.check_payload(body(0) + body(1) + body(3), 3, 0)
    assert caught.value.index == 2


@pytest.mark.usefixtures("twin")
def test_timestamps_may_not_overflow() -> None:
    walk.check_payload(body(), 1, 2**63 - 6)
    with pytest.raises(InvalidRecord, match="overflows"):
        walk.check_payload(body(), 1, 2**63 - 5)
    lowest = b"\x00" + varint(-(2**63)) + b"\x00\x01\x01\x00"
    walk.check_payload(varint(len(lowest)) + lowest, 1, 0)
    with pytest.raises(InvalidRecord, match="overflows"):
        walk.check_payload(varint(len(lowest)) + lowest, 1, -1)


@pytest.mark.usefixtures("twin")
def test_counts_and_sizes_that_lie() -> None:
    whole = records.encode_batch([Record(timestamp=1)] * 3)
    header = batch.read_header(whole)
    for changes in ({"record_count": 2}, {"record_count": 4}, {"last_offset_delta": 3}, {"record_count": -1}):
        with pytest.raises(InvalidRecord):
            walk.check_records(whole, 0, len(whole), header._replace(**changes))
    with pytest.raises(InvalidRecord):
        walk.check_records(whole, 0, len(whole), header._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2))
    for size in (len(whole) - 1, len(whole) + 1):
        with pytest.raises(CorruptBatch):
            walk.check_records(whole, 0, size)
    with pytest.raises(CorruptBatch):
        walk.check_records(whole[:-1], 0, len(whole))


@pytest.mark.usefixtures("twin")
def test_attributes_of_a_record_may_hold_anything_as_in_kafka() -> None:
    payload = bytearray(body())
    payload[1] = 0xFF
    walk.check_payload(payload, 1, 0)


# Scans.


def segment(count: int = 6, **fields: Any) -> bytearray:
    whole = bytearray()
    for index in range(count):
        found = [Record(timestamp=1000 + 10 * index + inner, value=b"x" * 30) for inner in range(2)]
        whole += records.encode_batch(found, base_offset=2 * index, leader_epoch=index // 2, **fields)
    return whole


@pytest.mark.usefixtures("twin")
def test_a_scan_lists_batches() -> None:
    data = segment(2, producer_id=9, producer_epoch=3, base_sequence=4, transactional=True)
    size = len(data) // 2
    found = walk.index_scan(data, state=ScanState(0))
    assert [ScannedBatch._make(fields) for fields in found.producers] == [
        ScannedBatch(0, 0, 1, 1001, 0, 9, 3, 4, 2, 0x10),
        ScannedBatch(size, 2, 3, 1011, 0, 9, 3, 4, 2, 0x10),
    ]
    assert (found.stop, found.reason) == (len(data), Stop.END)
    rest = walk.index_scan(data, size, state=ScanState(0), file_position=size)
    assert rest.producers == found.producers[1:]
    cut = walk.index_scan(data, size, len(data) - 1, state=ScanState(0))
    assert (cut.producers, cut.stop, cut.reason) == ([], size, Stop.PARTIAL)
    assert walk.index_scan(b"", state=ScanState(0)).reason is Stop.END


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (8, b"\x00\x00\x00\x30", Stop.LENGTH),
        (8, b"\xff\xff\xff\xff", Stop.LENGTH),
        (8, b"\x7f\xff\xff\xff", Stop.PARTIAL),
        (16, b"\x01", Stop.MAGIC),
        (17, b"\x00\x00\x00\x00", Stop.CRC),
        (70, b"!", Stop.CRC),
        (0, b"\x80", Stop.HEADER),
        (0, b"\x7f" + b"\xff" * 7, Stop.HEADER),
    ],
)
def test_a_scan_stops_at_what_is_wrong(position: int, value: bytes, reason: Stop) -> None:
    data = segment(3)
    size = len(data) // 3
    data[size + position : size + position + len(value)] = value
    found = walk.index_scan(data, state=ScanState(0))
    assert (found.stop, found.reason) == (size, reason)
    if reason is Stop.CRC:
        found = walk.index_scan(data, state=ScanState(0), check_crc=False)
        assert (found.stop, found.reason) == (len(data), Stop.END)


@pytest.mark.usefixtures("twin")
def test_ranges_outside_the_buffer_are_refused() -> None:
    for start, end in ((-1, 5), (0, 11), (6, 5)):
        with pytest.raises(ValueError, match="outside"):
            walk.index_scan(bytes(10), start, end, state=ScanState(0))


def kafka_entries(data: bytes, interval: int) -> tuple[list[int], list[int]]:
    """LogSegment.append as Kafka describes it, said once more and plainly."""
    entries: list[int] = []
    epochs: list[int] = []
    since, best, best_offset, latest = 0, -1, -1, -1
    for position, header in batch.iterate(data):
        if header.max_timestamp > best:
            best, best_offset = header.max_timestamp, header.last_offset
        if since > interval:
            entries += [header.last_offset, position, best, best_offset]
            since = 0
        since += header.size
        if header.leader_epoch > latest:
            latest = header.leader_epoch
            epochs += [latest, header.base_offset]
    return entries, epochs


@pytest.mark.usefixtures("twin")
@pytest.mark.parametrize("interval", [0, 100, 300, 4096])
@pytest.mark.parametrize("chunk", [200, 333, 10_000])
def test_recovery_by_chunks_gives_what_one_pass_gives(interval: int, chunk: int) -> None:
    data = bytes(segment(40) + segment(0))
    entries, epochs, producers = array("q"), array("q"), []
    state, position, grow = ScanState(0), 0, 0
    while position < len(data):
        piece = data[position : position + chunk + grow]
        found = walk.index_scan(piece, state=state, file_position=position, index_interval_bytes=interval)
        entries += found.entries
        epochs += found.epochs
        producers += found.producers
        assert found.reason in (Stop.END, Stop.PARTIAL)
        grow = max(found.needed_bytes - chunk, 0)
        state, position = found.state, position + found.stop
    assert (list(entries), list(epochs)) == kafka_entries(data, interval)
    assert producers == []
    assert (state.next_offset, state.max_timestamp, state.offset_of_max_timestamp) == (80, 1391, 79)


@pytest.mark.usefixtures("twin")
def test_recovery_hands_back_what_changes_producer_state() -> None:
    plain = records.encode_batch([Record(timestamp=1)], base_offset=0)
    idempotent = records.encode_batch(
        [Record(timestamp=2)], base_offset=1, producer_id=4, producer_epoch=0, base_sequence=0
    )
    control = records.encode_control(records.ControlType.LEADER_CHANGE, b"", timestamp=3, base_offset=2)
    data = b"skipped" + plain + idempotent + control
    found = walk.index_scan(data, 7, state=ScanState(0), file_position=1000)
    assert [fields[:3] for fields in found.producers] == [
        (1000 + len(plain), 1, 1),
        (1000 + len(plain) + len(idempotent), 2, 2),
    ]
    assert (found.stop, found.needed_bytes) == (len(data), 0)


@pytest.mark.usefixtures("twin")
def test_recovery_stops_where_offsets_go_wrong() -> None:
    data = segment(3)
    size = len(data) // 3
    assert walk.index_scan(data, state=ScanState(1)).reason is Stop.OFFSET
    found = walk.index_scan(data, state=ScanState(0), max_offset=4)
    assert (found.reason, found.stop, found.state.next_offset) == (Stop.OFFSET, 2 * size, 4)
    found = walk.index_scan(data + data, state=ScanState(0))
    assert (found.reason, found.stop) == (Stop.OFFSET, len(data))
    short = walk.index_scan(data[:-1], state=ScanState(0))
    assert (short.reason, short.needed_bytes) == (Stop.PARTIAL, size)
    assert walk.index_scan(data[:30], state=ScanState(0)).needed_bytes == batch.HEADER_SIZE


# The twins.

nullable = st.none() | st.binary(max_size=200)
some_records = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp=st.integers(-1, 2**40) | st.integers(-(2**62), 2**62),
        key=nullable,
        value=nullable,
        headers=st.lists(st.tuples(st.text(max_size=4), nullable), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)
mutations = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)


def mutate(data: bytearray, changes: list[tuple[int, int]]) -> bytearray:
    for position, value in changes:
        data[position % len(data)] = value
    return data


@needs_native
@settings(max_examples=500)
@given(some_records, mutations, st.integers(-(2**63), 2**63 - 1) | st.just(0))
def test_twins_agree_on_records(found: list[Record], changes: list[tuple[int, int]], base_timestamp: int) -> None:
    whole = bytearray(records.encode_batch(found))
    payload = mutate(whole[batch.HEADER_SIZE :], changes)
    native, python = both(walk.check_payload, payload, len(found), base_timestamp)
    assert native == python
    mutate(whole, changes)
    native, python = both(walk.check_records, whole, 0, len(whole))
    assert native == python


@needs_native
@given(st.binary(max_size=60), st.integers(-3, 6))
def test_twins_agree_on_noise(payload: bytes, count: int) -> None:
    native, python = both(walk.check_payload, payload, count, 0)
    assert native == python


@needs_native
def test_twins_agree_on_many_records() -> None:
    """Offset deltas, timestamps and lengths of one to three bytes, with bytes changed all over the batch."""
    builder = records.BatchBuilder()
    for index in range(2**14 + 2):
        builder.append(index * 3, None if index % 7 else b"k", b"v" * (index % 150))
    payload = bytearray(builder.build()[batch.HEADER_SIZE :])
    native, python = both(walk.check_payload, payload, builder.count, 0)
    assert native == python == walk.RecordsSummary((2**14 + 1) * 3, 2**14 + 1, 0, has_null_key=True)
    chance = random.Random(11)
    for _ in range(60):
        place = chance.randrange(len(payload))
        before, payload[place] = payload[place], chance.randrange(256)
        native, python = both(walk.check_payload, payload, builder.count, 0)
        assert native == python
        payload[place] = before


@needs_native
def test_twins_agree_on_offset_deltas_of_four_bytes() -> None:
    count = 2**20 + 3
    payload = bytearray()
    for index in range(count):
        inner = b"\x00\x00" + varint(index) + b"\x01\x01\x00"
        payload += varint(len(inner)) + inner
    native, python = both(walk.check_payload, payload, count, 0)
    assert native == python == walk.RecordsSummary(0, 0, 0, has_null_key=True)


@needs_native
@settings(max_examples=300)
@given(st.integers(0, 5), mutations, st.booleans(), st.integers(0, 400), st.integers(-1, 3))
def test_twins_agree_on_scans(
    count: int, changes: list[tuple[int, int]], check_crc: bool, interval: int, producer_id: int
) -> None:
    data = segment(count, producer_id=producer_id)
    if data:
        mutate(data, changes)
    named = {"state": ScanState(0), "check_crc": check_crc, "index_interval_bytes": interval, "file_position": 77}
    native, python = both(walk.index_scan, data, **named)
    assert native == python


@needs_native
@given(st.binary(max_size=300), st.integers(0, 9))
def test_both_native_checksums(data: bytes, offset: int) -> None:
    from barnabas.wire import _walk

    part = memoryview(data)[offset:]
    assert _walk.crc32c(part) == _walk.crc32c(part, True) == crc32c(part)


@needs_native
def test_long_scans_let_other_threads_run() -> None:
    """The buffer is held meanwhile: a bytearray under a scan cannot be resized away."""
    data = segment(20_000)
    done = threading.Event()
    results: list[Any] = []

    def scan_again_and_again() -> None:
        while not done.is_set():
            results.append(walk.index_scan(data, state=ScanState(0))[1:3])

    thread = threading.Thread(target=scan_again_and_again)
    thread.start()
    for _ in range(20):
        assert walk.index_scan(data, state=ScanState(0))[1:3] == (len(data), Stop.END)
    done.set()
    thread.join()
    assert set(results) == {(len(data), Stop.END)}


def test_asking_for_a_twin_that_was_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_native", None)
    with pytest.raises(RuntimeError, match="not built"):
        walk.use(native=True)
