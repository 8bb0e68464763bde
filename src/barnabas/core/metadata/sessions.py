"""Broker sessions: who has been heard of, and how far each broker has read the metadata log.

In memory only, as in Kafka: fencing is a record, the time of a heartbeat is not. A controller that becomes active gives
every unfenced broker a full session (``activate``), since it does not know when the former one heard of it. Only that
of the broker in the former controller's process began earlier: this node knows itself when it last heard of it.
"""

from __future__ import annotations

from barnabas.core.metadata.image import BrokerImage, MetadataImage
from barnabas.core.metadata.policy import MetadataPolicy

TIMER = "sessions"
LATE_MS = 100
"""A timer that fires later than this was held up."""
REFUSED_MS = 100
"""Refused connections over this time, and nothing heard meanwhile, end a session: the broker's process is gone."""


class Sessions:
    def __init__(self, policy: MetadataPolicy) -> None:
        self._policy = policy
        self._is_active = False
        """Whether this node is the active controller: only that one has timers."""
        self._is_armed = False
        self._armed_ms = 0
        self._deadlines: dict[int, int] = {}
        """Broker -> monotonic end of its session."""
        self._heard: set[int] = set()
        """Brokers that this controller has heard of itself."""
        self._offsets: dict[int, int] = {}
        """Broker -> the last metadata offset that it has applied."""
        self._refused_ms: dict[int, int] = {}
        """Broker -> when a connection to it was first refused since it was last heard of."""
        self._shutdown_offsets: dict[int, int] = {}
        """Broker that shuts down -> the metadata offset at which it led nothing more."""

    def activate(self, image: MetadataImage, now_ms: int, last_leader: tuple[int, int] | None = None) -> None:
        """``last_leader`` is (node, time) of the former controller as this one last heard of it, as a voter."""
        self._is_active, self._is_armed = True, False
        self._deadlines.clear()
        self._heard.clear()
        self._offsets.clear()
        self._refused_ms.clear()
        self._shutdown_offsets.clear()
        self._begin_missing(image, now_ms)
        if last_leader is not None and last_leader[0] in self._deadlines:
            self._shorten(*last_leader, now_ms)

    def _shorten(self, node_id: int, heard_ms: int, now_ms: int) -> None:
        """Its silence brought this controller in: the session has been running since. If it lives, it is heard of."""
        session_ms = self._policy.broker_session_timeout_ms
        ends_ms = max(heard_ms + session_ms, now_ms + session_ms * 2 // 5)
        self._deadlines[node_id] = min(ends_ms, self._deadlines[node_id])

    def _begin_missing(self, image: MetadataImage, now_ms: int) -> None:
        for node_id, broker in image.brokers.items():
            if not broker.fenced and node_id not in self._deadlines:
                self._deadlines[node_id] = now_ms + self._policy.broker_session_timeout_ms

    def touch(self, node_id: int, now_ms: int, metadata_offset: int = -1) -> None:
        self._deadlines[node_id] = now_ms + self._policy.broker_session_timeout_ms
        self._heard.add(node_id)
        self._offsets[node_id] = metadata_offset
        self._refused_ms.pop(node_id, None)

    def refuse(self, node_id: int, now_ms: int) -> None:
        """A connection to the broker was refused: its host is up, and nothing listens there.

        A broker that is cut off or paused does not refuse. One that has just been unfenced may not listen yet.
        """
        first_ms = self._refused_ms.setdefault(node_id, now_ms)
        if now_ms - first_ms >= REFUSED_MS and node_id != self._policy.node_id:
            self._deadlines[node_id] = now_ms

    def forget(self, node_id: int) -> None:
        self._deadlines.pop(node_id, None)
        self._offsets.pop(node_id, None)
        self._refused_ms.pop(node_id, None)
        self._shutdown_offsets.pop(node_id, None)
        self._heard.discard(node_id)

    def is_alive(self, broker: BrokerImage, now_ms: int) -> bool:
        """The broker of the controller's own process died with the controller, unless it has been heard of since."""
        if broker.node_id == self._policy.node_id and broker.node_id not in self._heard:
            return False
        if broker.node_id not in self._deadlines and not broker.fenced:
            self._deadlines[broker.node_id] = now_ms + self._policy.broker_session_timeout_ms
        return self._deadlines.get(broker.node_id, now_ms) > now_ms

    def is_overdue(self, node_id: int, now_ms: int) -> bool:
        """Not heard of for two fifths of a session, in which heartbeats are due several times."""
        session_ms = self._policy.broker_session_timeout_ms
        return self._deadlines.get(node_id, now_ms) - now_ms <= session_ms * 3 // 5

    def expire(self, image: MetadataImage, now_ms: int) -> list[BrokerImage]:
        """Ends the sessions that are over and returns the unfenced brokers among them.

        Not that of the broker in the controller's own process, once heard of: where this runs, it runs. A process that
        was paused finds its own heartbeat late, too.
        """
        self._begin_missing(image, now_ms)
        own = self._policy.node_id
        if own in self._heard and own in self._deadlines:
            self._deadlines[own] = now_ms + self._policy.broker_session_timeout_ms
        expired = sorted(node_id for node_id, deadline in self._deadlines.items() if deadline <= now_ms)
        for node_id in expired:
            self.forget(node_id)
        return [image.brokers[node] for node in expired if node in image.brokers and not image.brokers[node].fenced]

    # Controlled shutdown

    def may_stop(self, node_id: int, image: MetadataImage) -> bool:
        """Once it leads nothing: when the brokers that serve have read that others lead in its place."""
        offset = self._shutdown_offsets.setdefault(node_id, image.next_offset - 1)
        others = (broker.node_id for broker in image.brokers.values() if broker.serves and broker.node_id != node_id)
        return all(self._offsets.get(other, -1) >= offset for other in others)

    # Timer

    def timer(self, image: MetadataImage, now_ms: int) -> list[tuple[str, int]]:
        if not self._is_active or self._is_armed:
            return []
        # A broker without a session is unfenced still if the record that fences it could not be appended.
        later = now_ms + self._policy.broker_session_timeout_ms
        ends = [self._deadlines.get(node, later) for node, broker in image.brokers.items() if not broker.fenced]
        if not ends:
            return []
        self._is_armed = True
        self._armed_ms = min(ends)
        return [(TIMER, self._armed_ms)]

    def on_timer(self, now_ms: int) -> None:
        """A timer that is late says that this process stood still: heartbeats that arrived meanwhile wait to be read.

        Sessions last a while longer then, so that a controller that was paused or starved fences nobody for it.
        """
        is_late = self._is_armed and now_ms - self._armed_ms >= LATE_MS
        self._is_armed = False
        if is_late:
            least_ms = now_ms + self._policy.broker_session_timeout_ms // 4
            self._deadlines = {node_id: max(deadline, least_ms) for node_id, deadline in self._deadlines.items()}
