"""Replay, where the order of records matters: several changes of one thing in one delta or in two."""

from __future__ import annotations

import pytest

from barnabas.core.metadata.delta import MetadataDelta
from barnabas.core.metadata.image import EMPTY_IMAGE, TOPIC_RESOURCE, MetadataImage
from barnabas.core.metadata.snapshot import records_of
from barnabas.model.errors import InvariantBroken
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import FeatureLevelRecord, NoOpRecord, ProducerIdsRecord
from barnabas.wire.stored.metadata_nodes import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from barnabas.wire.stored.metadata_security import UserScramCredentialRecord
from barnabas.wire.stored.metadata_topics import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

FIRST, SECOND = b"1" * 16, b"2" * 16


def replayed(base: MetadataImage, *records: Message) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta, delta.image(next_offset=1, raft_epoch=1, timestamp_ms=0)


def image_of(*records: Message) -> MetadataImage:
    return replayed(EMPTY_IMAGE, *records)[1]


def topic(topic_id: bytes = FIRST, name: str = "t", partitions: int = 1) -> list[Message]:
    return [TopicRecord(name=name, topic_id=topic_id), *(partition(topic_id, n) for n in range(partitions))]


def partition(topic_id: bytes = FIRST, number: int = 0, **fields: object) -> Message:
    values: dict[str, object] = {
        "replicas": [1, 2],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [b"a" * 16, b"b" * 16],
    }
    return PartitionRecord(partition_id=number, topic_id=topic_id, **(values | fields))  # type: ignore[arg-type]


def change(topic_id: bytes = FIRST, number: int = 0, **fields: object) -> Message:
    return PartitionChangeRecord(partition_id=number, topic_id=topic_id, **fields)  # type: ignore[arg-type]


def setting(value: str | None, key: str = "flush.ms", name: str = "t") -> Message:
    return ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=value)


def test_a_partition_changed_after_its_creation_in_the_same_delta() -> None:
    image = image_of(*topic(), change(leader=2), change(isr=[2]))
    (state,) = image.topics["t"].partitions
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 1, 2)
    assert state.in_sync_replicas == (2,)


def test_a_topic_deleted_and_created_again_in_one_delta() -> None:
    base = image_of(*topic(partitions=3), setting("5"))
    delta, image = replayed(base, RemoveTopicRecord(topic_id=FIRST), *topic(SECOND), setting("6", "segment.ms"))
    assert list(delta.removed_topics) == [FIRST]
    assert delta.changed_topics == {SECOND}
    assert delta.changed_configs == {(TOPIC_RESOURCE, "t")}
    assert image.topics["t"].topic_id == SECOND
    assert list(image.topics_by_id) == [SECOND]
    assert len(image.topics["t"].partitions) == 1
    assert image.topic_configs("t") == {"segment.ms": "6"}
    assert len(base.topics["t"].partitions) == 3, "the old image is as it was"


def test_a_topic_deleted_and_created_again_in_two_deltas() -> None:
    base = image_of(*topic(), setting("5"))
    delta, without = replayed(base, RemoveTopicRecord(topic_id=FIRST))
    assert (without.topics, without.topics_by_id, without.configs) == ({}, {}, {})
    assert delta.changed_configs == {(TOPIC_RESOURCE, "t")}
    _, image = replayed(without, *topic(SECOND))
    assert image.topics["t"].topic_id == SECOND
    assert image.topic_configs("t") == {}


def test_a_topic_changed_and_then_deleted_in_one_delta() -> None:
    delta, image = replayed(image_of(*topic()), change(leader=2), RemoveTopicRecord(topic_id=FIRST))
    assert image.topics == {}
    assert delta.changed_topics == set()
    assert list(delta.removed_topics) == [FIRST]


def test_a_topic_that_lives_and_dies_in_one_delta_leaves_no_trace() -> None:
    delta, image = replayed(EMPTY_IMAGE, *topic(), setting("5"), RemoveTopicRecord(topic_id=FIRST))
    assert (image.topics, image.topics_by_id, image.configs) == ({}, {}, {})
    assert (delta.changed_topics, delta.removed_topics) == (set(), {})


@pytest.mark.parametrize(
    "records",
    [
        [change()],
        [RemoveTopicRecord(topic_id=FIRST)],
        [partition()],
        [*topic(), change(number=1)],
        [*topic(), change(number=-1)],
        [*topic(), partition(number=2)],
        [*topic(), topic()[0]],
        [*topic(), RemoveTopicRecord(topic_id=FIRST), change(leader=2)],
        [*topic(), RemoveTopicRecord(topic_id=FIRST), RemoveTopicRecord(topic_id=FIRST)],
        [FenceBrokerRecord(id=1, epoch=0)],
        [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, fenced=1)],
        [RegisterBrokerRecord(broker_id=1, broker_epoch=3), UnfenceBrokerRecord(id=1, epoch=2)],
        [UnregisterBrokerRecord(broker_id=1)],
    ],
    ids=lambda records: f"{len(records)}-{type(records[-1]).__name__}",
)
@pytest.mark.parametrize("deltas", ["one", "two"])
def test_a_log_that_contradicts_itself_stops_the_process(records: list[Message], deltas: str) -> None:
    base = image_of(*records[:-1]) if deltas == "two" else EMPTY_IMAGE
    with pytest.raises(InvariantBroken):
        replayed(base, *records[-1 if deltas == "two" else 0 :])


def test_the_last_removal_of_a_setting_removes_the_resource() -> None:
    base = image_of(*topic(), setting("5"), setting("6", "segment.ms"))
    _, one = replayed(base, setting(None))
    assert one.topic_configs("t") == {"segment.ms": "6"}
    _, none = replayed(one, setting(None, "segment.ms"), setting(None, "never.set"))
    assert none.configs == {}
    assert base.topic_configs("t") == {"flush.ms": "5", "segment.ms": "6"}


def test_set_and_removed_in_one_delta() -> None:
    assert image_of(*topic(), setting("5"), setting(None)).configs == {}
    assert image_of(*topic(), setting("5"), setting(None), setting("7")).topic_configs("t") == {"flush.ms": "7"}


def test_replicas_that_move_take_their_folders_along() -> None:
    (state,) = image_of(*topic(), change(replicas=[2, 3])).topics["t"].partitions
    assert state.directories == (b"b" * 16, bytes(16))
    given = [b"c" * 16, b"d" * 16]
    (state,) = image_of(*topic(), change(replicas=[2, 3], directories=given)).topics["t"].partitions
    assert state.directories == tuple(given)


@pytest.mark.parametrize("name", ["", "t"])
def test_eligible_leaders_are_cleared_where_there_are_any(name: str) -> None:
    eligible = partition(isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1])
    base = image_of(TopicRecord(name="t", topic_id=FIRST), eligible, *topic(SECOND, "other"))
    _, image = replayed(base, ClearElrRecord(topic_name=name))
    (state,) = image.topics["t"].partitions
    assert (state.eligible_leader_replicas, state.last_known_eligible, state.partition_epoch) == ((), (), 1)
    assert image.topics["other"].partitions[0].partition_epoch == 0


def test_eligible_leaders_of_a_deleted_topic_do_not_bring_it_back() -> None:
    _, image = replayed(image_of(*topic()), RemoveTopicRecord(topic_id=FIRST), ClearElrRecord())
    assert image.topics == {}


def test_flags_of_a_broker_change_one_by_one() -> None:
    base = image_of(RegisterBrokerRecord(broker_id=1, broker_epoch=3, log_dirs=[FIRST]))
    _, image = replayed(base, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=-1))
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown) == (False, False)
    _, image = replayed(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, in_controlled_shutdown=1))
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown) == (False, True)
    _, image = replayed(image, FenceBrokerRecord(id=1, epoch=3), UnfenceBrokerRecord(id=1, epoch=3))
    assert image.brokers[1].directories == (FIRST,)
    _, image = replayed(image, UnregisterBrokerRecord(broker_id=1, broker_epoch=3))
    assert image.brokers == {}


def test_a_feature_at_level_zero_is_gone() -> None:
    base = image_of(FeatureLevelRecord(name="f", feature_level=2))
    assert base.features == {"f": 2}
    assert replayed(base, FeatureLevelRecord(name="f", feature_level=0))[1].features == {}


def test_what_this_build_does_not_act_upon_is_kept_in_order() -> None:
    users = [UserScramCredentialRecord(name=name, mechanism=1) for name in ("b", "a", "b")]
    image = image_of(*users[:2], NoOpRecord())
    _, image = replayed(image, users[2], ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000))
    assert list(image.kept) == users
    assert [record for record in records_of(image) if isinstance(record, UserScramCredentialRecord)] == users
