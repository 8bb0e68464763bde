"""Settings of the quorum; ``model.broker_settings`` has their keys, defaults and documentation."""

from __future__ import annotations

from msgspec import Struct

from barnabas.model.broker_settings import BrokerSettings


class QuorumSettings(Struct, frozen=True, kw_only=True):
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 1500
    election_backoff_max_ms: int = 500
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    """How long a leader may hold a Fetch of ours; below the fetch time-out, or an idle quorum would elect."""
    fetch_max_bytes: int = 1 << 20
    snapshot_max_bytes: int = 1 << 20
    """Of one part of a snapshot."""
    auto_join: bool = False
    listener: str = "CONTROLLER"
    """The listener through which voters reach each other."""

    @classmethod
    def of(cls, settings: BrokerSettings) -> QuorumSettings:
        return cls(
            election_timeout_ms=settings.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=settings.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
            request_timeout_ms=settings.controller_quorum_request_timeout_ms,
            retry_backoff_ms=settings.controller_quorum_retry_backoff_ms,
            fetch_max_wait_ms=min(500, settings.controller_quorum_fetch_timeout_ms // 3),
            fetch_max_bytes=settings.controller_quorum_fetch_max_bytes,
            snapshot_max_bytes=settings.controller_quorum_fetch_snapshot_max_bytes,
            auto_join=settings.controller_quorum_auto_join_enable,
            listener=settings.controller_listener_names[0] if settings.controller_listener_names else "CONTROLLER",
        )

    @property
    def check_quorum_timeout_ms(self) -> int:
        """Longer than the fetch time-out of followers by half, as Kafka's: they elect before the leader resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_interval_ms(self) -> int:
        return max(1, self.fetch_timeout_ms // 2)

    @property
    def update_voter_interval_ms(self) -> int:
        return self.fetch_timeout_ms
