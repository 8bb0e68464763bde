"""When a broker sends heartbeats, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode
from barnabas.node.broker_lifecycle import BrokerLifecycle, Phase
from barnabas.sim.clock import NodeClock, Scheduler
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatResponse

HEARTBEAT_MS, SESSION_MS = 500, 2500


class Place:
    """A broker that serves, with its heartbeats in the hands of the test."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.sent: list[Callable[[Any], None]] = []
        self.answered: list[int] = []
        self.lifecycle = BrokerLifecycle(
            broker_id=1,
            link=self,  # type: ignore[arg-type]
            metadata_offset=lambda: 10,
            offline_directories=list,
            heartbeat_ms=HEARTBEAT_MS,
            session_ms=SESSION_MS,
            on_answered=self.answered.append,
            clock=NodeClock(self.scheduler),
            report=lambda *_, **__: None,
            on_start_failure=lambda _: None,
            on_failure=lambda _: None,
        )
        self.lifecycle.unfence(lambda: None)
        self.sent[-1](BrokerHeartbeatResponse(is_fenced=False))
        assert self.lifecycle.phase is Phase.SERVING

    def send(self, _request: object, _timeout_ms: int, then: Callable[[Any], None], **_: object) -> None:
        self.sent.append(then)

    def run(self, ms: int) -> None:
        self.scheduler.run_until(self.scheduler.now_ms + ms)


def test_a_new_controller_hears_of_the_broker_at_once() -> None:
    place = Place()
    place.run(HEARTBEAT_MS)
    assert len(place.sent) == 2, "the second heartbeat waits for an answer"
    place.lifecycle.on_controller()
    place.run(0)
    assert len(place.sent) == 3


def test_the_answer_of_a_former_controller_does_not_count() -> None:
    place = Place()
    place.run(HEARTBEAT_MS)
    count = len(place.answered)
    place.lifecycle.on_controller()
    place.run(0)
    place.sent[1](ApiError(ErrorCode.REQUEST_TIMED_OUT))
    place.sent[1](BrokerHeartbeatResponse(is_fenced=False))
    assert len(place.answered) == count
    place.run(HEARTBEAT_MS)
    assert len(place.sent) == 3, "the third is still under way"
    place.sent[2](BrokerHeartbeatResponse(is_fenced=False))
    assert len(place.answered) == count + 1
    place.run(HEARTBEAT_MS)
    assert len(place.sent) == 4


def test_heartbeats_between_answers_keep_their_interval() -> None:
    place = Place()
    place.lifecycle.on_controller()
    place.run(HEARTBEAT_MS - 1)
    assert len(place.sent) == 1
    place.run(1)
    assert len(place.sent) == 2
