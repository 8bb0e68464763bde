"""What clients are told by a broker that stops.

Never of a cluster without brokers: librdkafka forgets whom it knew then, and does not come back.
"""

from __future__ import annotations

import threading

from barnabas.app.node import Node
from barnabas.client.wire import Client
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.api.metadata import MetadataRequest, MetadataResponse


def node_of(broker: EmbeddedBroker) -> Node:
    node = broker._node
    assert node is not None
    return node


def test_connections_end_before_the_broker_is_fenced() -> None:
    broker = EmbeddedBroker().start()
    node, applied = node_of(broker), []
    apply = node.broker.apply

    def note(delta: object, image: object) -> None:
        apply(delta, image)  # type: ignore[arg-type]
        me = node.broker.image.brokers[node.settings.id]
        applied.append((me.in_controlled_shutdown, me.fenced, len(node._limits.open)))

    node.broker.apply = note  # type: ignore[method-assign]
    with Client(broker.bootstrap_servers) as client:
        client.any_node()
        broker.stop()
    assert applied == [(True, False, 1), (True, True, 0)]


def test_a_fenced_broker_that_is_asked_names_itself() -> None:
    with EmbeddedBroker() as broker, Client(broker.bootstrap_servers) as client:
        fence(node_of(broker))
        answer = client.call(MetadataRequest(topics=None), MetadataResponse)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, broker.host, broker.port)]


def fence(node: Node) -> None:
    """As a controller does that has not heard of the broker for too long."""
    done = threading.Event()
    request = BrokerHeartbeatRequest(
        broker_id=node.settings.id,
        broker_epoch=node.broker_epoch,
        current_metadata_offset=node.controller.committed.next_offset,
        want_fence=True,
    )
    node._loop.call_soon_threadsafe(node.controller.submit, request, lambda _: done.set())
    assert done.wait(60)
    assert node.broker.image.brokers[node.settings.id].fenced
