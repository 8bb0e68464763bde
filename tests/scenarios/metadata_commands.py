"""Scenario commands of the metadata machine on node 1. Decisions are appended and replayed at once.

    register 1 [incarnation=a] [directory=d] [cluster=c]     heartbeat 1 [offset=3] [epoch=2] [fence] [shutdown]
    controller 1                                             wait 9000           (milliseconds)
    expire                                                   bootstrap feature=1 …
    create [validate]                                        delete orders id:orders …
      orders [partitions=2] [replicas=1] [assign=1,2/2,1] [setting=value …]
    partitions [validate]                                    alter|replace [validate]
      orders 4 [assign=1/2]                                    topic:orders set:retention.ms=5 delete:flush.ms
    allocate 1 [epoch=2]                                     image

    restart      another controller, which has only the log
    snapshot     another controller, which has only a snapshot

Topics of a request stand on lines of their own. Replies come first, then each record with a plus sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from barnabas.core.metadata import records as framing
from barnabas.core.metadata.image import BrokerImage, MetadataImage, PartitionImage
from barnabas.core.metadata.machine import Bootstrap, ExpireSessions, MetadataMachine, MetadataPolicy
from barnabas.core.metadata.snapshot import records_of
from barnabas.model.broker_settings import all_broker_settings
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import ZERO_UUID
from barnabas.wire.api import (
    allocate_producer_ids,
    alter_configs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
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
        return answer(reply) + [f"+ {_record(record)}" for record in decision.records]

    def _replay(self, machine: MetadataMachine, records: list[Message]) -> None:
        machine.replay(records, next_offset=len(self._log), raft_epoch=1, timestamp_ms=0)

    # Brokers

    def _register(self, words: list[str], _: list[str]) -> list[str]:
        options = _options(words[1:])
        request = broker_registration.BrokerRegistrationRequest(
            broker_id=int(words[0]),
            cluster_id=options.get("cluster", CLUSTER),
            incarnation_id=options.get("incarnation", "a").encode().rjust(16, b"\0"),
            listeners=[broker_registration.Listener(name="PLAINTEXT", host="host", port=9092)],
            rack=None,
            log_dirs=[options.get("directory", f"d{words[0]}").encode().rjust(16, b"\0")],
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

    def _expire(self, _: list[str], __: list[str]) -> list[str]:
        return self._decide(ExpireSessions(), lambda _: ["ok"])

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

    # Settings

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

    def _image(self, _: list[str], __: list[str]) -> list[str]:
        return list(_image_lines(self._machine.image)) or ["empty"]

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
    return text
