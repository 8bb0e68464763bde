"""Snapshots of the metadata: when they are due, and that the loop neither writes them nor waits for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.metadata.image import MetadataImage
from barnabas.core.raft.machine import Voter
from barnabas.model.ids import TopicPartition
from barnabas.model.ports import DiskError
from barnabas.runtime import metadata_snapshot
from barnabas.runtime.metadata_snapshot import list_snapshots
from barnabas.runtime.raft_driver import CommittedRecords, Loaded, RaftDriver, Snapshot
from barnabas.runtime.snapshot_schedule import RETRY_MS, Snapshotter
from barnabas.sim.disk import Fault, SimDisk
from barnabas.storage.log import Log
from barnabas.wire.stored.metadata_control import FeatureLevelRecord
from tests.unit.storage.kit import NOW, small

DIRECTORY = "/data/__cluster_metadata-0"
ME = Voter(1, b"d" * 16)
MINUTE_MS = 60_000
ENDPOINTS = [("CONTROLLER", "localhost", 9093)]


class OnlyVoter:
    """The listener of a quorum of one: all that is committed was appended here."""

    def __init__(self) -> None:
        self.committed_offset = 0

    def on_committed(self, batch: CommittedRecords) -> None:
        self.committed_offset = batch.next_offset

    def on_snapshot(self, snapshot: Snapshot) -> None:
        raise AssertionError("the only voter fetches no snapshot")

    def on_leader(self, leader_id: int, raft_epoch: int) -> None: ...

    def on_leadership(self, raft_epoch: int) -> None: ...

    def on_resigned(self) -> None: ...

    def on_high_watermark(self) -> None: ...


class Life:
    """A metadata log, a clock and a worker that the test advances by hand."""

    def __init__(self, disk: SimDisk | None = None, *, max_bytes: int = 1, max_age_ms: int = 0) -> None:
        self.disk = disk or SimDisk()
        self.time_ms = 1000
        self.level = 0
        self.works: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
        self.reports: list[dict[str, Any]] = []
        self.breaths = 0
        self.disk.make_directory(DIRECTORY)
        if not list_snapshots(self.disk, DIRECTORY):
            metadata_snapshot.write(
                self.disk,
                f"{DIRECTORY}/{metadata_snapshot.file_name(0, 0)}",
                [],
                raft_epoch=0,
                timestamp_ms=0,
                quorum=metadata_snapshot.quorum_entries([ME], ENDPOINTS),
            )
        self.listener = OnlyVoter()
        self.driver = RaftDriver(
            disk=self.disk,
            clock=self,
            log=Log.open(self.disk, DIRECTORY, TopicPartition("__cluster_metadata", 0), small(), now_ms=NOW),
            directory=DIRECTORY,
            cluster_id="cluster",
            random=random.Random(1),
            me=ME,
            endpoints=ENDPOINTS,
            listener=self.listener,
            report=self._report,
        )
        self.loaded: Loaded = self.driver.load()
        self.listener.committed_offset = self.loaded.next_offset
        self.driver.start()
        self.snapshotter = Snapshotter(
            driver=self.driver,
            committed=self.image,
            disk=self.disk,
            clock=self,
            max_bytes=max_bytes,
            max_age_ms=max_age_ms,
            offload=lambda work, then: self.works.append((work, then)),
            breathe=self._breathe,
            report=self._report,
        )

    def image(self) -> MetadataImage:
        epoch = self.driver.machine.raft_epoch
        return MetadataImage(
            next_offset=self.driver.log_end_offset, raft_epoch=epoch, features={"metadata.version": self.level}
        )

    def change(self) -> None:
        self.level += 1
        self.driver.append([FeatureLevelRecord(name="metadata.version", feature_level=self.level)])
        self.snapshotter.look()

    def work(self) -> None:
        work, then = self.works.pop(0)
        problem: Exception | None = None
        try:
            work()
        except DiskError as raised:
            problem = raised
        then(problem)

    @property
    def snapshots(self) -> list[int]:
        return [end_offset for end_offset, _ in list_snapshots(self.disk, DIRECTORY) if end_offset]

    def _breathe(self) -> None:
        self.breaths += 1

    def _report(self, what: str, **fields: Any) -> None:
        self.reports.append({"what": what, **fields})

    def now_ms(self) -> int:
        return NOW + self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Any:
        raise AssertionError("nothing waits here")


def test_the_image_is_written_elsewhere_and_the_log_before_it_goes() -> None:
    life = Life()
    life.change()
    assert life.snapshots == []
    assert life.driver.log.log_start_offset == 0, "not before the snapshot is on the disk"
    end = life.driver.log_end_offset
    life.work()
    assert life.snapshots == [end]
    assert life.breaths == 1
    assert life.driver.log.log_start_offset == end
    assert life.driver.bytes_since_snapshot == 0
    assert not life.works


def test_what_comes_meanwhile_is_left_to_the_next() -> None:
    life = Life()
    life.change()
    first = life.driver.log_end_offset
    life.change()
    assert len(life.works) == 1, "one at a time"
    life.work()
    assert life.snapshots == [first]
    life.work()
    assert life.snapshots == [life.driver.log_end_offset]
    assert not life.works


def test_by_size_none_is_due_before_the_log_has_grown_so_much() -> None:
    life = Life(max_bytes=2000)
    while not life.works:
        assert life.driver.bytes_since_snapshot < 2000
        life.change()
    assert life.driver.bytes_since_snapshot >= 2000


def test_by_time_one_is_due_where_the_log_has_grown() -> None:
    life = Life(max_bytes=1 << 20, max_age_ms=MINUTE_MS)
    life.change()
    life.time_ms += MINUTE_MS - 1
    life.snapshotter.look()
    assert not life.works
    life.time_ms += 1
    life.snapshotter.look()
    life.work()
    assert life.snapshots == [life.driver.log_end_offset]
    life.time_ms += 2 * MINUTE_MS
    life.snapshotter.look()
    assert not life.works, "nothing has changed"
    life.change()
    life.work()


def test_a_start_counts_what_the_log_holds_since_the_last_snapshot() -> None:
    life = Life(max_bytes=1 << 20)
    for _ in range(5):
        life.change()
    before = life.driver.bytes_since_snapshot
    life.driver.log.close(clean=True)
    again = Life(life.disk, max_bytes=before)
    assert again.driver.bytes_since_snapshot > before, "and what the start itself has written"
    again.level = life.level
    again.snapshotter.look()
    again.work()
    again.change()
    again.driver.log.close(clean=True)
    third = Life(life.disk)
    levels = [record.feature_level for record in third.loaded.records if isinstance(record, FeatureLevelRecord)]
    assert levels == [5, 6], "the image, and what came after it"


@pytest.mark.parametrize("fault", [Fault.ENOSPC, Fault.EIO])
def test_one_that_fails_is_told_and_tried_again_later(fault: Fault) -> None:
    life = Life()
    life.change()
    life.disk.fail_next(fault)
    life.work()
    assert [report["what"] for report in life.reports] == ["a metadata snapshot could not be taken"]
    assert life.driver.log.log_start_offset == 0, "the log is all there is"
    life.change()
    assert not life.works, "not at every change"
    life.time_ms += RETRY_MS
    life.snapshotter.look()
    life.work()
    assert life.snapshots == [life.driver.log_end_offset]


def test_one_that_is_done_after_the_stop_changes_nothing_more() -> None:
    life = Life()
    life.change()
    life.snapshotter.stop()
    life.driver.log.close(clean=True)
    end = life.driver.log_end_offset
    life.work()
    assert life.snapshots == [end]
    assert life.reports == []
    assert Life(life.disk).loaded.next_offset == end
