"""Streams through Spark: checkpoints, restarts, limits, losses, the group, and a broker that goes away."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.wire import Client, groups
from barnabas.client.wire.admin import create_partitions, create_topic, delete_topics
from barnabas.testing import EmbeddedBroker
from tests.spark.conftest import Reading, values, write

pytestmark = pytest.mark.slow

PATIENCE_S = 60


class Sink:
    """Takes batches in, by their numbers: a batch that is done again replaces what it brought before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, str]]] = {}
        self.before: Callable[[int], None] = lambda batch_id: None

    def __call__(self, frame: Any, batch_id: int) -> None:
        self.before(batch_id)
        rows = frame.select("partition", "offset", "value").collect()
        self.batches[batch_id] = sorted((row.partition, row.offset, bytes(row.value).decode()) for row in rows)

    @property
    def rows(self) -> list[tuple[int, int, str]]:
        return sorted(row for rows in self.batches.values() for row in rows)

    @property
    def values(self) -> list[str]:
        return [value for _, _, value in self.rows]


@pytest.fixture
def sink() -> Sink:
    return Sink()


def start(frame: Any, sink: Sink, checkpoint: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def run(frame: Any, sink: Sink, checkpoint: Path) -> Any:
    """One pass over what is there."""
    query = start(frame, sink, checkpoint)
    assert query.awaitTermination(PATIENCE_S)
    return query


def until(condition: Callable[[], bool], query: Any = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert query is None or query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def committed(client: Client, group: str) -> dict[int, int]:
    return {place.partition: each.offset for place, each in groups.committed_offsets(client, group).items()}


def group_of(query: Any) -> str:
    offset = json.loads(query.lastProgress["sources"][0]["endOffset"])
    return f"barnabas-spark-{offset['~']['query']}"


def test_a_query_goes_on_where_it_was(reading: Reading, client: Client, topic: str, sink: Sink, tmp_path: Path) -> None:
    """Limited batches, a restart, a new partition, and the group that shows how far it is, the last batch included."""
    write(client, topic, values(9))
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    first = run(frame, sink, tmp_path)
    assert [len(rows) for _, rows in sorted(sink.batches.items())] == [4, 4, 1]
    assert sink.values == [f"v{number}" for number in range(9)]
    assert committed(client, group_of(first)) == {0: 9, 1: 0}
    assert json.loads(first.lastProgress["sources"][0]["latestOffset"]) == {topic: {"0": 9, "1": 0}}

    write(client, topic, values(3, first=9))
    create_partitions(client, topic, 3)
    write(client, topic, values(2, "new"), partition=2)
    second = run(reading.stream(subscribe=topic, startingOffsets="latest"), sink, tmp_path)
    assert [row for row in sink.rows if row[0] == 0] == [(0, number, f"v{number}") for number in range(12)]
    assert [row for row in sink.rows if row[0] == 2] == [(2, 0, "new0"), (2, 1, "new1")]
    assert group_of(second) == group_of(first)
    assert committed(client, group_of(first)) == {0: 12, 1: 0, 2: 2}


def test_a_running_query_follows(reading: Reading, client: Client, topic: str, sink: Sink, tmp_path: Path) -> None:
    write(client, topic, values(5, "old"))
    frame = reading.stream(subscribePattern=f"{topic}.*", includeHeaders="true", kafka__group__id=f"group-{topic}")
    query = start(frame, sink, tmp_path, processingTime="0 seconds")
    try:
        until(lambda: committed(client, f"group-{topic}") == {0: 5, 1: 0}, query)
        write(client, topic, values(3), partition=1)
        until(lambda: sink.values == ["v0", "v1", "v2"], query)
        create_topic(client, f"{topic}-more", partitions=1)
        write(client, f"{topic}-more", values(2, "more"))
        until(lambda: len(sink.rows) == 5, query)
        places = groups.committed_offsets
        until(lambda: sum(each.offset for each in places(client, f"group-{topic}").values()) == 10, query)
    finally:
        query.stop()


def test_nothing_is_lost_when_the_first_batch_fails(
    reading: Reading, client: Client, topic: str, sink: Sink, tmp_path: Path
) -> None:
    write(client, topic, values(5, "old"))
    failures: list[int] = []

    def fail_once(batch_id: int) -> None:
        if not failures:
            failures.append(batch_id)
            raise RuntimeError("the sink is not ready")

    sink.before = fail_once
    frame = reading.stream(subscribe=topic, startingOffsets="latest", kafka__group__id=f"group-{topic}")
    query = start(frame, sink, tmp_path, processingTime="0 seconds")
    until(lambda: committed(client, f"group-{topic}") == {0: 5, 1: 0}, query)
    write(client, topic, values(3))
    with pytest.raises(Exception, match="the sink is not ready"):
        query.awaitTermination(PATIENCE_S)
    write(client, topic, values(2, first=3))
    run(frame, sink, tmp_path)
    assert sink.rows == [(0, 5 + number, f"v{number}") for number in range(5)]


def test_a_topic_that_was_made_again_is_noticed(
    reading: Reading, client: Client, topic: str, sink: Sink, tmp_path: Path
) -> None:
    write(client, topic, values(5))
    run(reading.stream(subscribe=topic, startingOffsets="earliest"), sink, tmp_path)
    delete_topics(client, [topic])
    create_topic(client, topic, partitions=2)
    write(client, topic, values(8, "again"))
    with pytest.raises(Exception, match=f"{topic}-0: the topic was deleted and created again after offset 5"):
        run(reading.stream(subscribe=topic), sink, tmp_path)
    run(reading.stream(subscribe=topic, failOnDataLoss="false"), sink, tmp_path)
    assert sink.batches[1] == [(0, number, f"again{number}") for number in range(8)]


def test_a_checkpoint_of_sparks_own_source_is_taken_over(
    reading: Reading, client: Client, topic: str, sink: Sink, tmp_path: Path
) -> None:
    write(client, topic, values(5))
    run(reading.stream(subscribe=topic, startingOffsets="earliest"), sink, tmp_path)
    log = tmp_path / "offsets" / "0"
    lines = log.read_text().splitlines()
    lines[-1] = json.dumps({topic: {"0": 3, "1": 0}}, separators=(",", ":"))
    log.write_text("\n".join(lines))
    for checksum in tmp_path.rglob(".*.crc"):
        checksum.unlink()
    run(reading.stream(subscribe=topic), sink, tmp_path)
    assert sink.batches[1] == [(0, 3, "v3"), (0, 4, "v4")]


def test_a_broker_that_goes_away_loses_and_repeats_nothing(spark: Any, sink: Sink, tmp_path: Path) -> None:
    """Killed between planning and reading, it is away while tasks want to read, and comes back at its port."""
    brokers = [EmbeddedBroker(data=str(tmp_path / "data")).start()]
    port, address = brokers[0].port, brokers[0].bootstrap_servers
    with Client(address) as client:
        create_topic(client, "t", partitions=2)
        for partition in (0, 1):
            write(client, "t", values(20), partition=partition)
    timers: list[threading.Timer] = []

    def restart() -> None:
        brokers.append(EmbeddedBroker(data=str(tmp_path / "data"), port=port).start())

    def kill(batch_id: int) -> None:
        if batch_id == 1 and not timers:
            brokers[0].kill()
            timers.append(threading.Timer(3, restart))
            timers[0].start()

    sink.before = kill
    frame = Reading(spark, address).stream(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=10)
    try:
        run(frame, sink, tmp_path / "checkpoint")
        assert sorted(sink.batches) == [0, 1, 2, 3]
        assert sink.rows == [(partition, number, f"v{number}") for partition in (0, 1) for number in range(20)]
    finally:
        for timer in timers:
            timer.join()
        brokers[-1].stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "no-such-topic"}, "topic no-such-topic: there is no such topic"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batch queries"),
        ({"startingOffsets": '{"{topic}":{"0":7,"1":0}}'}, "offset 7 would be read next, but the log holds nothing"),
    ],
)
def test_what_is_wrong_is_told(
    reading: Reading, topic: str, sink: Sink, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    named = {name: value.replace("{topic}", topic) for name, value in options.items()}
    with pytest.raises(Exception, match=r"DataLoss|SparkOptionError|BrokerError") as caught:
        run(reading.stream(**{"subscribe": topic, **named}), sink, tmp_path)
    assert words in str(caught.value)
    assert "UnboundLocalError" not in str(caught.value)
