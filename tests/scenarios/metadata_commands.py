"""Scenario commands of the metadata machine on node 1. Decisions are appended and replayed at once.

    cluster 3 [eligible=0] [racks=a,a,b]                     (brokers 1 to 3 serve, the controller is active)
    register 1 [incarnation=a] [directory=d,e] [cluster=c] [rack=r] [previous=3] [zookeeper] [feature:name=0-1 …]
    heartbeat 1 [offset=3] [epoch=2] [fence] [shutdown] [offline=d] [cordoned=d]
    controller 1                                             wait 9000           (milliseconds)
    activate [2@1000]   (the former controller was heard at)   timer elections     (fires it)
    expire       (the timer of sessions)                     bootstrap feature=1 …
    refused 1    (nothing listens at broker 1's address)
    unregister 1                                             features [validate] [downgrade|unsafe] feature=1 …
    create [validate]                                        delete orders id:orders …
      orders [partitions=2] [replicas=1] [assign=1,2/2,1] [setting=value …]
    partitions [validate]                                    alter|replace [validate]
      orders 4 [assign=1/2]                                    topic:orders set:retention.ms=5 delete:flush.ms
    in_sync 1 [epoch=2]                                      assign 1 [epoch=2]
      orders:0 1,2@7 [leader_epoch=1] [partition_epoch=2] [recovering]      d orders:0 …
    reassign [same_width]                                    elect preferred|unclean [orders:0 …]
      orders:0 2,3 | orders:0 cancel                         reassignments [orders:0 …]
    allocate 1 [epoch=2]                                     image [partitions]

    restart      another controller, which has only the log
    snapshot     another controller, which has only a snapshot

Topics of a request stand on lines of their own. Replies come first, then each record with a plus sign, then each timer
with a tilde.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from barnabas.core.decision import TimerFired
from barnabas.core.metadata import records as framing
from barnabas.core.metadata.features import KNOWN_RANGES
from barnabas.core.metadata.image import BrokerImage, MetadataImage, PartitionImage
from barnabas.core.metadata.machine import Activate, Bootstrap, BrokerRefused, MetadataMachine, MetadataPolicy
from barnabas.core.metadata.snapshot import records_of
from barnabas.model.broker_settings import all_broker_settings
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import ZERO_UUID
from barnabas.wire.api import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_control import FeatureLevelRecord

RESOURCES = {"topic": 2, "broker": 4, "group": 32}
OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}
CLUSTER = "c"


class CountingRandom:
    """Ids are 1, 2, 3 …; every choice is the first."""

    def __init__(self) -> None:
        self._count = 0

    def randrange(self, start: int, stop: int, /) -> int:
        return start

    def randbytes(self, n: int, /) -> bytes:
        self._count += 1
        return self._count.to_bytes(n, "big")


class MetadataScenario:
    def __init__(self) -> None:
        self._policy = MetadataPolicy(
            node_id=1, cluster_id=CLUSTER, static_settings={}, broker_settings=all_broker_settings()
        )
        self._random = CountingRandom()
        self._machine = MetadataMachine(self._policy, self._random)
        self._log: list[Message] = []
        self._now_ms = 0

    def run(self, command: list[str]) -> list[str]:
        name, *words = command[0].split()
        run: Callable[[list[str], list[str]], list[str]] = getattr(self, f"_{name}")
        return run(words, command[1:])

    def _decide(self, request: Any, answer: Callable[[Any], list[str]]) -> list[str]:
        before = self._machine.image
        try:
            decision = self._machine.decide("token", request, self._now_ms)
        except ApiError as problem:
            return [f"{problem.code.name}: {problem.message}"]
        assert self._machine.image is before, "decide changed durable state"
        ((_, reply),) = decision.replies
        self._log += [framing.decode(framing.encode(record)) for record in decision.records]
        self._replay(self._machine, list(decision.records))
        return [
            *answer(reply),
            *(f"+ {_record(record)}" for record in decision.records),
            *(f"~ {name} at {deadline_ms}" for name, deadline_ms in decision.timers),
        ]

    def _replay(self, machine: MetadataMachine, records: list[Message]) -> None:
        machine.replay(records, next_offset=len(self._log), raft_epoch=1, timestamp_ms=0)

    # Brokers

    def _cluster(self, words: list[str], _: list[str]) -> list[str]:
        # The controller is none of these brokers.
        self._policy = replace(self._policy, node_id=100)
        self._machine = MetadataMachine(self._policy, self._random)
        options = _options(words[1:])
        racks = options["racks"].split(",") if "racks" in options else []
        self._bootstrap(["metadata.version=30", f"eligible.leader.replicas.version={options.get('eligible', 1)}"], [])
        nodes = [str(1 + n) for n in range(int(words[0]))]
        for n, node in enumerate(nodes):
            self._register([node, f"rack={racks[n]}"] if racks else [node], [])
            self._heartbeat([node], [])
        self._activate([], [])
        return [f"broker {node} epoch={self._machine.image.brokers[int(node)].broker_epoch}" for node in nodes]

    def _register(self, words: list[str], _: list[str]) -> list[str]:
        options = _options(words[1:])
        request = broker_registration.BrokerRegistrationRequest(
            broker_id=int(words[0]),
            cluster_id=options.get("cluster", CLUSTER),
            incarnation_id=options.get("incarnation", "a").encode().rjust(16, b"\0"),
            listeners=[broker_registration.Listener(name="PLAINTEXT", host="host", port=9092)],
            features=[broker_registration.Feature(name, low, high) for name, (low, high) in _ranges(options).items()],
            rack=options.get("rack"),
            is_migrating_zk_broker="zookeeper" in words,
            log_dirs=_directories(options.get("directory", f"d{words[0]}")),
            previous_broker_epoch=int(options.get("previous", "-1")),
        )
        return self._decide(request, lambda r: [_error(r) or f"broker_epoch={r.broker_epoch}"])

    def _heartbeat(self, words: list[str], _: list[str]) -> list[str]:
        broker = self._machine.image.brokers.get(int(words[0]))
        options = _options(words[1:])
        request = broker_heartbeat.BrokerHeartbeatRequest(
            broker_id=int(words[0]),
            broker_epoch=int(options.get("epoch", broker.broker_epoch if broker else -1)),
            current_metadata_offset=int(options.get("offset", self._machine.image.next_offset)),
            want_fence="fence" in words,
            want_shut_down="shutdown" in words,
            offline_log_dirs=_directories(options.get("offline", "")),
            cordoned_log_dirs=_directories(options["cordoned"]) if "cordoned" in options else None,
        )
        return self._decide(request, _heartbeat_answer)

    def _controller(self, words: list[str], _: list[str]) -> list[str]:
        request = controller_registration.ControllerRegistrationRequest(
            controller_id=int(words[0]), incarnation_id=bytes(15) + b"i"
        )
        return self._decide(request, lambda r: [_error(r) or "ok"])

    def _wait(self, words: list[str], _: list[str]) -> list[str]:
        self._now_ms += int(words[0])
        return [f"now={self._now_ms}"]

    def _refused(self, words: list[str], _: list[str]) -> list[str]:
        broker = self._machine.image.brokers[int(words[0])]
        return self._decide(BrokerRefused(broker.node_id, broker.broker_epoch), lambda _: ["ok"])

    def _expire(self, _: list[str], __: list[str]) -> list[str]:
        return self._timer(["sessions"], [])

    def _timer(self, words: list[str], _: list[str]) -> list[str]:
        return self._decide(TimerFired(" ".join(words)), lambda _: ["ok"])

    def _activate(self, words: list[str], _: list[str]) -> list[str]:
        node, _, heard_ms = words[0].partition("@") if words else ("", "", "")
        former = (int(node), int(heard_ms)) if words else None
        return self._decide(Activate(former), lambda _: ["ok"])

    def _unregister(self, words: list[str], _: list[str]) -> list[str]:
        request = unregister_broker.UnregisterBrokerRequest(broker_id=int(words[0]))
        return self._decide(request, lambda r: [_error(r) or "ok"])

    # Topics

    def _create(self, words: list[str], lines: list[str]) -> list[str]:
        request = create_topics.CreateTopicsRequest(
            topics=[_creatable(line.split()) for line in lines], validate_only="validate" in words
        )

        def answer(response: create_topics.CreateTopicsResponse) -> list[str]:
            return [
                f"{r.name}: "
                + (_error(r) or f"id={_id(r.topic_id)} partitions={r.num_partitions} replicas={r.replication_factor}")
                for r in response.topics
            ]

        return self._decide(request, answer)

    def _delete(self, words: list[str], _: list[str]) -> list[str]:
        request = delete_topics.DeleteTopicsRequest(topics=[self._deletable(word) for word in words])

        def answer(response: delete_topics.DeleteTopicsResponse) -> list[str]:
            return [f"{r.name} id={_id(r.topic_id)}: {_error(r) or 'ok'}" for r in response.responses]

        return self._decide(request, answer)

    def _deletable(self, word: str) -> delete_topics.DeleteTopicState:
        if word == "nothing":
            return delete_topics.DeleteTopicState()
        if not word.startswith("id:"):
            return delete_topics.DeleteTopicState(name=word)
        topic = self._machine.image.topics.get(word[3:])
        return delete_topics.DeleteTopicState(topic_id=topic.topic_id if topic else b"\xff" * 16)

    def _partitions(self, words: list[str], lines: list[str]) -> list[str]:
        topics = []
        for name, count, *rest in map(str.split, lines):
            assign = _options(rest).get("assign")
            wanted = None
            if assign is not None:
                wanted = [create_partitions.CreatePartitionsAssignment(broker_ids=ids) for ids in _assignment(assign)]
            topics.append(create_partitions.CreatePartitionsTopic(name=name, count=int(count), assignments=wanted))
        request = create_partitions.CreatePartitionsRequest(topics=topics, validate_only="validate" in words)
        return self._decide(request, lambda response: [f"{r.name}: {_error(r) or 'ok'}" for r in response.results])

    def _place(self, word: str) -> tuple[str, bytes, int]:
        """(name, id, partition) of ``orders:0``."""
        name, _, number = word.partition(":")
        topic = self._machine.image.topics.get(name)
        return name, topic.topic_id if topic else b"\xff" * 16, int(number)

    def _in_sync(self, words: list[str], lines: list[str]) -> list[str]:
        api, image = alter_partition, self._machine.image
        topics = []
        for line in lines:
            place, members, *rest = line.split()
            name, topic_id, number = self._place(place)
            known = image.topics[name].partitions[number : number + 1] if name in image.topics else ()
            partition = known[0] if known else PartitionImage(replicas=(), in_sync_replicas=())
            options = _options(rest)
            wanted = api.AlterPartitionRequestPartitionData(
                partition_index=number,
                leader_epoch=int(options.get("leader_epoch", partition.leader_epoch)),
                partition_epoch=int(options.get("partition_epoch", partition.partition_epoch)),
                leader_recovery_state=int("recovering" in rest),
                new_isr_with_epochs=[self._member(member) for member in members.split(",")],
            )
            topics.append(api.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[wanted]))
        request = api.AlterPartitionRequest(broker_id=int(words[0]), broker_epoch=self._epoch(words), topics=topics)

        def answer(response: Any) -> list[str]:
            found = [(topic, partition) for topic in response.topics for partition in topic.partitions]
            return [_error(response)] if response.error_code else [_altered(t.topic_id, p) for t, p in found]

        return self._decide(request, answer)

    def _member(self, word: str) -> alter_partition.BrokerState:
        node, _, epoch = word.partition("@")
        broker = self._machine.image.brokers.get(int(node))
        known = broker.broker_epoch if broker else -1
        return alter_partition.BrokerState(broker_id=int(node), broker_epoch=int(epoch) if epoch else known)

    def _epoch(self, words: list[str]) -> int:
        broker = self._machine.image.brokers.get(int(words[0]))
        return int(_options(words[1:]).get("epoch", broker.broker_epoch if broker else -1))

    def _reassign(self, words: list[str], lines: list[str]) -> list[str]:
        api = alter_partition_reassignments
        topics = []
        for place, target in map(str.split, lines):
            name, _, number = self._place(place)
            replicas = None if target == "cancel" else _assignment(target)[0]
            topics.append(api.ReassignableTopic(name, [api.ReassignablePartition(number, replicas)]))
        request = api.AlterPartitionReassignmentsRequest(
            topics=topics, allow_replication_factor_change="same_width" not in words
        )
        return self._decide(
            request,
            lambda r: [f"{t.name}:{p.partition_index}: {_error(p) or 'ok'}" for t in r.responses for p in t.partitions],
        )

    def _reassignments(self, words: list[str], _: list[str]) -> list[str]:
        api = list_partition_reassignments
        named = [self._place(word) for word in words]
        topics = [api.ListPartitionReassignmentsTopics(name, [number]) for name, _, number in named] or None

        def answer(response: api.ListPartitionReassignmentsResponse) -> list[str]:
            return [
                f"{t.name}:{p.partition_index} replicas={p.replicas} adding={p.adding_replicas} "
                f"removing={p.removing_replicas}"
                for t in response.topics
                for p in t.partitions
            ] or ["none"]

        return self._decide(api.ListPartitionReassignmentsRequest(topics=topics), answer)

    def _elect(self, words: list[str], _: list[str]) -> list[str]:
        api = elect_leaders
        named = [self._place(word) for word in words[1:]]
        request = api.ElectLeadersRequest(
            election_type={"preferred": 0, "unclean": 1}.get(words[0], 9),
            topic_partitions=[api.TopicPartitions(name, [number]) for name, _, number in named] or None,
        )
        return self._decide(
            request,
            lambda r: (
                [
                    f"{t.topic}:{p.partition_id}: {_error(p) or 'ok'}"
                    for t in r.replica_election_results
                    for p in t.partition_result
                ]
                or ["nothing to elect"]
            ),
        )

    def _assign(self, words: list[str], lines: list[str]) -> list[str]:
        api = assign_replicas_to_dirs
        directories = []
        for directory, *places in map(str.split, lines):
            named = [self._place(place) for place in places]
            topics = [
                api.AssignReplicasToDirsRequestTopicData(
                    topic_id, [api.AssignReplicasToDirsRequestPartitionData(number)]
                )
                for _, topic_id, number in named
            ]
            directories.append(api.AssignReplicasToDirsRequestDirectoryData(_directories(directory)[0], topics))
        request = api.AssignReplicasToDirsRequest(
            broker_id=int(words[0]), broker_epoch=self._epoch(words), directories=directories
        )

        def answer(response: api.AssignReplicasToDirsResponse) -> list[str]:
            return (
                [_error(response)]
                if response.error_code
                else [
                    f"{_text(d.id)} {_id(t.topic_id)}:{p.partition_index}: {_error(p) or 'ok'}"
                    for d in response.directories
                    for t in d.topics
                    for p in t.partitions
                ]
            )

        return self._decide(request, answer)

    # Settings

    def _features(self, words: list[str], _: list[str]) -> list[str]:
        kind = 3 if "unsafe" in words else 2 if "downgrade" in words else 1
        updates = [
            update_features.FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=kind)
            for name, level in _options(words).items()
        ]
        request = update_features.UpdateFeaturesRequest(feature_updates=updates, validate_only="validate" in words)
        return self._decide(request, lambda r: [_error(r) or "ok"])

    def _alter(self, words: list[str], lines: list[str]) -> list[str]:
        api = incremental_alter_configs
        resources = []
        for resource, *changes in map(str.split, lines):
            kind, _, name = resource.partition(":")
            configs = []
            for change in changes:
                operation, _, rest = change.partition(":")
                key, given, value = rest.partition("=")
                configs.append(
                    api.AlterableConfig(
                        name=key, config_operation=OPERATIONS.get(operation, 9), value=value if given else None
                    )
                )
            resources.append(
                api.AlterConfigsResource(resource_type=RESOURCES[kind], resource_name=name, configs=configs)
            )
        request = api.IncrementalAlterConfigsRequest(resources=resources, validate_only="validate" in words)
        return self._decide(request, _config_answer)

    def _replace(self, words: list[str], lines: list[str]) -> list[str]:
        resources = []
        for resource, *changes in map(str.split, lines):
            kind, _, name = resource.partition(":")
            pairs = (change.partition("=") for change in changes)
            configs = [alter_configs.AlterableConfig(name=k, value=v if given else None) for k, given, v in pairs]
            resources.append(
                alter_configs.AlterConfigsResource(resource_type=RESOURCES[kind], resource_name=name, configs=configs)
            )
        request = alter_configs.AlterConfigsRequest(resources=resources, validate_only="validate" in words)
        return self._decide(request, _config_answer)

    def _bootstrap(self, words: list[str], _: list[str]) -> list[str]:
        features = [FeatureLevelRecord(name=n, feature_level=int(v)) for n, v in _options(words).items()]
        return self._decide(Bootstrap(features), lambda _: ["ok"])

    def _allocate(self, words: list[str], _: list[str]) -> list[str]:
        broker = self._machine.image.brokers.get(int(words[0]))
        epoch = int(_options(words[1:]).get("epoch", broker.broker_epoch if broker else -1))
        request = allocate_producer_ids.AllocateProducerIdsRequest(broker_id=int(words[0]), broker_epoch=epoch)
        return self._decide(
            request, lambda r: [_error(r) or f"{r.producer_id_start}..{r.producer_id_start + r.producer_id_len - 1}"]
        )

    # The whole

    def _image(self, words: list[str], __: list[str]) -> list[str]:
        lines = list(_image_lines(self._machine.image))
        if "partitions" in words:
            lines = [line for line in lines if line.startswith(("topic", "  "))]
        return lines or ["empty"]

    def _restart(self, _: list[str], __: list[str]) -> list[str]:
        return self._again(self._log)

    def _snapshot(self, _: list[str], __: list[str]) -> list[str]:
        written = [framing.encode(record) for record in records_of(self._machine.image)]
        return self._again(framing.decode_all(written))

    def _again(self, records: list[Message]) -> list[str]:
        machine = MetadataMachine(self._policy, self._random)
        self._replay(machine, records)
        same = "the same image" if machine.image == self._machine.image else "ANOTHER IMAGE"
        self._machine = machine
        return [f"{len(records)} records make {same}"]


def _options(words: list[str]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in words if "=" in word)


def _directories(text: str) -> list[bytes]:
    return [name.encode().rjust(16, b"\0") for name in text.split(",") if name]


def _ranges(options: dict[str, str]) -> dict[str, tuple[int, int]]:
    ranges = dict(KNOWN_RANGES)
    for key, text in options.items():
        if key.startswith("feature:"):
            low, _, high = text.partition("-")
            ranges[key.removeprefix("feature:")] = (int(low), int(high))
    return ranges


def _assignment(text: str) -> list[list[int]]:
    return [[int(node) for node in part.split(",") if node] for part in text.split("/")]


def _creatable(words: list[str]) -> create_topics.CreatableTopic:
    options = _options(words[1:])
    assign = options.pop("assign", None)
    partitions, replicas = (int(options.pop(name, "-1")) for name in ("partitions", "replicas"))
    bare = [word for word in words[1:] if "=" not in word]  # a setting without a value is null
    return create_topics.CreatableTopic(
        name=words[0],
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=n, broker_ids=ids)
            for n, ids in enumerate(_assignment(assign) if assign is not None else [])
        ],
        configs=[
            *(create_topics.CreatableTopicConfig(name=key, value=value) for key, value in options.items()),
            *(create_topics.CreatableTopicConfig(name=key, value=None) for key in bare),
        ],
    )


def _error(response: Any) -> str:
    if not response.error_code:
        assert not getattr(response, "error_message", None)
        return ""
    message = getattr(response, "error_message", None)
    return ErrorCode(response.error_code).name + (f": {message}" if message else "")


def _heartbeat_answer(r: broker_heartbeat.BrokerHeartbeatResponse) -> list[str]:
    words = ["fenced" if r.is_fenced else "unfenced", "caught up" if r.is_caught_up else "behind"]
    if r.should_shut_down:
        words.append("should shut down")
    return [_error(r) or ", ".join(words)]


def _altered(topic_id: bytes, r: alter_partition.AlterPartitionResponsePartitionData) -> str:
    state = f"in_sync={r.isr}" + (" recovering" if r.leader_recovery_state else "")
    epochs = f"leader_epoch={r.leader_epoch} partition_epoch={r.partition_epoch}"
    return f"{_id(topic_id)}:{r.partition_index}: " + (_error(r) or f"leader={r.leader_id} {epochs} {state}")


def _config_answer(response: Any) -> list[str]:
    kinds = {number: kind for kind, number in RESOURCES.items()}
    return [f"{kinds[r.resource_type]}:{r.resource_name}: {_error(r) or 'ok'}" for r in response.responses]


# Records and images


def _id(uuid: bytes) -> str:
    number = int.from_bytes(uuid, "big")
    return str(number) if number < 1 << 32 else uuid.hex()


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return "0" if value == ZERO_UUID else value.strip(b"\0").decode(errors="replace")
    if isinstance(value, list):
        return f"[{' '.join(map(_text, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _record(record: Message) -> str:
    """The class and what differs from its defaults."""
    fields = []
    plain = type(record)()
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if value != getattr(plain, name) and name not in ("end_points", "features", "rack"):
            text = _id(value) if name == "topic_id" else _text(value)
            fields.append(f"{name}={text}")
    return " ".join([type(record).__name__.removesuffix("Record"), *fields])


def _image_lines(image: MetadataImage) -> Iterator[str]:
    for name, level in image.features.items():
        yield f"feature {name}={level}"
    for broker in image.brokers.values():
        yield f"broker {broker.node_id} epoch={broker.broker_epoch} {_state(broker)}"
    for topic in image.topics.values():
        yield f"topic {topic.name} id={_id(topic.topic_id)}"
        for number, partition in enumerate(topic.partitions):
            yield f"  {number}: {_partition(partition)}"
    for (kind, name), values in image.configs.items():
        kinds = {number: word for word, number in RESOURCES.items()}
        yield f"config {kinds[kind]}:{name} {' '.join(f'{key}={value}' for key, value in values.items())}"
    if image.next_producer_id:
        yield f"next producer id {image.next_producer_id}"


def _state(broker: BrokerImage) -> str:
    if broker.in_controlled_shutdown:
        return "in controlled shutdown" + (", fenced" if broker.fenced else "")
    return "fenced" if broker.fenced else "serving"


def _partition(partition: PartitionImage) -> str:
    text = (
        f"replicas={list(partition.replicas)} in_sync={list(partition.in_sync_replicas)} leader={partition.leader} "
        f"leader_epoch={partition.leader_epoch} partition_epoch={partition.partition_epoch}"
    )
    if partition.eligible_leader_replicas or partition.last_known_eligible:
        text += f" eligible={list(partition.eligible_leader_replicas)} last_known={list(partition.last_known_eligible)}"
    if partition.is_reassigning:
        text += f" adding={list(partition.adding_replicas)} removing={list(partition.removing_replicas)}"
    if partition.leader_recovery_state:
        text += " recovering"
    return text
