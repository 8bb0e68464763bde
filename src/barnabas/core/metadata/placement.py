"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.metadata.image import BrokerImage, MetadataImage
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import Uuid
from barnabas.model.ports import Random
from barnabas.wire.schema import Message
from barnabas.wire.stored.metadata_topics import PartitionRecord


def place(image: MetadataImage, count: int, replication_factor: int, first: int, random: Random) -> list[list[int]]:
    """Replicas for ``count`` partitions: leaders go round the brokers, followers shift with every round.

    The replicas of a partition are on different racks as far as there are racks. Brokers that are fenced now get
    followers where the others, or their racks, are too few: they join when they are back.
    """
    usable = [broker for _, broker in sorted(image.brokers.items()) if not broker.is_cordoned]
    serving = [broker for broker in usable if broker.serves]
    fenced = [broker.node_id for broker in usable if broker.fenced]
    if replication_factor <= 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(serving) + len(fenced):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(serving) + len(fenced)} broker(s) are "
            "registered.",
        )
    if not serving:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    size = len(serving)
    start = random.randrange(0, size)
    spread = _Racks(serving, random).spread if len({broker.rack for broker in serving}) > 1 else _Row(serving).spread
    away = _racks_away(usable, replication_factor)
    placed = []
    for number in range(first, first + count):
        elsewhere = [nodes[number % len(nodes)] for nodes in away]
        replicas = spread(start + number, number // size, min(replication_factor - len(elsewhere), size))
        left = [node for node in fenced if node not in elsewhere]
        missing = replication_factor - len(replicas) - len(elsewhere)
        placed.append([*replicas, *elsewhere, *(left[(number + k) % len(left)] for k in range(missing))])
    return placed


def _racks_away(usable: list[BrokerImage], replication_factor: int) -> list[list[int]]:
    """The brokers of racks that are fenced as a whole, as many racks as are needed for each replica to have its own."""
    present = {broker.rack for broker in usable if broker.serves}
    away: dict[str | None, list[int]] = {}
    for broker in usable:
        if broker.fenced and broker.rack not in present:
            away.setdefault(broker.rack, []).append(broker.node_id)
    return list(away.values())[: max(0, replication_factor - len(present))]


class _Row:
    """Brokers without racks, or of one."""

    def __init__(self, brokers: list[BrokerImage]) -> None:
        self._nodes = [broker.node_id for broker in brokers]

    def spread(self, leader: int, shift: int, replication_factor: int) -> list[int]:
        nodes, size = self._nodes, len(self._nodes)
        others = [1 + (shift + k) % (size - 1) for k in range(replication_factor - 1)]  # none where size is 1
        return [nodes[leader % size], *(nodes[(leader + step) % size] for step in others)]


class _Racks:
    """Brokers of several racks. Leaders go round all brokers, from rack to rack; followers go round the other racks,
    and within a rack round its brokers. Brokers without a rack are one rack more."""

    def __init__(self, brokers: list[BrokerImage], random: Random) -> None:
        by_rack: dict[str | None, list[int]] = {}
        for broker in sorted(brokers, key=lambda each: (each.rack is None, each.rack or "")):
            by_rack.setdefault(broker.rack, []).append(broker.node_id)
        self._racks = list(by_rack.values())
        self._next = [random.randrange(0, len(nodes)) for nodes in self._racks]
        longest = max(map(len, self._racks))
        self._order = [
            (rack, nodes[n]) for n in range(longest) for rack, nodes in enumerate(self._racks) if n < len(nodes)
        ]

    def spread(self, leader: int, shift: int, replication_factor: int) -> list[int]:
        rack, node = self._order[leader % len(self._order)]
        chosen = [node]
        others = len(self._racks) - 1
        racks = [(rack + 1 + (shift + k) % others) % len(self._racks) for k in range(others)]
        turn = 0
        while len(chosen) < replication_factor:
            # A round over the other racks, then over all, for more replicas than there are racks.
            for each in racks if turn == 0 else [*racks, rack]:
                if len(chosen) < replication_factor:
                    self._choose(each, chosen)
            turn += 1
        return chosen

    def _choose(self, rack: int, chosen: list[int]) -> None:
        nodes = self._racks[rack]
        for _ in nodes:
            node = nodes[self._next[rack] % len(nodes)]
            self._next[rack] += 1
            if node not in chosen:
                chosen.append(node)
                return


def check_assignment(image: MetadataImage, replicas: Sequence[int], width: int) -> None:
    problem = None
    if not replicas:
        problem = "an empty replica list."
    elif len(set(replicas)) != len(replicas):
        twice = next(node for n, node in enumerate(replicas) if node in replicas[:n])
        problem = f"the broker {twice} more than once."
    elif len(replicas) != width:
        problem = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {width} replica(s)."
        )
    else:
        unknown = next((node for node in replicas if node not in image.brokers), None)
        if unknown is not None:
            problem = f"broker {unknown}, but no such broker is registered."
    if problem:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}")


def partition_record(image: MetadataImage, topic_id: Uuid, number: int, replicas: Sequence[int]) -> Message:
    in_sync = [node for node in replicas if image.brokers[node].serves]
    if not in_sync:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {number} are fenced or in "
            "controlled shutdown.",
        )
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[image.brokers[node].default_directory for node in replicas],
    )
