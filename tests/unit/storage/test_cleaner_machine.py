"""Cleaning against a simple model: of a list of records, the latest of every key must stay unchanged."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.sim.disk import SimDisk
from barnabas.storage.log import Log
from barnabas.storage.producer_state import Origin
from barnabas.wire import walk
from barnabas.wire.batch import iterate
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, decode_batch, encode_batch, encode_end_marker
from tests.unit.storage.cleaning import clean, compacted, roll
from tests.unit.storage.kit import DIRECTORY, NOW, append, open_log

KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"key" * 9])
VALUES = st.one_of(st.none(), st.binary(max_size=20))
RECORDS = st.lists(st.tuples(KEYS, VALUES, st.integers(-5000, 5000), st.booleans()), min_size=1, max_size=6)
CODECS = st.sampled_from(list(Codec))
HORIZON_MS = 1000


def committed(log: Log) -> list[Record]:
    """What a read_committed consumer sees, as Kafka's consumer filters it."""
    found: list[Record] = []
    offset, end = log.log_start_offset, log.last_stable_offset(log.log_end_offset)
    while True:
        result = log.read(offset, 400, max_offset=end, aborted=True)
        if result.records is None:
            return found
        waiting = sorted(result.aborted or [], key=lambda one: one[1])
        data, skipped = result.records.read(), set()
        for position, header in iterate(data):
            while waiting and waiting[0][1] <= header.last_offset:
                skipped.add(waiting.pop(0)[0])
            records = decode_batch(data, position)
            if header.is_control:
                if records and records[0].key[2:] == b"\0\0":
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                found += [record for record in records if record.offset >= offset]
        offset = result.next_offset


class Cleaner(RuleBasedStateMachine):
    @initialize(native=st.booleans(), segment_bytes=st.sampled_from([600, 1500, 5000]), chunk=st.integers(61, 900))
    def begin(self, native: bool, segment_bytes: int, chunk: int) -> None:
        self.native = native and walk.NATIVE_AVAILABLE
        self.settings = compacted(segment_bytes=segment_bytes, delete_retention_ms=HORIZON_MS)
        self.chunk = chunk
        self.log = open_log(SimDisk(), self.settings)
        self.model: dict[int, Record] = {}  # everything committed
        self.open: dict[int, list[Record]] = {}  # of open transactions by producer id
        self.sequences: dict[int, int] = {}
        self.now_ms = NOW
        self.cleaned: int | None = None
        self.tombstones_since: dict[int, int] = {}  # offset -> when a cleaning first met it

    def _append(self, records: Any, codec: Codec, **fields: Any) -> list[Record]:
        base = self.log.log_end_offset
        made = [
            Record(base + index, NOW + shift, key, value, (("h", b"x"),) if with_header else ())
            for index, (key, value, shift, with_header) in enumerate(records)
        ]
        data = encode_batch([record._replace(offset=-1) for record in made], codec=codec, **fields)
        appended = append(self.log, data)
        assert appended.first_offset == base
        return made

    def _sequence(self, producer_id: int, count: int) -> int:
        first = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = first + count
        return first

    @rule(records=RECORDS, codec=CODECS)
    def plain(self, records: Any, codec: Codec) -> None:
        self.model |= {record.offset: record for record in self._append(records, codec)}

    @rule(records=RECORDS, codec=CODECS, producer_id=st.integers(1, 3))
    def idempotent(self, records: Any, codec: Codec, producer_id: int) -> None:
        sequence = self._sequence(producer_id, len(records))
        made = self._append(records, codec, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        self.model |= {record.offset: record for record in made}

    @rule(records=RECORDS, codec=CODECS, producer_id=st.integers(11, 13))
    def transactional(self, records: Any, codec: Codec, producer_id: int) -> None:
        sequence = self._sequence(producer_id, len(records))
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        self.open.setdefault(producer_id, []).extend(self._append(records, codec, **fields))

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans(), data=st.data())
    def end(self, commit: bool, data: Any) -> None:
        producer_id = data.draw(st.sampled_from(sorted(self.open)))
        records = self.open.pop(producer_id)
        marker = encode_end_marker(
            commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=NOW
        )
        append(self.log, marker, origin=Origin.COORDINATOR)
        if commit:
            self.model |= {record.offset: record for record in records}

    @rule()
    def roll(self) -> None:
        roll(self.log, self.now_ms)

    @rule(capacity=st.sampled_from([7, 1000]), step_ms=st.sampled_from([1, HORIZON_MS + 1]))
    def clean(self, capacity: int, step_ms: int) -> None:
        self.now_ms += step_ms
        roll(self.log, self.now_ms)
        before = walk.NATIVE
        walk.use(native=self.native)
        try:
            end = clean(self.log, self.cleaned, now_ms=self.now_ms, capacity=capacity, chunk_bytes=self.chunk)
        finally:
            walk.use(native=before)
        if end != self.cleaned:
            self._forget(end)
        self.cleaned = end

    def _forget(self, end: int) -> None:
        """The model's cleaning: only the latest of every key below ``end``; tombstones go after their horizon."""
        latest = {self.model[offset].key: offset for offset in sorted(self.model) if offset < end}
        for offset, record in [*self.model.items()]:
            if offset >= end or (offset == latest[record.key] and record.value is not None):
                continue
            if offset == latest[record.key]:
                horizon = self.tombstones_since.setdefault(offset, self.now_ms) + HORIZON_MS
                if self.now_ms < horizon or self.tombstones_since[offset] == self.now_ms:
                    continue
            del self.model[offset]

    @rule(is_clean=st.booleans(), with_snapshots=st.booleans())
    def reopen(self, is_clean: bool, with_snapshots: bool) -> None:
        """The producers are found again, be it from the log alone."""
        before = self._producers()
        self.log.flush()
        self.log.close(clean=is_clean)
        disk = self.log.disk
        if not with_snapshots:
            for name in disk.list(DIRECTORY):
                if name.endswith(".snapshot"):
                    disk.remove(f"{DIRECTORY}/{name}")
        self.log = open_log(disk, self.settings, clean=is_clean, now_ms=self.now_ms)
        if is_clean and not with_snapshots:
            self.log.close()  # a clean start trusts the snapshots that it finds
            self.log = open_log(disk, self.settings, clean=False, now_ms=self.now_ms)
        assert self._producers() == before

    def _producers(self) -> dict[int, tuple[int, int, int, int]]:
        return {
            entry.producer_id: (
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_offset,
                entry.transaction_first_offset,
            )
            for entry in self.log.producers.producers.values()
        }

    @invariant()
    def holds(self) -> None:
        end = self.log.last_stable_offset(self.log.log_end_offset)
        expected = [record for offset, record in sorted(self.model.items()) if offset < end]
        found = committed(self.log)
        # A partly mapped batch may have told the cleaning of later records: what they supersede may be gone already.
        latest = {record.key: record.offset for record in expected}
        gone = [record for record in expected if record not in found]
        assert all(record.offset < latest[record.key] or record.value is None for record in gone), gone
        assert [record for record in expected if record not in gone] == found
        for record in gone:
            if record.offset == latest[record.key]:
                assert record.offset in self.tombstones_since


Cleaner.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCleaner = Cleaner.TestCase
