"""A raw client for tests: any request in any version, any bytes, replies read or ignored."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from barnabas.model.errors import ErrorCode
from barnabas.wire import codec, header
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.compression import Codec
from barnabas.wire.records import Record, encode_batch
from barnabas.wire.schema import Message
from tests.reliability.process import PATIENCE_S

R = TypeVar("R", bound=Message)

TIMEOUT_S = PATIENCE_S
PRODUCE_VERSION, FETCH_VERSION = 9, 12
_SIZE = struct.Struct(">i")


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)


def batch(*values: bytes, codec: Codec = Codec.NONE, timestamp: int | None = None, **fields: Any) -> bytes:
    at = int(time.time() * 1000) if timestamp is None else timestamp
    return encode_batch([Record(-1, at, b"key", value) for value in values or (b"value",)], codec=codec, **fields)


def produce_request(topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, records)])]
    return ProduceRequest(None, acks, 30_000, data)


def fetch_request(
    topic: str, offset: int = 0, *, max_bytes: int = 1 << 20, epoch: int = -1, **fields: Any
) -> FetchRequest:
    wanted = FetchPartition(0, epoch, offset, partition_max_bytes=max_bytes)
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": max_bytes, **fields}
    return FetchRequest(topics=[FetchTopic(topic, partitions=[wanted])], **fields)


def frame(message: Message, version: int, correlation_id: int = 1, client_id: str | None = "raw") -> bytes:
    return b"".join(bytes(chunk) for chunk in header.frame_request(message, version, correlation_id, client_id))


class Raw:
    """One connection."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", timeout_s: float = TIMEOUT_S, source: str | None = None
    ) -> None:
        place = (source, 0) if source else None
        self.socket = socket.socket()  # for __del__, should the next line fail
        self.socket.close()
        self.socket = socket.create_connection((host, port), timeout=timeout_s, source_address=place)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def __del__(self) -> None:
        self.socket.close()  # of a test that failed half way

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, message: Message, version: int) -> int:
        self._correlation_id += 1
        self.send_bytes(frame(message, version, self._correlation_id))
        return self._correlation_id

    def receive_frame(self) -> bytes:
        """(correlation id and) body of one reply; raises ConnectionError where the broker has closed."""
        return self._read(_SIZE.unpack(self._read(4))[0])

    def receive(self, answer: type[R], version: int) -> tuple[int, R]:
        body = self.receive_frame()
        found, at = header.decode_response_header(body, 0, len(body), header.response_header_version(answer, version))
        return found, codec.decode(answer, version, body, at)[0]

    def call(self, message: Message, answer: type[R], version: int) -> R:
        sent = self.send(message, version)
        correlation_id, reply = self.receive(answer, version)
        assert correlation_id == sent
        return reply

    def is_closed(self) -> bool:
        """Whether the broker ends the connection without a further byte. Waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def has_answer(self) -> bool:
        """Whether something is there to be received. Does not wait."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = self.socket.recv(min(size - len(parts), 1 << 20))
            if not data:
                raise ConnectionError("closed by the broker")
            parts += data
        return bytes(parts)

    # What tests do most

    def versions(self) -> ApiVersionsResponse:
        return self.call(ApiVersionsRequest(), ApiVersionsResponse, 2)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        listed = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest(topics=[CreatableTopic(name, partitions, 1, configs=listed)])
        answer = self.call(request, CreateTopicsResponse, 7).topics[0]
        assert answer.error_code == 0, (ErrorCode(answer.error_code).name, answer.error_message)

    def produce(self, topic: str, records: bytes | None = None, **fields: Any) -> PartitionProduceResponse:
        request = produce_request(topic, batch() if records is None else records, **fields)
        return self.call(request, ProduceResponse, PRODUCE_VERSION).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, **fields: Any) -> PartitionData:
        request = fetch_request(topic, offset, **fields)
        return self.call(request, FetchResponse, FETCH_VERSION).responses[0].partitions[0]
