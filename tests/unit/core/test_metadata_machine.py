"""The metadata machine against a simple model: random changes of brokers, topics and settings.

After every step the image is what the model says, the log and a snapshot both make the same image again, and what
must always hold of leaders, epochs and maps does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.core.decision import TimerFired
from barnabas.core.metadata import records as framing
from barnabas.core.metadata import topics
from barnabas.core.metadata.features import BOOTSTRAP_FEATURES, KNOWN_RANGES
from barnabas.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from barnabas.core.metadata.machine import Bootstrap, MetadataMachine, MetadataPolicy
from barnabas.core.metadata.snapshot import records_of
from barnabas.model.broker_settings import all_broker_settings
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import NO_LEADER
from barnabas.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.api.alter_configs import AlterableConfig as ReplacedConfig
from barnabas.wire.api.alter_configs import AlterConfigsRequest
from barnabas.wire.api.alter_configs import AlterConfigsResource as ReplacedResource
from barnabas.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.api.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import FeatureLevelRecord

CONTROLLER = 1
SESSION_MS = 9000
SET, DELETE = 0, 1
MAX_PARTITIONS = 12
"""In place of ten thousand in one request, so that the limit is met cheaply."""

NODES = st.sampled_from([1, 2, 3])
NAMES = st.sampled_from(["a", "a", "b.c", "b_c", "b.c", "b_c", "..", "e"])
VALID = {"retention.ms": ("1", "86400000"), "flush.ms": ("5",), "cleanup.policy": ("compact", "delete")}
SETTINGS = st.sampled_from(
    [*[(key, value) for key, values in VALID.items() for value in values] * 2, ("retention.ms", "x"), ("no.such", "1")]
)
CONFIGS = st.lists(SETTINGS, max_size=2, unique_by=lambda pair: pair[0]).map(dict)
ANY_TOPICS = st.lists(
    st.tuples(NAMES, st.sampled_from([-1, 1, 2, 0, 11]), st.sampled_from([-1, 1, 2, 3, 0, 4]), CONFIGS),
    min_size=1,
    max_size=3,
)
GOOD_TOPICS = st.lists(
    st.tuples(
        st.sampled_from(["b.c", "b_c", "e"]), st.sampled_from([1, 2, 11]), st.just(1), st.just({"flush.ms": "5"})
    ),
    min_size=2,
    max_size=3,
    unique_by=lambda topic: topic[0],
)
NEW_TOPICS = GOOD_TOPICS | ANY_TOPICS


def is_valid(configs: dict[str, str]) -> bool:
    return all(value in VALID.get(key, ()) for key, value in configs.items())


@dataclass
class ModelTopic:
    partitions: int
    configs: dict[str, str]


@dataclass
class ModelBroker:
    incarnation: int
    fenced: bool = True
    shutting_down: bool = False

    @property
    def serves(self) -> bool:
        return not self.fenced and not self.shutting_down


@dataclass
class Model:
    topics: dict[str, ModelTopic] = field(default_factory=dict)
    brokers: dict[int, ModelBroker] = field(default_factory=dict)
    broker_configs: dict[str, str] = field(default_factory=dict)
    deadlines: dict[int, int] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    producer_ids: int = 0


class MetadataMachineAgainstModel(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        serving=st.sampled_from([3, 3, 3, 1, 0]),
        factor=st.integers(1, 3),
        eligible=st.booleans(),
    )
    def begin(self, seed: int, serving: int, factor: int, eligible: bool) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(topics, "MAX_PARTITIONS_PER_REQUEST", MAX_PARTITIONS)
        self.random = random.Random(seed)
        self.policy = MetadataPolicy(
            node_id=CONTROLLER,
            cluster_id="c",
            broker_session_timeout_ms=SESSION_MS,
            static_settings={},
            broker_settings=all_broker_settings(),
        )
        self.machine = MetadataMachine(self.policy, self.random)
        self.log: list[Message] = []
        self.model = Model()
        self.now_ms = 0
        self.incarnations = 0
        if eligible:
            levels = [FeatureLevelRecord(name=name, feature_level=level) for name, level in BOOTSTRAP_FEATURES.items()]
            self.decide(Bootstrap(levels))
        # Most interesting things happen to a cluster that lives: random steps alone seldom make one.
        for node in range(1, serving + 1):
            self.register(node, again=False)
            self.heartbeat(node, "serve")
        if serving:
            self.create_topics([("a", 2, min(factor, serving), {"flush.ms": "5"})], validate_only=False)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    # Driving

    def decide(self, request: Any) -> Any:
        before, copy = self.machine.image, list(records_of(self.machine.image))
        decision = self.machine.decide("token", request, self.now_ms)
        assert self.machine.image is before
        assert list(records_of(before)) == copy, "decide changed durable state"
        for record in decision.records:
            assert framing.decode(framing.encode(record)) == record
        self.log += decision.records
        self.machine.replay(decision.records, next_offset=len(self.log), raft_epoch=1, timestamp_ms=0)
        self.check_epochs(before, self.machine.image)
        ((token, reply),) = decision.replies
        assert token == "token"
        self.appended = len(decision.records)
        return reply

    @staticmethod
    def check_epochs(before: MetadataImage, after: MetadataImage) -> None:
        for topic_id, topic in after.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            for was, now in zip(old.partitions if old else (), topic.partitions, strict=False):
                assert now.leader_epoch >= was.leader_epoch
                assert now.leader == was.leader or now.leader_epoch > was.leader_epoch
                assert now == was or now.partition_epoch > was.partition_epoch

    def image_of(self, batches: list[list[Message]]) -> MetadataImage:
        machine = MetadataMachine(self.policy, self.random)
        for batch in batches:
            machine.replay(batch, next_offset=len(self.log), raft_epoch=1, timestamp_ms=0)
        return machine.image

    # Brokers

    @rule(node=NODES, again=st.booleans(), clean=st.booleans())
    def register(self, node: int, again: bool, clean: bool = False) -> None:
        known = self.model.brokers.get(node)
        retry = again and known is not None
        if known is None or not retry:
            self.incarnations += 1
        incarnation = known.incarnation if known is not None and retry else self.incarnations
        # A broker that stopped cleanly knows its last epoch.
        is_clean = clean and known is not None and known.shutting_down and known.fenced
        reply = self.decide(
            BrokerRegistrationRequest(
                broker_id=node,
                cluster_id="c",
                incarnation_id=incarnation.to_bytes(16, "big"),
                listeners=[Listener(name="PLAINTEXT", host="h", port=1)],
                features=[Feature(name, low, high) for name, (low, high) in KNOWN_RANGES.items()],
                rack=None,
                log_dirs=[(1000 + node).to_bytes(16, "big")],
                previous_broker_epoch=self.machine.image.brokers[node].broker_epoch if is_clean else -1,
            )
        )
        if known is not None and not retry and self.is_alive(node, known):
            assert reply.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            assert self.appended == 0
            return
        assert reply.error_code == 0
        self.touch(node)
        if retry:
            assert self.appended == 0
        else:
            self.model.brokers[node] = ModelBroker(incarnation)

    def is_alive(self, node: int, broker: ModelBroker) -> bool:
        if broker.shutting_down or (node == CONTROLLER and node not in self.model.heard):
            return False
        if not broker.fenced:
            self.model.deadlines.setdefault(node, self.now_ms + SESSION_MS)
        # Overdue heartbeats, and the same folders: a process that has started again.
        return self.model.deadlines.get(node, self.now_ms) - self.now_ms > SESSION_MS * 3 // 5

    def touch(self, node: int) -> None:
        self.model.heard.add(node)
        self.model.deadlines[node] = self.now_ms + SESSION_MS

    @rule(node=NODES, want=st.sampled_from(["serve", "serve", "shut down", "fence", "stale", "behind"]))
    def heartbeat(self, node: int, want: str) -> None:
        known = self.model.brokers.get(node)
        image = self.machine.image.brokers.get(node)
        reply = self.decide(
            BrokerHeartbeatRequest(
                broker_id=node,
                broker_epoch=image.broker_epoch if image is not None and want != "stale" else -2,
                current_metadata_offset=-1 if want == "behind" else len(self.log),
                want_fence=want == "fence",
                want_shut_down=want == "shut down",
            )
        )
        if known is None or want == "stale":
            assert (reply.error_code, self.appended) == (ErrorCode.STALE_BROKER_EPOCH, 0)
            return
        self.touch(node)
        if want == "shut down":
            if known.serves:
                known.shutting_down = True
                assert not reply.should_shut_down
            else:
                known.fenced |= reply.should_shut_down
                others = any(other.serves for at, other in self.model.brokers.items() if at != node)
                assert reply.should_shut_down or others, "nobody to wait for"
        elif want == "fence":
            known.fenced = True
        elif want == "serve" and not known.shutting_down:
            known.fenced = False
        assert reply.is_fenced == known.fenced

    @rule(node=NODES, way=st.sampled_from(["crash", "clean", "pause"]), back=st.booleans())
    def stop(self, node: int, way: str, back: bool) -> None:
        """A broker goes, and perhaps comes back: what single steps in the right order seldom do."""
        if way == "clean":
            self.heartbeat(node, "shut down")
            self.heartbeat(node, "shut down")
        else:
            self.now_ms += SESSION_MS
            for other in sorted(self.model.brokers):
                if other != node and self.random.randrange(0, 2):
                    self.heartbeat(other, "behind")
            self.expire()
        if back:
            self.register(node, again=way == "pause", clean=way == "clean")
            self.heartbeat(node, "serve")

    @rule(wait_ms=st.sampled_from([1, 4500, 9000]))
    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    @rule()
    def expire(self) -> None:
        for node, broker in self.model.brokers.items():
            if not broker.fenced:
                self.model.deadlines.setdefault(node, self.now_ms + SESSION_MS)
        if CONTROLLER in self.model.heard and CONTROLLER in self.model.deadlines:
            self.model.deadlines[CONTROLLER] = self.now_ms + SESSION_MS  # it runs in this very process
        for node in [node for node, deadline in self.model.deadlines.items() if deadline <= self.now_ms]:
            del self.model.deadlines[node]
            self.model.brokers[node].fenced = True
            self.model.heard.discard(node)
        self.decide(TimerFired("sessions"))

    @rule()
    def lose_the_controller(self) -> None:
        """Another takes over: it has the log, and none of the sessions."""
        self.machine = MetadataMachine(self.policy, self.random)
        self.machine.replay(self.log, next_offset=len(self.log), raft_epoch=1, timestamp_ms=0)
        self.model.deadlines.clear()
        self.model.heard.clear()

    # Topics

    @rule(wanted=NEW_TOPICS, validate_only=st.sampled_from([False, False, True]))
    def create_topics(self, wanted: list[tuple[str, int, int, dict[str, str]]], validate_only: bool) -> None:
        reply = self.decide(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=count,
                        replication_factor=factor,
                        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                    )
                    for name, count, factor, configs in wanted
                ],
                validate_only=validate_only,
            )
        )
        names = [name for name, *_ in wanted]
        taken = {name.replace(".", "_") for name in self.model.topics}
        room = MAX_PARTITIONS
        created: dict[str, ModelTopic] = {}
        for name, count, factor, configs in wanted:
            partitions = 1 if count == -1 else count
            allowed = (
                names.count(name) == 1
                and name != ".."
                and name.replace(".", "_") not in taken
                and is_valid(configs)
                and 0 < partitions <= room
                and self.can_place(1 if factor == -1 else factor)
            )
            if allowed:
                created[name] = ModelTopic(partitions, configs)
                taken.add(name.replace(".", "_"))
                room -= partitions
        assert {result.name for result in reply.topics if not result.error_code} == set(created)
        assert [result.name for result in reply.topics] == list(dict.fromkeys(names))
        if validate_only or not created:
            assert self.appended == 0
        if not validate_only:
            self.model.topics |= created

    def can_place(self, factor: int) -> bool:
        usable = [broker for broker in self.model.brokers.values() if broker.serves or broker.fenced]
        return 0 < factor <= len(usable) and any(broker.serves for broker in usable)

    @precondition(lambda self: self.model.topics)
    @rule(names=st.lists(NAMES, min_size=1, max_size=3), by_id=st.booleans())
    def delete_topics(self, names: list[str], by_id: bool) -> None:
        known = self.machine.image.topics
        wanted = [
            DeleteTopicState(topic_id=known[name].topic_id) if by_id and name in known else DeleteTopicState(name=name)
            for name in names
        ]
        reply = self.decide(DeleteTopicsRequest(topics=wanted))
        gone = [name for name in dict.fromkeys(names) if names.count(name) == 1 and name in self.model.topics]
        assert [result.name for result in reply.responses if not result.error_code] == gone
        assert self.appended == len(gone)
        for name in gone:
            del self.model.topics[name]

    @rule(
        counts=st.lists(st.tuples(NAMES, st.integers(-1, 8)), min_size=1, max_size=2),
        validate_only=st.sampled_from([False, False, True]),
    )
    def create_partitions(self, counts: list[tuple[str, int]], validate_only: bool) -> None:
        widths = {name: len(topic.partitions[0].replicas) for name, topic in self.machine.image.topics.items()}
        wanted = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts]
        reply = self.decide(CreatePartitionsRequest(topics=wanted, validate_only=validate_only))
        names = [name for name, _ in counts]
        grown = {
            name: count
            for name, count in counts
            if names.count(name) == 1
            and name in self.model.topics
            and count > self.model.topics[name].partitions
            and self.can_place(widths[name])
        }
        assert {result.name for result in reply.results if not result.error_code} == set(grown)
        added = sum(count - self.model.topics[name].partitions for name, count in grown.items())
        assert self.appended == (0 if validate_only else added)
        if not validate_only:
            for name, count in grown.items():
                self.model.topics[name].partitions = count

    # Settings

    @rule(name=NAMES, sets=CONFIGS, deletes=st.sets(st.sampled_from(sorted(VALID)), max_size=2))
    def alter_topic(self, name: str, sets: dict[str, str], deletes: set[str]) -> None:
        changes: dict[str, str | None] = {**dict.fromkeys(sorted(deletes)), **sets}
        configs = [
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
        reply = self.decide(IncrementalAlterConfigsRequest(resources=[resource]))
        allowed = name in self.model.topics and is_valid(sets)
        self.check_altered(reply, allowed)
        if allowed:
            after = {**self.model.topics[name].configs, **changes}
            self.model.topics[name].configs = {key: value for key, value in after.items() if value is not None}

    @rule(name=NAMES, configs=CONFIGS)
    def replace_topic_configs(self, name: str, configs: dict[str, str]) -> None:
        given = [ReplacedConfig(name=key, value=value) for key, value in configs.items()]
        resource = ReplacedResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=given)
        reply = self.decide(AlterConfigsRequest(resources=[resource]))
        allowed = name in self.model.topics and is_valid(configs)
        self.check_altered(reply, allowed)
        if allowed:
            self.model.topics[name].configs = configs

    @rule(value=st.sampled_from(["5", "6", None]))
    def alter_all_brokers(self, value: str | None) -> None:
        config = AlterableConfig(
            name="log.retention.ms", config_operation=DELETE if value is None else SET, value=value
        )
        resource = AlterConfigsResource(resource_type=BROKER_RESOURCE, resource_name="", configs=[config])
        self.check_altered(self.decide(IncrementalAlterConfigsRequest(resources=[resource])), allowed=True)
        self.model.broker_configs = {} if value is None else {"log.retention.ms": value}

    def check_altered(self, reply: Any, allowed: bool) -> None:
        (response,) = reply.responses
        assert (response.error_code == 0) == allowed
        assert allowed or self.appended == 0

    @rule(node=NODES)
    def allocate_producer_ids(self, node: int) -> None:
        broker = self.machine.image.brokers.get(node)
        epoch = broker.broker_epoch if broker is not None else 0
        reply = self.decide(AllocateProducerIdsRequest(broker_id=node, broker_epoch=epoch))
        if broker is None:
            assert (reply.error_code, self.appended) == (ErrorCode.STALE_BROKER_EPOCH, 0)
        else:
            assert reply.producer_id_start == self.model.producer_ids
            self.model.producer_ids += reply.producer_id_len

    # What must always hold

    @invariant()
    def the_image_is_what_the_model_says(self) -> None:
        image, model = self.machine.image, self.model
        assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {
            name: topic.partitions for name, topic in model.topics.items()
        }
        expected = {(TOPIC_RESOURCE, name): topic.configs for name, topic in model.topics.items() if topic.configs}
        if model.broker_configs:
            expected[BROKER_RESOURCE, ""] = model.broker_configs
        assert image.configs == expected
        assert {node: (broker.fenced, broker.in_controlled_shutdown) for node, broker in image.brokers.items()} == {
            node: (broker.fenced, broker.shutting_down) for node, broker in model.brokers.items()
        }
        assert image.next_producer_id == model.producer_ids

    @invariant()
    def names_and_ids_agree(self) -> None:
        image = self.machine.image
        assert len(image.topics) == len(image.topics_by_id)
        for name, topic in image.topics.items():
            assert topic.name == name
            assert image.topics_by_id[topic.topic_id] is topic

    @invariant()
    def leaders_are_in_sync_and_serve(self) -> None:
        image = self.machine.image
        for topic in image.topics.values():
            for partition in topic.partitions:
                assert len(partition.directories) == len(partition.replicas) == len(set(partition.replicas))
                assert set(partition.in_sync_replicas) <= set(partition.replicas)
                assert set(partition.eligible_leader_replicas) <= set(partition.replicas)
                assert not set(partition.eligible_leader_replicas) & set(partition.in_sync_replicas)
                known = [partition.in_sync_replicas, partition.eligible_leader_replicas, partition.last_known_eligible]
                assert any(known), "nobody may ever lead again"
                candidates = next(members for members in known if members)
                may_lead = [node for node in candidates if image.brokers[node].serves]
                if image.features.get("eligible.leader.replicas.version"):
                    assert all(image.brokers[node].serves for node in partition.in_sync_replicas)
                if partition.leader == NO_LEADER:
                    assert not may_lead, "a broker that may lead does not"
                else:
                    assert partition.leader in partition.in_sync_replicas
                    assert image.brokers[partition.leader].serves

    @invariant()
    def the_log_makes_the_same_image(self) -> None:
        batches: list[list[Message]] = [[]]
        for record in self.log:
            if self.random.randrange(0, 3) == 0:
                batches.append([])
            batches[-1].append(framing.decode(framing.encode(record)))
        if self.log:
            assert self.image_of(batches) == self.machine.image
            assert self.image_of([self.log]) == self.machine.image

    @invariant()
    def a_snapshot_makes_the_same_image(self) -> None:
        written = [framing.encode(record) for record in records_of(self.machine.image)]
        if self.log:
            assert self.image_of([framing.decode_all(written)]) == self.machine.image


TestMetadataMachineAgainstModel = MetadataMachineAgainstModel.TestCase
TestMetadataMachineAgainstModel.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
