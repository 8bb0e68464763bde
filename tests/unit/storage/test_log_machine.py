"""A log against a simple model: a list of batches, of which a prefix is flushed."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.model.errors import ApiError
from barnabas.model.ports import DiskError
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage.errors import LogOffline
from barnabas.wire.compression import Codec
from tests.unit.storage.kit import NOW, append, batch, open_log, read_all, small


class LogMachine(RuleBasedStateMachine):
    """``records`` maps offsets to values of what was acknowledged and not cut since."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[int, bytes] = {}
        self.flushed = 0
        self.start = 0
        self.leader_epoch = 0
        self.sequences: dict[int, int] = {}
        self.number = 0
        self.settings = small(segment_bytes=700, retention_ms=-1)

    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.log = open_log(self.disk, self.settings)

    def values(self, count: int) -> list[bytes]:
        self.number += 1
        return [b"%d-%d" % (self.number, index) for index in range(count)]

    def note(self, first: int, values: list[bytes]) -> None:
        for index, value in enumerate(values):
            self.records[first + index] = value

    @rule(
        count=st.integers(1, 5),
        size=st.integers(1, 40),
        codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
        producer=st.integers(-1, 2),
    )
    def produce(self, count: int, size: int, codec: Codec, producer: int) -> None:
        self.number += 1
        value = (b"%d " % self.number) * size
        fields = {}
        if producer >= 0:
            entry = self.log.producers.producers.get(producer)
            sequence = entry.last_sequence + 1 if entry else 0
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        data = batch(count, value=value[:60], codec=codec, timestamp=NOW + self.number, **fields)
        appended = append(self.log, data, leader_epoch=self.leader_epoch)
        assert appended.first_offset == self.end
        self.note(appended.first_offset, [value[:60]] * count)
        if producer >= 0:
            assert append(self.log, data, leader_epoch=self.leader_epoch).first_offset == appended.first_offset

    @property
    def end(self) -> int:
        return max(self.records, default=self.start - 1) + 1

    @rule()
    def new_leader(self) -> None:
        self.leader_epoch += 1

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.flushed_offset
        assert self.flushed == self.end

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.truncate_to(offset)
        cut = self.log.log_end_offset
        assert cut <= offset or offset >= self.end
        self.records = {at: value for at, value in self.records.items() if at < cut}
        self.start = self.log.log_start_offset
        self.flushed = min(self.flushed, cut)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.start = self.log.delete_records_before(offset)
        assert self.start == offset

    @rule()
    def remove_deleted(self) -> None:
        self.log.remove_deleted_files(NOW + 10**9)

    @rule(kept=st.integers(0, 3000))
    def retain(self, kept: int) -> None:
        self.log.update_settings(small(segment_bytes=700, retention_ms=-1, retention_bytes=kept))
        self.log.delete_old_segments(NOW, self.log.log_end_offset)
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset

    @rule()
    def restart_cleanly(self) -> None:
        self.log.close()
        self.log = open_log(self.disk, self.settings, clean=True, log_start_offset=self.start)
        self.flushed = self.end

    @rule()
    def kill(self) -> None:
        """The process dies, the machine lives: nothing written is lost."""
        self.log = open_log(self.disk, self.settings, recovery_point=self.flushed, log_start_offset=self.start)

    @rule()
    def lose_power(self) -> None:
        self.disk.crash()
        self.log = open_log(
            self.disk, self.settings, recovery_point=self.flushed, log_start_offset=min(self.start, self.flushed)
        )
        assert self.log.log_end_offset >= self.flushed
        self.records = {at: value for at, value in self.records.items() if at < self.log.log_end_offset}
        self.start = self.log.log_start_offset

    @precondition(lambda self: self.end > self.start)
    @rule(fault=st.sampled_from(list(Fault)), after=st.integers(1, 4))
    def append_on_a_failing_disk(self, fault: Fault, after: int) -> None:
        self.disk.fail(self.disk.operations + after, fault)
        self.number += 1
        value = b"doubtful %d" % self.number
        try:
            appended = append(self.log, batch(value=value, timestamp=NOW), leader_epoch=self.leader_epoch)
            self.note(appended.first_offset, [value])
        except DiskError:
            pass
        except LogOffline:
            self.kill()
            if self.log.log_end_offset > self.end:  # written, but not acknowledged: either is right
                self.note(self.end, [value])
        self.disk.operations += 10  # whatever has not failed by now will not

    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 2000), below=st.floats(0, 1))
    def read(self, share: float, max_bytes: int, below: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        maximum = self.start + int((self.end - self.start) * below)
        result = self.log.read(offset, max_bytes, max_offset=maximum)
        if result.records is not None:
            assert offset < result.next_offset <= maximum
            assert result.size == len(result.records.read())

    @rule(share=st.floats(0, 1))
    def read_out_of_range(self, share: float) -> None:
        for offset in (self.start - 1, self.end + 1):
            try:
                self.log.read(offset, 10)
            except ApiError:
                continue
            raise AssertionError(f"{offset} is outside {self.start}..{self.end}")

    @invariant()
    def holds_what_was_acknowledged(self) -> None:
        assert self.log.log_end_offset == self.end if self.records else True
        assert self.log.log_start_offset == self.start
        expected = {offset: value for offset, value in self.records.items() if offset >= self.start}
        assert {record.offset: record.value for record in read_all(self.log, max_bytes=300)} == expected
        assert self.log.size_bytes == sum(segment.open_log().size() for segment in self.log.segments)


LogMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogMachine = LogMachine.TestCase
