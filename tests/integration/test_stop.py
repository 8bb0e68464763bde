"""Responses of a broker that is stopping.

Never of a cluster without brokers: librdkafka forgets whom it knew then, and does not come back.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.app.server import Server
from barnabas.client.wire import Client
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.api.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.api.produce import ProduceResponse
from tests.reliability.raw import Raw, batch, produce_request, wait_until


def server_of(broker: EmbeddedBroker) -> Server:
    assert broker._server is not None
    return broker._server


def test_connections_end_before_the_broker_is_fenced() -> None:
    broker = EmbeddedBroker().start()
    server, applied = server_of(broker), []
    node = server.node
    apply = node.broker.apply

    def note(delta: object, image: object) -> None:
        apply(delta, image)  # type: ignore[arg-type]
        me = node.broker.image.brokers[node.settings.id]
        applied.append((me.in_controlled_shutdown, me.fenced, len(server.limits.open)))

    node.broker.apply = note  # type: ignore[method-assign]
    with Client(broker.bootstrap_servers) as client:
        client.any_node()
        broker.stop()
    assert applied == [(True, False, 1), (True, True, 0)]


def test_what_was_appended_is_acknowledged_before_leadership_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told that the broker does not lead, an idempotent producer sends it again, and may find no place for it."""
    broker = EmbeddedBroker(data=str(tmp_path), settings={"barnabas.durable": True}).start()
    with Raw(broker.port) as raw:
        raw.create("t")
        server, held = server_of(broker), Held()
        node = server.node
        monkeypatch.setattr(node.broker.partitions.get("t", 0), "_disk", held)
        raw.send(produce_request("t", batch(b"before the stop")), 9)
        wait_until(lambda: held.syncs, "the flush is under way")
        halt = server.listeners[0].halt

        def halted() -> None:
            halt()
            raw.send(produce_request("t", batch(b"too late")), 9)
            server._loop.call_later(0.01, held.go_on, server.node._disk)

        monkeypatch.setattr(server.listeners[0], "halt", halted)
        broker.stop()
        _, reply = raw.receive(ProduceResponse, 9)
        (answer,) = reply.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert raw.is_closed()
    with EmbeddedBroker(data=str(tmp_path)) as again, Raw(again.port) as raw:
        assert raw.fetch("t").high_watermark == 1


class Held:
    """A disk whose syncs wait to be told to go on."""

    def __init__(self) -> None:
        self.syncs: list[tuple[Any, Any]] = []
        self.sync_names: Any = None

    def sync(self, file: Any, then: Any) -> None:
        self.syncs.append((file, then))

    def go_on(self, disk: Any) -> None:
        self.sync, self.sync_names = disk.sync, disk.sync_names  # type: ignore[method-assign]
        for file, then in self.syncs:
            disk.sync(file, then)


def test_a_fenced_broker_that_is_asked_names_itself() -> None:
    with EmbeddedBroker() as broker, Client(broker.bootstrap_servers) as client:
        fence(server_of(broker))
        answer = client.call(MetadataRequest(topics=None), MetadataResponse)
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, broker.host, broker.port)]


def fence(server: Server) -> None:
    """As a controller does that has not heard of the broker for too long."""
    node = server.node
    done = threading.Event()
    request = BrokerHeartbeatRequest(
        broker_id=server.settings.id,
        broker_epoch=node.broker_epoch,
        current_metadata_offset=node.controller.committed.next_offset,
        want_fence=True,
    )
    server._loop.call_soon_threadsafe(node.broker.to_controller, request, lambda _: done.set())
    assert done.wait(60)
    assert node.broker.image.brokers[node.settings.id].fenced
