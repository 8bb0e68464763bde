"""Many offset commits: ``python -m tests.reliability.commits --count 1000000``.

Many groups commit offsets that go up, as fast as they can, to a broker whose cleaner runs. The offsets topic must stay
under its bound all the while: two segments for each partition that is used (the active one, and one that is closed and
waits for the cleaner), and twice what is alive (min.cleanable.dirty.ratio is a half). Then the broker is killed and
started again, and every group's offsets must be the last that were acknowledged.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

from barnabas.client.wire import Client, admin
from barnabas.client.wire.connection import Connection, Sent
from barnabas.client.wire.coordinators import CoordinatorKind, find_coordinator
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.runtime.coordinator import partition_of
from barnabas.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tests.reliability.process import BrokerProcess

TOPIC = "committed"
SHARDS = 50
IN_FLIGHT = 16
COMMIT_VERSION, FETCH_VERSION = 8, 8
RECORD_BYTES = 160
"""A commit on disk, its batch's header included, is not larger than this."""


class Result(NamedTuple):
    seconds: float
    peak_bytes: int
    bound_bytes: int
    final_bytes: int
    cleanings: int
    restart_s: float


def run(count: int, groups: int, partitions: int, segment_bytes: int, *, quiet: bool = False) -> Result:
    shards = {partition_of(f"group-{number}", SHARDS) for number in range(groups)}
    bound = len(shards) * 2 * segment_bytes + 2 * groups * partitions * RECORD_BYTES
    settings = [f"offsets.topic.segment.bytes={segment_bytes}", "log.cleaner.backoff.ms=500"]
    with tempfile.TemporaryDirectory(prefix="barnabas-commits-") as folder:
        arguments = [word for setting in settings for word in ("--set", setting)]
        with BrokerProcess(folder, *arguments) as broker:
            began = time.monotonic()
            peak = _commit(broker, Path(folder), count, groups, partitions, quiet)
            seconds = time.monotonic() - began
            cleaned = _until_clean(Path(folder), bound)
            broker.kill()
            began = time.monotonic()
            broker.start()
            last = {number: _last_of(count, groups, number) for number in range(groups)}
            _check(broker, last, partitions)
            restart_s = time.monotonic() - began
            result = Result(seconds, peak, bound, size_of(Path(folder)), cleaned, restart_s)
    assert result.cleanings, "nothing was cleaned: the run shows nothing"
    assert result.peak_bytes <= bound, f"the offsets topic grew to {result.peak_bytes} bytes, {bound} are allowed"
    return result


def _commit(broker: BrokerProcess, folder: Path, count: int, groups: int, partitions: int, quiet: bool) -> int:
    """Commits round by round; the largest size of the offsets topic that was seen."""
    peak = 0
    with Client(broker.bootstrap_servers) as client:
        admin.create_topic(client, TOPIC, partitions=partitions)
        connection = client.node(find_coordinator(client, CoordinatorKind.GROUP, "any"))
        waiting: deque[Sent] = deque()
        for number in range(count):
            waiting.append(connection.send(_request(number, groups, partitions), version=COMMIT_VERSION))
            if len(waiting) >= IN_FLIGHT:
                _receive(connection, waiting.popleft())
            if number % 10_000 == 0:
                peak = max(peak, size_of(folder))
                if not quiet:
                    print(f"{number:,} commits, {size_of(folder) / 1e6:.1f} MB on disk", flush=True)
        while waiting:
            _receive(connection, waiting.popleft())
    return max(peak, size_of(folder))


def _request(number: int, groups: int, partitions: int) -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(number // groups % partitions, number)]
    return OffsetCommitRequest(f"group-{number % groups}", topics=[OffsetCommitRequestTopic(TOPIC, partitions=parts)])


def _receive(connection: Connection, sent: Sent) -> None:
    reply = connection.receive(sent, OffsetCommitResponse)
    assert not reply.topics[0].partitions[0].error_code, reply


def _last_of(count: int, groups: int, group: int) -> int:
    """The number of a group's last commit."""
    return (count - 1 - group) // groups * groups + group


def _check(broker: BrokerProcess, last: dict[int, int], partitions: int) -> None:
    with Client(broker.bootstrap_servers) as client:
        connection = client.node(find_coordinator(client, CoordinatorKind.GROUP, "any"))
        for group, number in last.items():
            wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(f"group-{group}", topics=None)])
            (found,) = connection.request(wanted, OffsetFetchResponse, version=FETCH_VERSION).groups
            offsets = {p.partition_index: p.committed_offset for t in found.topics for p in t.partitions}
            for back in range(min(partitions, number // len(last) + 1)):
                earlier = number - back * len(last)
                assert offsets[earlier // len(last) % partitions] == earlier, f"group-{group}: {offsets}"


def _until_clean(folder: Path, bound: int) -> int:
    """How many partitions of the offsets topic the cleaner has been at, once none is above its share."""
    deadline = time.monotonic() + 60
    while size_of(folder) > bound and time.monotonic() < deadline:
        time.sleep(0.2)
    checkpoint = folder / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return sum(line.startswith(f"{OFFSETS_TOPIC} ") for line in lines)


def size_of(folder: Path) -> int:
    """Bytes in the .log files of the offsets topic. A file may go while we look."""
    total = 0
    for log in folder.glob(f"{OFFSETS_TOPIC}-*/*.log"):
        try:
            total += log.stat().st_size
        except FileNotFoundError:
            continue
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--segment-bytes", type=int, default=1 << 20, help="offsets.topic.segment.bytes")
    options = parser.parse_args()
    result = run(options.count, options.groups, options.partitions, options.segment_bytes)
    print(
        f"{options.count:,} commits in {result.seconds:.0f} s; at most {result.peak_bytes / 1e6:.1f} MB of "
        f"{result.bound_bytes / 1e6:.1f} allowed, {result.final_bytes / 1e6:.1f} MB at the end, "
        f"{result.cleanings} partitions cleaned; {result.restart_s:.2f} s from kill to the last offset checked"
    )


if __name__ == "__main__":
    main()
