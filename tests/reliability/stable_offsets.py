"""Last stable offsets and high watermarks, and records as a reader of committed transactions sees them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as Place

from barnabas.client.wire import Client, admin
from barnabas.client.wire.errors import ClientError
from barnabas.model.ids import OFFSETS_TOPIC, TopicPartition

LOOK_S = 0.05
READ_TIMEOUT_S = 120.0


def end_offsets(client: Client, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
    """The last stable offset of each partition, or its high watermark. Raises BrokerError."""
    found = admin.list_offsets(client, dict.fromkeys(partitions, admin.LATEST), read_committed=committed)
    return {each: listed.offset for each, listed in found.items()}


def unstable(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """(last stable offset, high watermark) of the partitions in which a transaction is open.

    The last stable offset is asked for first: what is committed in between does not look open.
    """
    stable = end_offsets(client, partitions, committed=True)
    ends = end_offsets(client, partitions, committed=False)
    return {each: (stable[each], ends[each]) for each in partitions if stable[each] < ends[each]}


def wait_until_stable(servers: str, topics: Iterable[str], timeout_s: float) -> float:
    """Until no transaction is open in these topics and in the groups' offsets; how long that took."""
    began_s = time.monotonic()
    with Client(servers) as client:
        names = [*topics, OFFSETS_TOPIC]
        known = client.load(names)
        places = [TopicPartition(name, number) for name in names for number in known[name].partitions]
        while True:
            try:
                left = unstable(client, places)
            except ClientError:  # a broker that has just been started
                left = dict.fromkeys(places, (-1, -1))
            if not left:
                return time.monotonic() - began_s
            assert time.monotonic() - began_s < timeout_s, f"transactions hang for {timeout_s:.0f} s: {left}"
            time.sleep(LOOK_S)


def read_committed(servers: str, topic: str, *, isolation_level: str = "read_committed") -> dict[int, list[Message]]:
    """All records of each partition up to its last stable offset (or high watermark), in order."""
    with Client(servers) as client:
        places = [TopicPartition(topic, number) for number in client.topic(topic).partitions]
        found = end_offsets(client, places, committed=isolation_level == "read_committed")
        ends = {place.partition: end for place, end in found.items()}
    settings = {"group.id": "verify", "enable.auto.commit": False, "log_level": 0, "isolation.level": isolation_level}
    reader = Consumer({"bootstrap.servers": servers, **settings})
    try:
        reader.assign([Place(topic, number, 0) for number in ends])
        return _read_to(reader, topic, ends)
    finally:
        reader.close()


def _read_to(reader: Consumer, topic: str, ends: dict[int, int]) -> dict[int, list[Message]]:
    """The position moves past aborted records and markers too, so it tells where the end is."""
    found: dict[int, list[Message]] = {number: [] for number in ends}
    deadline_s = time.monotonic() + READ_TIMEOUT_S
    pending = {number for number, end in ends.items() if end > 0}
    while pending:
        assert time.monotonic() < deadline_s, f"{topic} cannot be read to {ends}"
        for message in reader.consume(5000, 0.1):
            assert message.error() is None, message.error()
            found[message.partition()].append(message)
        pending -= {each for each in pending if _is_read(reader, topic, each, ends[each], found[each])}
    return found


def _is_read(reader: Consumer, topic: str, partition: int, end: int, found: list[Message]) -> bool:
    last = found[-1].offset() if found else None
    if last is not None and last >= end - 1:
        return True
    position = reader.position([Place(topic, partition)])[0].offset
    return bool(position >= end)
