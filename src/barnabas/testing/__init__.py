"""A real broker inside a test process.

    from barnabas.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs on a thread and an event loop of its own, on a free port, in memory unless a folder is given, and touches
nothing of the host process: no signals, loop policy, garbage collector settings, limits or logging configuration.
With pytest, the fixtures ``barnabas_broker`` (one per test) and ``barnabas_session_broker`` (one per run) come with the
installed package; override ``barnabas_settings`` and ``barnabas_session_settings`` to change their settings.
"""

from __future__ import annotations

from barnabas.app.embedded import EmbeddedBroker
from barnabas.model.errors import StartError

__all__ = ["EmbeddedBroker", "StartError"]
