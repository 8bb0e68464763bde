"""Start and recovery times, memory and idle CPU."""

from __future__ import annotations

import time

from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from bench import raw
from bench.systems import System, answers


def start_to_first_ack(system: System) -> float:
    """Seconds from the start of the process to the acknowledgement of a message."""
    began = time.perf_counter()
    system.start()
    return _first_ack(system, began)


def _first_ack(system: System, began: float) -> float:
    batch = raw.batch_of(0)
    produce = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="first", partition_data=[PartitionProduceData(0, batch)])],
    )
    while time.perf_counter() - began < 120:
        if answers(system.port):
            client = raw.RawClient(system.port)
            client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="first")]), 9)
            answer = bytes(client.ask(produce, 9))
            client.close()
            if b"\x00\x00\x00\x00\x00\x00" in answer[:24]:
                return time.perf_counter() - began
        time.sleep(0.005)
    raise RuntimeError(f"{system.name} acknowledged nothing within 120 s")


def recovery(system: System, batch_bytes: int, total_bytes: int) -> float:
    """Fills one partition, kills the broker, and times its next start to the first acknowledgement."""
    batch = raw.batch_of(batch_bytes)
    raw.produce(system, f"recover{batch_bytes}", batch, total_bytes // len(batch), partitions=1)
    system.kill()
    return start_to_first_ack(system)


def idle(system: System, seconds: float = 10.0) -> tuple[float, float]:
    """(memory in MB, share of a core) of an idle broker."""
    cpu = system.cpu_s()
    time.sleep(seconds)
    return system.memory_mb(), (system.cpu_s() - cpu) / seconds
