"""The life of a broker in its cluster, as it tells the controller.

    REGISTERING --registered, metadata caught up--> RECOVERING --logs open--> UNFENCING --unfenced--> SERVING
    SERVING --stop--> LEAVING --no leadership left, or time is up--> LEFT

Heartbeats begin with the registration. Until the logs are open they ask to stay fenced. A broker whose heartbeats are
not answered for a session stands down (``runtime.leader_lease``).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from barnabas.model.errors import ApiError, ErrorCode, StartError
from barnabas.model.ports import Clock, Timer
from barnabas.node.controller_link import ControllerLink
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.schema import Message

REQUEST_TIMEOUT_MS = 10_000
RETRY_MS = 200
SOON_MS = 50
"""Between heartbeats while something is waited for."""
REPORT_EVERY_MS = 5_000
LEAVE_TIMEOUT_MS = 15_000
"""For leadership to be handed over; where no controller answers, a session has to do."""

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    }
)
"""The last one until the session of a former incarnation has expired."""

PROBLEMS = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its data folder belongs to another cluster: give the folder of this cluster, "
    "or an empty one",
    ErrorCode.INVALID_REGISTRATION: "another broker has registered one of its data folders: a folder was copied, or "
    "two brokers were given the same one",
}


class Phase(Enum):
    QUORUM = "waiting for the quorum to have a leader"
    CONTROLLER = "registering the controller"
    REGISTERING = "registering the broker"
    CATCHING_UP = "reading the metadata log"
    RECOVERING = "opening the logs"
    UNFENCING = "waiting to be unfenced"
    SERVING = "serving"
    LEAVING = "handing over leadership"
    LEFT = "stopped"


class BrokerLifecycle:
    def __init__(
        self,
        *,
        broker_id: int,
        link: ControllerLink,
        metadata_offset: Callable[[], int],
        offline_directories: Callable[[], list[bytes]],
        heartbeat_ms: int,
        session_ms: int,
        on_answered: Callable[[int], None],
        clock: Clock,
        report: Callable[..., None],
        on_start_failure: Callable[[StartError], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """``metadata_offset`` is the next offset of the committed image.

        ``on_answered`` is called when the controller has answered and not fenced this broker, with the monotonic time
        at which the heartbeat was sent.
        """
        self.phase = Phase.QUORUM
        self.broker_epoch = -1
        self._broker_id = broker_id
        self._link = link
        self._metadata_offset = metadata_offset
        self._offline_directories = offline_directories
        self._heartbeat_ms = heartbeat_ms
        self._session_ms = session_ms
        self._on_answered = on_answered
        self._clock = clock
        self._report = report
        self._on_start_failure = on_start_failure
        self._on_failure = on_failure
        self._then: Callable[[], None] = lambda: None
        self._timer: Timer | None = None
        self._reported_at_ms = clock.monotonic_ms()
        self._is_asking = False
        self._controllers = 0
        """How many there have been; the answer of a former one does not count."""
        self._leave_by_ms = 0
        self._on_accepted: Callable[[], None] = lambda: None

    # Registration

    def ask(self, phase: Phase, request: Message, then: Callable[[Any], None]) -> None:
        """Asks the controller until it answers without an error."""
        if self.phase is Phase.LEFT:
            return
        self.phase = phase

        def answered(answer: Any) -> None:
            if self.phase is Phase.LEFT:
                return
            problem = _problem_of(answer)
            if problem is None:
                then(answer)
            elif self._may_pass(problem):
                self._report_waiting(problem)
                self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, lambda: self.ask(phase, request, then))
            else:
                self._refused(request, problem)

        self._link.send(request, REQUEST_TIMEOUT_MS, answered, retry=False)

    def _may_pass(self, problem: ApiError) -> bool:
        """The disk of another node may be full for a while; where it is this node's own, a start says so."""
        is_elsewhere = problem.code is ErrorCode.KAFKA_STORAGE_ERROR and not self._link.is_own
        return problem.code in RETRIABLE or is_elsewhere

    def _refused(self, request: Message, problem: ApiError) -> None:
        reason = PROBLEMS.get(problem.code)
        text = (
            f"The cluster refuses node {self._broker_id}: {reason}."
            if reason is not None
            else f"The controller answered {type(request).__name__} with {problem}."
        )
        self.phase = Phase.LEFT
        self._on_start_failure(StartError(text))

    def register(self, request: Message, then: Callable[[], None]) -> None:
        """``then`` is called when the metadata that this node has includes its registration."""

        def registered(answer: Any) -> None:
            self.broker_epoch = answer.broker_epoch
            self.phase = Phase.CATCHING_UP
            self._then = then
            self._beat()
            self.on_metadata()

        self.ask(Phase.REGISTERING, request, registered)

    def on_metadata(self) -> None:
        """A new image is committed."""
        if self.phase is Phase.CATCHING_UP and self._metadata_offset() > self.broker_epoch:
            self.phase = Phase.RECOVERING
            self._then()
        elif self.phase is Phase.UNFENCING:
            self._beat()

    def unfence(self, then: Callable[[], None]) -> None:
        """The logs are open, and the present image is applied: the broker may lead."""
        self.phase = Phase.UNFENCING
        self._then = then
        self._beat()

    # Heartbeats

    def on_controller(self) -> None:
        """Another controller is known: the one that was asked may never answer."""
        self._controllers += 1
        if self._is_asking:
            self._is_asking = False
            self._clock.call_at(self._clock.monotonic_ms(), self._beat)

    def _beat(self) -> None:
        if self.phase is Phase.LEFT or self._is_asking:
            return
        self._is_asking = True
        if self._timer is not None:
            self._timer.cancel()
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset() - 1,
            want_fence=self.phase in (Phase.CATCHING_UP, Phase.RECOVERING),
            want_shut_down=self.phase is Phase.LEAVING,
            offline_log_dirs=self._offline_directories(),
        )
        asked_in, sent_ms, controllers = self.phase, self._clock.monotonic_ms(), self._controllers

        def answered(answer: Any) -> None:
            if controllers == self._controllers:
                self._on_beat(asked_in, sent_ms, answer)

        self._link.send(
            request,
            self._session_ms // 2,  # another controller may be elected while one that is cut off holds the request
            answered,
            lane="heartbeat",
            retry=False,
        )

    def _on_beat(self, asked_in: Phase, sent_ms: int, answer: Any) -> None:
        self._is_asking = False
        if self.phase is Phase.LEFT:
            return
        problem = _problem_of(answer)
        if problem is None and not answer.is_fenced:
            self._on_answered(sent_ms)
        delay_ms = self._heartbeat_ms
        if problem is not None:
            delay_ms = min(SOON_MS, delay_ms)
            self._on_refused_beat(problem)
            if self.phase is Phase.LEAVING:
                self._leave_by_ms = min(self._leave_by_ms, self._clock.monotonic_ms() + self._session_ms)
        elif self.phase is not asked_in:
            delay_ms = 0
        elif self.phase is Phase.UNFENCING:
            if answer.is_fenced:
                delay_ms = min(SOON_MS, delay_ms)
            else:
                self.phase = Phase.SERVING
                self._then()
        elif self.phase is Phase.LEAVING:
            self._on_accepted()
            self._on_accepted = lambda: None
            if answer.should_shut_down:
                self._leave()
                return
            delay_ms = min(SOON_MS, delay_ms)
        if self.phase is Phase.LEAVING and self._clock.monotonic_ms() >= self._leave_by_ms:
            self._leave()
            return
        self._timer = self._clock.call_at(self._clock.monotonic_ms() + delay_ms, self._beat)

    def _on_refused_beat(self, problem: ApiError) -> None:
        if problem.code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            replaced = problem.code is ErrorCode.STALE_BROKER_EPOCH
            why = "another process has registered with it" if replaced else "it is no longer registered"
            self._on_failure(f"The cluster does not take node.id {self._broker_id} for this broker: {why}.")
        else:
            self._report_waiting(problem)

    # Leaving

    def leave(self, then: Callable[[], None], on_accepted: Callable[[], None] = lambda: None) -> None:
        """Hands over leadership, for as long as that may take; then this broker is fenced.

        ``on_accepted`` is called when the controller knows, before it fences.
        """
        if self.broker_epoch < 0 or self.phase is Phase.LEFT:
            self.phase = Phase.LEFT
            then()
            return
        self.phase = Phase.LEAVING
        self._then = then
        self._on_accepted = on_accepted
        self._leave_by_ms = self._clock.monotonic_ms() + LEAVE_TIMEOUT_MS
        self._beat()

    def _leave(self) -> None:
        then = self._then
        self.stop()
        then()

    def stop(self) -> None:
        """Sends nothing more."""
        self.phase = Phase.LEFT
        if self._timer is not None:
            self._timer.cancel()

    def _report_waiting(self, problem: ApiError) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._reported_at_ms >= REPORT_EVERY_MS:
            self._reported_at_ms = now_ms
            self._report("the controller cannot be asked", phase=self.phase.value, reason=str(problem))


def _problem_of(answer: Any) -> ApiError | None:
    if isinstance(answer, ApiError):
        return answer
    return ApiError(ErrorCode(answer.error_code)) if answer.error_code else None
