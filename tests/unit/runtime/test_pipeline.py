"""The steps of the request pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.model.session import Refused
from barnabas.runtime.pipeline import Api, Loaded, Pipeline, Request, Session
from barnabas.wire import codec, header
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.error_codes import errors_in
from barnabas.wire.schema import Message


class Clock:
    def __init__(self) -> None:
        self.ns = 1000

    def monotonic_ns(self) -> int:
        self.ns += 10
        return self.ns


class Outlet:
    is_open = True

    def __init__(self) -> None:
        self.replies: list[Any] = []

    def on_reply(self, exchange: Any) -> None:
        self.replies.append(exchange)

    def close(self) -> None:
        self.is_open = False


class FastPath:
    """Answers everything once it has learnt anything."""

    def __init__(self) -> None:
        self.error_code = 0
        self.learnt = 0

    def learn(self, *_: object) -> None:
        self.learnt += 1

    def answer(self, _frame: memoryview, _body: int, _stop: int, correlation_id: int) -> bytes | None:
        return b"fast %d" % correlation_id if self.learnt else None


class Bench:
    def __init__(self, **steps: Any) -> None:
        self.seen: list[tuple[Request, Any]] = []
        self.answer: Message | None = HeartbeatResponse()
        self.reports: list[dict[str, Any]] = []
        self.paths: list[FastPath] = []
        self.apis = {
            0: self._api(0, "Produce", 3, 9, Loaded(ProduceRequest, self._handle, self._fast_path)),
            12: self._api(12, "Heartbeat", 0, 4, Loaded(HeartbeatRequest, self._handle)),
            16: self._api(16, "ListGroups", 0, 5, Loaded(ListGroupsRequest, self._handle)),
            18: self._api(18, "ApiVersions", 0, 4, Loaded(ApiVersionsRequest, self._handle)),
        }
        report = lambda _event, **fields: self.reports.append(fields)  # noqa: E731
        self.pipeline = Pipeline(self.apis, Clock(), report=report, **steps)  # type: ignore[arg-type]
        self.outlet = Outlet()
        self.session: Session = self.pipeline.open(self.outlet, "PLAINTEXT", "10.0.0.7")

    @staticmethod
    def _api(key: int, name: str, low: int, high: int, loaded: Loaded) -> Api:
        return Api(key=key, name=name, min_version=low, max_version=high, load=lambda: loaded, is_pipelined=key == 0)

    def _fast_path(self, _version: int) -> FastPath:
        self.paths.append(FastPath())
        return self.paths[-1]

    def _handle(self, request: Request, message: Any) -> Message | None:
        self.seen.append((request, message))
        return self.answer

    def send(self, message: Message, version: int, correlation_id: int = 7) -> Any:
        data = b"".join(header.frame_request(message, version, correlation_id, "client"))  # type: ignore[arg-type]
        view = memoryview(bytearray(data))
        return self.session.receive(view, 4, len(view))


def produce() -> ProduceRequest:
    return ProduceRequest(None, 1, 1000, [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"x" * 80)])])


def decoded(reply: Request, response: type[Message], version: int) -> Any:
    assert reply.chunks is not None
    data = b"".join(reply.chunks)
    _, body = header.decode_response_header(data, 4, len(data), header.response_header_version(response, version))
    return codec.decode(response, version, data, body)[0]


def test_a_request_is_decoded_handled_encoded_and_counted() -> None:
    bench = Bench()
    reply = bench.send(HeartbeatRequest("group", 3, "member"), 4)
    ((request, message),) = bench.seen
    assert (message.group_id, request.client_id, request.client_host, request.version) == (
        "group",
        "client",
        "10.0.0.7",
        4,
    )
    assert decoded(reply, HeartbeatResponse, 4) == HeartbeatResponse()
    counters = bench.apis[12].counters
    assert (counters.requests, counters.errors, counters.bytes_out) == (1, {}, reply.size)
    assert counters.bytes_in > 0
    assert counters.handled_ns == 10
    assert counters.parked_ns == 0


def test_a_parked_request_is_answered_once_and_its_wait_is_counted() -> None:
    bench = Bench()
    bench.answer = None
    request = bench.send(HeartbeatRequest(), 4)
    assert request.chunks is None
    request.reply(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    request.reply(HeartbeatResponse())
    assert bench.outlet.replies == [request]
    assert decoded(request, HeartbeatResponse, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    counters = bench.apis[12].counters
    assert counters.errors == {ErrorCode.REBALANCE_IN_PROGRESS: 1}
    assert counters.parked_ns > 0


def test_a_reply_to_a_client_that_has_gone_is_dropped() -> None:
    bench = Bench()
    bench.answer = None
    request = bench.send(HeartbeatRequest(), 4)
    bench.outlet.close()
    request.reply(HeartbeatResponse())
    assert request.chunks is None
    assert bench.outlet.replies == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "header"),
        (b"\x27\x0f\x00\x00\x00\x00\x00\x01\xff\xff", "API key 9999"),
        (b"\x00\x0c\x00\x63\x00\x00\x00\x01\xff\xff\x00", "Heartbeat version 99"),
        (b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x00\x7f", "malformed Heartbeat"),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, reason: str) -> None:
    bench = Bench()
    view = memoryview(bytearray(data))
    with pytest.raises(Refused, match=reason):
        bench.session.receive(view, 0, len(view))
    assert bench.seen == []


def test_an_unknown_version_of_api_versions_reaches_its_handler_as_version_0() -> None:
    bench = Bench()
    bench.answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    view = memoryview(bytearray(b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\x00"))
    bench.session.receive(view, 0, len(view))
    ((request, message),) = bench.seen
    assert (request.version, message) == (0, None)


def test_before_authentication_only_its_own_apis_pass() -> None:
    bench = Bench()
    bench.session.is_authenticated = False
    with pytest.raises(Refused, match="Heartbeat before authentication"):
        bench.send(HeartbeatRequest(), 4)
    bench.answer = ApiVersionsResponse()
    assert bench.send(ApiVersionsRequest(), 3).chunks is not None
    assert bench.apis[12].counters.refused == 1


class DenyGroups:
    generation = 1

    def refusal(self, request: Request, message: Any) -> Message | None:
        if request.api.key == 16:
            return ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return None


def test_what_is_not_allowed_never_reaches_its_handler() -> None:
    bench = Bench(authoriser=DenyGroups())
    reply = bench.send(ListGroupsRequest(), 3)
    assert decoded(reply, ListGroupsResponse, 3).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert bench.seen == []
    assert bench.apis[16].counters.errors == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 1}
    bench.send(HeartbeatRequest(), 4)
    assert len(bench.seen) == 1


class Strict:
    def __init__(self) -> None:
        self.charged: list[tuple[int, int]] = []
        self.throttle_ms = 0

    def charge(self, _session: Session, api_key: int, size_bytes: int) -> int:
        self.charged.append((api_key, size_bytes))
        return self.throttle_ms


def test_a_client_beyond_its_quota_is_told_and_muted() -> None:
    quota = Strict()
    bench = Bench(quota=quota)
    assert bench.send(HeartbeatRequest(), 4).throttle_ms == 0
    quota.throttle_ms = 150
    reply = bench.send(HeartbeatRequest(), 4)
    assert reply.throttle_ms == 150
    assert decoded(reply, HeartbeatResponse, 4).throttle_time_ms == 150
    assert [key for key, _ in quota.charged] == [12, 12]
    assert bench.apis[12].counters.throttled_ms == 150


def test_the_fast_path_belongs_to_one_session_and_passes_the_same_steps() -> None:
    quota = Strict()
    bench = Bench(quota=quota)
    bench.answer = ProduceResponse()
    assert bench.send(produce(), 9, 1).chunks is not None
    assert bench.send(produce(), 9, 2) == b"fast 2"
    assert len(bench.seen) == 1
    assert len(quota.charged) == 2
    bench.paths[0].error_code = ErrorCode.CORRUPT_MESSAGE
    bench.send(produce(), 9, 3)
    counters = bench.apis[0].counters
    assert (counters.requests, counters.errors) == (3, {ErrorCode.CORRUPT_MESSAGE: 1})

    other = bench.pipeline.open(Outlet(), "PLAINTEXT", "10.0.0.8")
    data = b"".join(header.frame_request(produce(), 9, 1, "client"))  # type: ignore[arg-type]
    assert isinstance(other.receive(memoryview(bytearray(data)), 4, len(data)), Request)
    assert len(bench.paths) == 2

    quota.throttle_ms = 5
    assert bench.send(produce(), 9, 4).throttle_ms == 5, "beyond its quota a request takes the ordinary steps"


def test_the_fast_path_forgets_when_the_rules_change() -> None:
    rules = DenyGroups()
    bench = Bench(authoriser=rules)
    bench.answer = ProduceResponse()
    bench.send(produce(), 9)
    assert isinstance(bench.send(produce(), 9), bytes)
    rules.generation += 1
    assert isinstance(bench.send(produce(), 9), Request)
    assert isinstance(bench.send(produce(), 9), bytes)


def test_a_handler_that_raises_costs_its_own_connection_and_is_reported() -> None:
    bench = Bench()

    def fail(_request: Request, _message: Any) -> Message:
        raise KeyError("bug")

    bench.apis[12] = bench._api(12, "Heartbeat", 0, 4, Loaded(HeartbeatRequest, fail))
    assert bench.send(HeartbeatRequest(), 4) is None
    (report,) = bench.reports
    assert (report["api"], report["version"], report["peer"]) == ("Heartbeat", 4, "10.0.0.7")


def test_errors_are_found_wherever_a_response_has_them() -> None:
    assert errors_in(HeartbeatResponse()) == []
    nested = ProduceResponse(
        [
            TopicProduceResponse(
                "a", partition_responses=[PartitionProduceResponse(0), PartitionProduceResponse(1, 2)]
            ),
            TopicProduceResponse("b", partition_responses=[PartitionProduceResponse(0, 87)]),
        ]
    )
    assert errors_in(nested) == [2, 87]
