"""A load generator that sends prepared requests, so that the client costs little.

CPU is that of the broker's process; the client and other processes on the machine hardly change it.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass

from barnabas.wire import batch, codec, header, records
from barnabas.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.schema import Message
from bench.systems import System

IN_FLIGHT = 5


@dataclass(frozen=True)
class Cost:
    """What ``count`` requests cost the broker."""

    count: int
    bytes: int
    cpu_s: float
    seconds: float

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_s / self.count * 1e6

    @property
    def cpu_ms_per_mb(self) -> float:
        return self.cpu_s * 1e3 / (self.bytes / 1e6)


class RawClient:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._scratch = bytearray(16 << 20)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        view = memoryview(self._scratch)
        self._fill(view[:4])
        size = int.from_bytes(view[:4], "big")
        self._fill(view[:size])
        return view[:size]

    def _fill(self, view: memoryview) -> None:
        got = 0
        while got < len(view):
            count = self._socket.recv_into(view[got:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            got += count

    def ask(self, request: Message, version: int) -> memoryview:
        self.send(frame(request, version))
        return self.receive()

    def close(self) -> None:
        self._socket.close()


def frame(request: Message, version: int) -> bytes:
    return b"".join(header.frame_request(request, version, 1, "bench"))  # type: ignore[arg-type]


def batch_of(size: int, record: int = 100) -> bytes:
    """About ``size`` bytes of records of ``record`` bytes each; one record where size is 0."""
    now_ms = int(time.time() * 1000)
    count = max(1, size // (record + 10))
    return records.encode_batch([records.Record(-1, now_ms, None, b"x" * record) for _ in range(count)])


def produce(system: System, topic: str, encoded: bytes, count: int, partitions: int = 8) -> Cost:
    client = RawClient(system.port)
    client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    frames = [
        frame(
            ProduceRequest(
                acks=1,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(number, encoded)])],
            ),
            9,
        )
        for number in range(partitions)
    ]
    _pipeline(client, frames, 200)
    cpu, began = system.cpu_s(), time.perf_counter()
    _pipeline(client, frames, count)
    cost = Cost(count, count * len(encoded), system.cpu_s() - cpu, time.perf_counter() - began)
    client.close()
    return cost


def _pipeline(client: RawClient, frames: list[bytes], count: int) -> None:
    for number in range(count):
        client.send(frames[number % len(frames)])
        if number >= IN_FLIGHT:
            client.receive()
    for _ in range(min(IN_FLIGHT, count)):
        client.receive()


def fetch(system: System, topic: str, max_bytes: int, count: int, partitions: int = 8) -> Cost:
    """Reads from the beginning, ``max_bytes`` at a time, one partition after the other."""
    client = RawClient(system.port)
    began = time.perf_counter()
    cpu = system.cpu_s()
    total = 0
    offsets = [0] * partitions
    for number in range(count):
        partition = number % partitions
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition, fetch_offset=offsets[partition], partition_max_bytes=max_bytes)
                    ],
                )
            ],
        )
        answer = client.ask(request, 11)
        total += len(answer)
        offsets[partition] = _next_offset(answer) or 0
    cost = Cost(count, total, system.cpu_s() - cpu, time.perf_counter() - began)
    client.close()
    return cost


def _next_offset(answer: memoryview) -> int | None:
    response, _ = codec.decode(FetchResponse, 11, answer, 4)
    content = response.responses[0].partitions[0].records
    last = None
    position = 0
    while content is not None and position + 61 <= len(content):  # type: ignore[arg-type]
        head = batch.read_header(content, position)  # type: ignore[arg-type]
        if position + head.size > len(content):  # type: ignore[arg-type]
            break
        last = head.next_offset
        position += head.size
    return last
