"""Many partitions at once: fenced, elected and balanced in steps that keep the controller answering."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.core.decision import TimerFired
from barnabas.core.metadata.elections import MAX_CHANGES_PER_STEP
from barnabas.model.ids import OFFSETS_TOPIC
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from tests.unit.core.metadata_cluster import SESSION_MS, Cluster

PARTITIONS = 10_000


@pytest.fixture(name="cluster", scope="module")
def make_cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create("orders", [[1, 2, 3]] * (PARTITIONS - 50))
    cluster.create(OFFSETS_TOPIC, [[1, 2, 3]] * 50)
    return cluster


def expire(cluster: Cluster, *survivors: int) -> None:
    cluster.now_ms += SESSION_MS - 1
    for node in survivors:
        cluster.heartbeat(node)
    cluster.now_ms += 1


def test_a_broker_with_many_partitions_falls_and_returns(cluster: Cluster) -> None:
    expire(cluster, 2, 3)
    cluster.largest_decision = 0
    (name,) = [name for name, at in cluster.timers.items() if at <= cluster.now_ms]
    assert name == "sessions"
    before = cluster.image
    fired = cluster.fire_due()
    assert fired >= PARTITIONS // MAX_CHANGES_PER_STEP
    assert cluster.largest_decision <= MAX_CHANGES_PER_STEP + 1
    assert not cluster.machine.index.led_by(1)
    assert not cluster.machine.index.in_sync_with(1)
    cluster.check()
    assert before.brokers[1].serves
    assert not cluster.image.brokers[1].serves

    # All of them fall: nobody leads. One returns, and leads everything again, in steps too.
    expire(cluster)
    cluster.fire_due()
    assert len(cluster.machine.index.leaderless) == PARTITIONS
    cluster.largest_decision = 0
    cluster.heartbeat(3)
    cluster.fire_due()
    assert cluster.largest_decision <= MAX_CHANGES_PER_STEP + 1
    assert len(cluster.machine.index.led_by(3)) == PARTITIONS
    cluster.check()


def test_internal_topics_are_elected_first() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("orders", [[1, 2]] * 600)
    cluster.create(OFFSETS_TOPIC, [[1, 2]] * 50)
    cluster.heartbeat(1, shutdown=True)
    assert all(partition.leader == 2 for partition in cluster.image.topics[OFFSETS_TOPIC].partitions)
    assert any(partition.leader == 1 for partition in cluster.image.topics["orders"].partitions)
    assert not cluster.heartbeat(1, shutdown=True).should_shut_down  # it leads still
    cluster.fire_due()
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, shutdown=True).should_shut_down


def test_another_controller_goes_on_where_the_first_stopped() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("orders", [[1, 2]] * 1200)
    cluster.heartbeat(1, shutdown=True)  # the first step
    assert cluster.machine.index.led_by(1)
    cluster.fail_over()
    cluster.fire_due()
    assert not cluster.machine.index.led_by(1)
    cluster.check()


def test_another_controller_elects_those_that_wait() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create("orders", [[1]] * 1200)
    expire(cluster)
    cluster.fire_due()
    cluster.heartbeat(1)  # the first step
    assert cluster.machine.index.leaderless
    cluster.fail_over()
    cluster.fire_due()
    assert len(cluster.machine.index.led_by(1)) == 1200


def test_a_step_that_was_not_appended_is_repeated() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("orders", [[1, 2]] * 700)
    cluster.heartbeat(1, shutdown=True)
    cluster.fails_appends = True
    cluster.fire_due()
    cluster.fails_appends = False
    cluster.heartbeat(2)
    cluster.wait(1000)
    assert not cluster.machine.index.led_by(1)
    cluster.check()


def test_a_broker_that_could_not_be_fenced_is_fenced_later() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.create("orders", [[1]])
    cluster.fails_appends = True
    cluster.wait(SESSION_MS)
    cluster.fails_appends = False
    assert cluster.image.brokers[1].serves
    cluster.wait(SESSION_MS)
    cluster.wait(SESSION_MS)
    assert cluster.image.brokers[1].fenced


def test_leaders_return_in_steps() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("orders", [[1, 2]] * 1200, min_insync_replicas="2")
    expire(cluster)
    cluster.fire_due()
    cluster.heartbeat(2)
    cluster.fire_due()
    assert len(cluster.machine.index.led_by(2)) == 1200
    cluster.heartbeat(1)
    keys = [key for key, _ in cluster.partitions()]
    assert not any(cluster.alter_partition(keys, [2, 1]))
    cluster.now_ms = cluster.timers["leader balance"]
    cluster.timers["sessions"] = cluster.now_ms + 1
    cluster.largest_decision = 0
    cluster.fire_due()
    assert cluster.largest_decision == MAX_CHANGES_PER_STEP
    assert len(cluster.machine.index.led_by(1)) == 1200
    cluster.check()


class Unwalked(dict[Any, Any]):
    """Answers single questions only."""

    def __iter__(self) -> Any:
        raise AssertionError("a decision walked through all topics")

    keys = values = items = __iter__


def test_decisions_about_a_broker_look_at_its_own_partitions_only() -> None:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create("orders", [[1, 2]] * 3)
    cluster.create("others", [[2, 3]] * 1000)
    image = cluster.image
    cluster.machine.image = replace(image, topics=Unwalked(image.topics), topics_by_id=Unwalked(image.topics_by_id))
    epoch = image.brokers[1].broker_epoch
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=len(cluster.log))
    assert not cluster.machine.decide("token", beat, 0).records
    for node in (2, 3):
        beat = replace(beat, broker_id=node, broker_epoch=image.brokers[node].broker_epoch)
        cluster.machine.decide("token", beat, SESSION_MS - 1)
    assert len(cluster.machine.decide("token", TimerFired("sessions"), SESSION_MS).records) == 1 + 3
