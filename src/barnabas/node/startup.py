"""How a node starts, from an opened metadata log to a broker that serves.

    QUORUM -> CONTROLLER -> BROKER -> RECOVERY -> UNFENCING -> SERVING
       any of these --a problem for the operator--> FAILED

Each phase sends a request to the controller and may have to wait: for a quorum without a leader, for a controller on
another node that is not up yet. Retriable errors are retried, and the log says what the node waits for; nothing
blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode, StartError
from barnabas.model.ports import Clock, Transport
from barnabas.wire.schema import Message

REQUEST_TIMEOUT_MS = 10_000
RETRY_MS = 200
REPORT_EVERY_MS = 5_000

WORTH_ANOTHER_TRY = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    }
)
"""The last one until the session of a former incarnation has expired."""


class Phase(Enum):
    QUORUM = "waiting for the quorum to have a leader"
    CONTROLLER = "registering the controller"
    BROKER = "registering the broker"
    RECOVERY = "opening the logs"
    UNFENCING = "waiting to be unfenced"
    SERVING = "serving"
    FAILED = "failed"


class Startup:
    """Asks the controller one thing after the other; ``Node`` says what, and what follows."""

    def __init__(
        self,
        *,
        transport: Transport,
        controller_id: Callable[[], int],
        clock: Clock,
        report: Callable[..., None],
        on_failure: Callable[[StartError], None],
    ) -> None:
        self.phase = Phase.QUORUM
        self._transport = transport
        self._controller_id = controller_id
        self._clock = clock
        self._report = report
        self._on_failure = on_failure
        self._reported_at_ms = clock.monotonic_ms()
        self._is_over = False

    def ask(self, phase: Phase, make_request: Callable[[], Message], then: Callable[[Any], None]) -> None:
        """``then`` gets a response without an error."""
        if self._is_over:
            return
        self.phase = phase

        def answered(response: Any) -> None:
            if self._is_over:
                return
            problem = _problem_of(response)
            if problem is None:
                then(response)
            elif problem.code in WORTH_ANOTHER_TRY:
                self._report_waiting(problem)
                self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, lambda: self.ask(phase, make_request, then))
            else:
                name = type(make_request()).__name__
                self.fail(StartError(f"The controller answered {name} with {problem}."))

        self._transport.send(self._controller_id(), make_request(), REQUEST_TIMEOUT_MS, answered)

    def fail(self, problem: StartError) -> None:
        if not self._is_over:
            self._is_over = True
            self.phase = Phase.FAILED
            self._on_failure(problem)

    def finish(self) -> None:
        self.phase = Phase.SERVING
        self._is_over = True

    def give_up(self) -> None:
        """The node stops before it has started."""
        self._is_over = True

    def _report_waiting(self, problem: ApiError) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._reported_at_ms >= REPORT_EVERY_MS:
            self._reported_at_ms = now_ms
            self._report("the node is not started yet", phase=self.phase.value, reason=str(problem))


def _problem_of(response: Any) -> ApiError | None:
    if isinstance(response, ApiError):
        return response
    return ApiError(ErrorCode(response.error_code)) if response.error_code else None
