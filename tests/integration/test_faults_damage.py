"""Damage on the disk as clients see it: an error code for the partition that has it, and a line in the broker's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from barnabas.wire.batch import iterate, read_header
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import FETCH_VERSION, Raw, batch

TOPIC = "damaged"
COUNT = 30
START_MS = 1_700_000_000_000
SEGMENT_BYTES = 1 << 20


class Stopped:
    """A broker's folder with two partitions of three segments each."""

    def __init__(self, folder: Path, *, clean: bool) -> None:
        self.folder = folder
        broker = BrokerProcess(folder).start()
        with Raw(broker.port) as client:
            client.create(TOPIC, 2, segment_bytes=str(SEGMENT_BYTES), retention_ms="-1")
            for partition in range(2):
                for number in range(COUNT):
                    data = batch(bytes([number]) * 90_000, timestamp=START_MS + number)
                    assert client.produce(TOPIC, data, partition=partition).error_code == 0
        if clean:
            assert broker.stop() == 0
        else:
            broker.kill()
        self.logs = sorted((folder / f"{TOPIC}-0").glob("*.log"))
        self.second = int(self.logs[1].stem)
        self.third = int(self.logs[2].stem)

    def damage(self, index: int, change: Callable[[bytearray], None], suffix: str = ".log") -> None:
        path = self.logs[index].with_suffix(suffix)
        content = bytearray(path.read_bytes())
        change(content)
        path.write_bytes(content)

    def position(self, offset: int) -> int:
        return next(at for at, one in iterate(self.logs[1].read_bytes()) if one.base_offset == offset)


@pytest.fixture
def stopped(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path / "data", clean=True)


@pytest.fixture
def killed(tmp_path: Path) -> Stopped:
    return Stopped(tmp_path / "data", clean=False)


def fetch(client: Raw, offset: int, max_bytes: int = 4096) -> list[PartitionData]:
    """Of both partitions, the damaged one first."""
    wanted = [FetchPartition(number, fetch_offset=offset, partition_max_bytes=max_bytes) for number in range(2)]
    request = FetchRequest(topics=[FetchTopic(TOPIC, partitions=wanted)], max_wait_ms=0, min_bytes=1, max_bytes=1 << 20)
    return client.call(request, FetchResponse, FETCH_VERSION).responses[0].partitions


def offset_of(client: Raw, partition: int, timestamp: int) -> tuple[ErrorCode, int]:
    topics = [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, timestamp=timestamp)])]
    reply = client.call(ListOffsetsRequest(topics=topics), ListOffsetsResponse, 7).topics[0].partitions[0]
    return ErrorCode(reply.error_code), reply.offset


def told(broker: BrokerProcess) -> Iterator[str]:
    return (line for line in broker.output.splitlines() if f"{TOPIC}-0" in line)


def test_a_damaged_segment_is_an_error_of_its_partition_alone(stopped: Stopped) -> None:
    first = stopped.second + 4
    start = stopped.position(first)

    def zero(content: bytearray) -> None:
        content[start:] = bytes(len(content) - start)

    stopped.damage(1, zero)
    with BrokerProcess(stopped.folder) as broker, Raw(broker.port) as client:
        for offset in range(COUNT):
            damaged, sound = fetch(client, offset)
            is_lost = first <= offset < stopped.third
            assert damaged.error_code == (ErrorCode.CORRUPT_MESSAGE if is_lost else ErrorCode.NONE)
            assert sound.error_code == ErrorCode.NONE
            found = (sound if is_lost else damaged).records
            assert read_header(bytes(found or b"")).base_offset == offset
            if is_lost:
                assert offset_of(client, 0, START_MS + offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
            assert offset_of(client, 1, START_MS + offset) == (ErrorCode.NONE, offset)
        assert "request failed" not in broker.output
        (line,) = told(broker)
        assert "a segment is damaged" in line
        assert str(stopped.logs[1]) in line


def test_a_damaged_index_is_rebuilt(stopped: Stopped) -> None:
    def flip(content: bytearray) -> None:
        content[8 * 3 + 6] ^= 0x10

    stopped.damage(1, flip, ".index")
    with BrokerProcess(stopped.folder) as broker, Raw(broker.port) as client:
        for offset in reversed(range(COUNT)):  # a reader that reads on needs no index
            damaged, _ = fetch(client, offset)
            assert damaged.error_code == ErrorCode.NONE
            assert read_header(bytes(damaged.records or b"")).base_offset == offset
        assert "request failed" not in broker.output
        (line,) = told(broker)
        assert "an index was rebuilt" in line


def test_what_recovery_takes_away_is_told_and_kept(killed: Stopped) -> None:
    def flip(content: bytearray) -> None:
        content[100] ^= 1

    killed.damage(1, flip)
    content = killed.logs[2].read_bytes()
    with BrokerProcess(killed.folder) as broker, Raw(broker.port) as client:
        assert fetch(client, killed.second)[0].high_watermark == killed.second
        taken, ended = told(broker)
    aside = killed.logs[2].with_name(killed.logs[2].name + ".corrupt-1")
    assert aside.read_bytes() == content
    assert str(aside) in taken
    assert f'"bytes": {len(content)}' in taken
    assert "ended a log at a damaged place" in ended
    assert f'"offset": {killed.second}' in ended


def test_a_start_offset_beyond_the_end_removes_nothing(stopped: Stopped) -> None:
    (stopped.folder / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 900\n")
    with BrokerProcess(stopped.folder) as broker, Raw(broker.port) as client:
        damaged, _ = fetch(client, 0)
        assert (damaged.error_code, damaged.log_start_offset, damaged.high_watermark) == (0, 0, COUNT)
        (line,) = told(broker)
    assert "900" in line
    assert all(path.exists() for path in stopped.logs)


def commit(client: Raw, group: str, offset: int) -> ErrorCode:
    topics = [OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, offset)])]
    reply = client.call(OffsetCommitRequest(group, topics=topics), OffsetCommitResponse, 8)
    return ErrorCode(reply.topics[0].partitions[0].error_code)


def committed(client: Raw, group: str) -> tuple[ErrorCode, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
    reply = client.call(request, OffsetFetchResponse, 8).groups[0]
    return ErrorCode(reply.error_code), reply.topics[0].partitions[0].committed_offset if reply.topics else -1


def test_a_damaged_offset_is_not_served_and_costs_the_groups_of_its_partition_only(tmp_path: Path) -> None:
    """``my-group`` is in partition 12 of 50, ``orders`` in 31."""
    with BrokerProcess(tmp_path / "data") as broker, Raw(broker.port) as client:
        client.create(TOPIC)
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]), FindCoordinatorResponse, 4)
        assert [commit(client, group, 777) for group in ("my-group", "orders")] == [ErrorCode.NONE] * 2
        assert broker.stop() == 0
    path = tmp_path / "data" / "__consumer_offsets-12" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    value_at = content.index((777).to_bytes(8, "big"))
    content[value_at + 1] ^= 0x20
    path.write_bytes(content)
    with BrokerProcess(tmp_path / "data") as broker, Raw(broker.port) as client:
        assert committed(client, "my-group") == (ErrorCode.NOT_COORDINATOR, -1)
        assert commit(client, "my-group", 778) is ErrorCode.NOT_COORDINATOR
        assert committed(client, "orders") == (ErrorCode.NONE, 777)
        (line,) = [line for line in broker.output.splitlines() if "a coordinator cannot be loaded" in line]
    assert '"partition": "__consumer_offsets-12"' in line
    assert str(path) in line
    assert "offset 0 (CRC)" in line
    assert path.read_bytes() == content, "a person may want to look at it"
