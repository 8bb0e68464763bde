"""Real brokers for tests: one inside the test process, or a cluster of processes.

    from barnabas.testing import EmbeddedBroker

    with EmbeddedBroker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs on a thread and an event loop of its own, on a free port, in memory unless a folder is given, and touches
nothing of the host process: no signals, loop policy, garbage collector settings, limits or logging configuration.

    from barnabas.testing import EmbeddedCluster

    with EmbeddedCluster(brokers=3) as cluster:
        cluster.kill(cluster.leader_of("orders", 0))

The brokers of a cluster are processes that can be killed, paused, restarted and cut off from each other.
With pytest, the fixtures ``barnabas_broker`` (one per test), ``barnabas_session_broker`` (one per run) and
``barnabas_cluster`` (three brokers per test) come with the installed package; override ``barnabas_settings``,
``barnabas_session_settings`` and ``barnabas_cluster_settings`` to change their settings.
"""

from __future__ import annotations

from barnabas.app.embedded import EmbeddedBroker
from barnabas.app.embedded_cluster import EmbeddedCluster
from barnabas.model.errors import StartError

__all__ = ["EmbeddedBroker", "EmbeddedCluster", "StartError"]
