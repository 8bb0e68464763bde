"""How a node stops: acknowledge, hand over leadership, close connections, leave the quorum, close the logs.

The order matters. Where other brokers take over, leadership moves while connections are still served: followers fetch
what they lack, and clients learn of the new leaders. A broker that is alone has stopped reading requests, and
acknowledges what it appended first: a producer that gets NOT_LEADER_OR_FOLLOWER for that would send it again. The
quorum comes last: the others need its leader to move leadership. Each step has a time limit.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.model.ids import TopicPartition
from barnabas.model.ports import Clock
from barnabas.node.broker_lifecycle import BrokerLifecycle
from barnabas.node.broker_part import BrokerPart
from barnabas.runtime.raft_driver import RaftDriver

STEP_TIMEOUT_MS = 5_000
RESIGN_TIMEOUT_MS = 1_000


class Shutdown:
    def __init__(
        self,
        *,
        clock: Clock,
        broker: BrokerPart | None,
        is_alone: bool,
        lifecycle: BrokerLifecycle,
        driver: RaftDriver,
        end_connections: Callable[[], None],
        then: Callable[[dict[TopicPartition, int]], None],
    ) -> None:
        """``then`` gets the high watermarks as they were before leadership was handed over."""
        self._clock = clock
        self._broker = broker
        self._is_alone = is_alone
        self._lifecycle = lifecycle
        self._driver = driver
        self._end_connections = end_connections
        self._then = then
        self._high_watermarks: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        if self._broker is None:
            self._lifecycle.stop()
            self._resign()
        elif not self._is_alone:
            self._leave()
        else:
            self._within(STEP_TIMEOUT_MS, self._broker.broker.partitions.when_all_committed, self._leave)

    def _leave(self) -> None:
        assert self._broker is not None
        self._high_watermarks = self._broker.broker.partitions.high_watermarks()
        # librdkafka 2.10 and later do not reconnect after a Metadata response without brokers: where there is no other,
        # connections are closed before this one is fenced.
        self._lifecycle.leave(self._resign, self._end_connections if self._is_alone else lambda: None)

    def _resign(self) -> None:
        self._end_connections()
        self._within(RESIGN_TIMEOUT_MS, self._driver.stop, lambda: self._then(self._high_watermarks))

    def _within(self, timeout_ms: int, step: Callable[[Callable[[], None]], None], then: Callable[[], None]) -> None:
        """Goes on when the step has called back, or time is up."""
        is_over = False

        def over() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                then()

        timer = self._clock.call_at(self._clock.monotonic_ms() + timeout_ms, over)
        step(over)
