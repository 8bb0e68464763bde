"""Scenario commands of the group machine. Decisions are appended and replayed at once; the default group is ``g``.

    policy delay=3000 hold=3000 max=2 retention=60000        wait 6000            (milliseconds, with ticks)
    join A [new] [instance=i] [protocols=range:x,rr:y]       sync A [assign=A:p0,B:p1] [protocol=range]
         [session=10000] [rebalance=60000] [type=consumer]   heartbeat A [generation=1] [member=A-1] [held=yes]
         [reason=text]                                       leave A B [by-instance]
    commit [A] t:0=5 t:1=7 [retention=1000] [metadata=m]     fetch [stable] t:0 t:1   fetch all
    delete-offsets t:0                                       topic-deleted t
    describe                                                 list [states=Stable] [types=classic]
    delete                                                   offsets
    restart      another coordinator, which has only the log
    txn 7 [A] t:0=5   producer 7 commits in a transaction    end 7 commit|abort   (its marker)

``A`` is a client; it asks with the member id that it was last given, with none after ``new``. Every request may say
``v=3`` (its version) and ``group=other``. An id ``A-…-000000000001`` is written ``A-1``. Replies come first, those to
requests that had been parked among them; then each record with a plus sign; then the group, where it has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from barnabas.core.decision import Tick
from barnabas.core.group import records as framing
from barnabas.core.group.machine import GroupMachine, TopicsDeleted
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.turn import GroupPolicy, GroupRequest
from barnabas.core.txn.marker import EndMarker
from barnabas.model.errors import ErrorCode
from barnabas.wire.api import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from barnabas.wire.schema import Message
from tests.scenarios.group_words import long, places, said, short, shown, standing, subscribed, topic_id
from tests.scenarios.metadata_commands import CountingRandom

START_MS = 1_000_000
TICK_MS = 250
POLICY = {
    "delay": "initial_rebalance_delay_ms",
    "hold": "heartbeat_hold_ms",
    "max": "max_size",
    "retention": "offsets_retention_ms",
    "check": "offsets_check_interval_ms",
}


class GroupScenario:
    def __init__(self) -> None:
        self._limits = GroupPolicy()
        self._random = CountingRandom()
        self._log: list[tuple[int, bytes, bytes | None]] = []
        self._markers: dict[int, EndMarker] = {}
        self._now_ms = 0
        self._ids: dict[str, str] = {}
        self._parked: dict[str, int] = {}
        self._machine = self._load()

    def run(self, command: list[str]) -> list[str]:
        (line,) = command
        name, *words = line.split()
        flags = [word for word in words if "=" not in word or ":" in word.partition("=")[0]]
        options = dict(word.split("=", 1) for word in words if word not in flags)
        before = self._states()
        run: Callable[[list[str], dict[str, str]], list[str]] = getattr(self, f"_{name.replace('-', '_')}")
        lines = run(flags, options)
        changed = [text for group, text in self._states().items() if before.get(group) != text]
        gone = [f"{group} is gone" for group in before if group not in self._states()]
        return [short(text) for text in [*lines, *changed, *gone]] or ["ok"]

    # The machine

    def _load(self) -> GroupMachine:
        machine = GroupMachine(self._limits, self._random)
        for offset, (producer_id, key, value) in enumerate(self._log):
            if offset in self._markers:
                machine.replay_end_marker(producer_id, 0, committed=self._markers[offset].committed)
            else:
                machine.replay_stored(offset, producer_id, 0, key, value)
        machine.loaded(self._now_ms, START_MS + self._now_ms)
        return machine

    def _decide(self, token: str, request: Any) -> list[str]:
        decision = self._machine.decide(token, request, self._now_ms)
        lines = []
        for answered, response in decision.replies:
            assert isinstance(answered, str)
            assert self._parked.pop(answered, 1), f"{answered} was answered twice"
            lines.append(f"{answered}: {self._said(answered, response)}")
        if token and token not in [answered for answered, _ in decision.replies]:
            self._parked[token] = 1
            lines.append(f"{token} waits")
        self._append(list(decision.records))
        return lines + [f"+ {shown(record)}" for record in decision.records]

    def _append(self, records: list[GroupRecord | EndMarker]) -> None:
        for record in records:
            if isinstance(record, EndMarker):
                self._markers[len(self._log)] = record
                self._log.append((record.producer_id, b"", b""))
                continue
            producer_id = record.producer.producer_id if record.producer is not None else -1
            self._log.append((producer_id, *framing.encode(record)))
            assert framing.decode(*framing.encode(record)) == record._replace(producer=None)
        self._machine.replay(records, next_offset=len(self._log), raft_epoch=1, timestamp_ms=0)

    def _ask(self, token: str, message: Message, options: dict[str, str], client: str = "") -> list[str]:
        newest = int(str(type(message).versions).rpartition("-")[2])
        version = int(options.get("v", newest))
        may_wait = "held" in options
        return self._decide(token, GroupRequest(message, version, client, "/h", START_MS + self._now_ms, may_wait))

    def _said(self, token: str, response: Any) -> str:
        given = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        if isinstance(response, join_group.JoinGroupResponse) and response.error_code in given:
            self._ids[token.split()[1]] = response.member_id
        return said(response)

    def _member(self, client: str, options: dict[str, str]) -> str:
        if "member" in options:
            return long(options["member"])
        return self._ids.get(client, "")

    def _generation(self, options: dict[str, str]) -> int:
        group = self._machine.groups.get(options.get("group", "g"))
        return int(options.get("generation", group.generation if group else -1))

    def _states(self) -> dict[str, str]:
        return {name: standing(group) for name, group in self._machine.groups.items()}

    # Members

    def _join(self, words: list[str], options: dict[str, str]) -> list[str]:
        client, *flags = words
        offered = options.get("protocols", "range:t")
        protocols = [entry.partition(":") for entry in offered.split(",") if entry]
        request = join_group.JoinGroupRequest(
            group_id=options.get("group", "g"),
            session_timeout_ms=int(options.get("session", 10_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            member_id="" if "new" in flags else self._member(client, options),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocols=[join_group.JoinGroupRequestProtocol(name, subscribed(text)) for name, _, text in protocols],
            reason=options.get("reason"),
        )
        return self._ask(f"join {client}", request, options, client)

    def _sync(self, words: list[str], options: dict[str, str]) -> list[str]:
        given = [entry.split(":") for entry in options.get("assign", "").split(",") if entry]
        group = self._machine.groups.get(options.get("group", "g"))
        request = sync_group.SyncGroupRequest(
            group_id=options.get("group", "g"),
            generation_id=self._generation(options),
            member_id=self._member(words[0], options),
            group_instance_id=options.get("instance"),
            protocol_type=options.get("type", "consumer"),
            protocol_name=options.get("protocol", group.protocol if group else "range") or None,
            assignments=[
                sync_group.SyncGroupRequestAssignment(self._ids.get(name, long(name)), text.encode())
                for name, text in given
            ],
        )
        return self._ask(f"sync {words[0]}", request, options)

    def _heartbeat(self, words: list[str], options: dict[str, str]) -> list[str]:
        request = heartbeat.HeartbeatRequest(
            group_id=options.get("group", "g"),
            generation_id=self._generation(options),
            member_id=self._member(words[0], options),
            group_instance_id=options.get("instance"),
        )
        return self._ask(f"heartbeat {words[0]}", request, options)

    def _leave(self, words: list[str], options: dict[str, str]) -> list[str]:
        clients = [word for word in words if word != "by-instance"]
        leaving = [
            leave_group.MemberIdentity(self._member(client, options), options.get("instance"), options.get("reason"))
            for client in clients
        ]
        if "by-instance" in words:
            leaving = [leave_group.MemberIdentity("", client) for client in clients]
        request = leave_group.LeaveGroupRequest(
            group_id=options.get("group", "g"), member_id=leaving[0].member_id, members=leaving
        )
        return self._ask(f"leave {' '.join(clients)}", request, options)

    # Offsets

    def _commit(self, words: list[str], options: dict[str, str]) -> list[str]:
        clients = [word for word in words if ":" not in word]
        topics: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = {}
        for topic, partition, offset in places(words):
            wanted = offset_commit.OffsetCommitRequestPartition(partition, offset, 1, options.get("metadata"))
            topics.setdefault(topic, []).append(wanted)
        request = offset_commit.OffsetCommitRequest(
            group_id=options.get("group", "g"),
            generation_id_or_member_epoch=self._generation(options) if clients or "generation" in options else -1,
            member_id=self._member(clients[0], options) if clients else "",
            group_instance_id=options.get("instance"),
            retention_time_ms=int(options.get("retention", -1)),
            topics=[offset_commit.OffsetCommitRequestTopic(n, topic_id(n), p) for n, p in topics.items()],
        )
        return self._ask(f"commit {' '.join(clients)}".strip(), request, options)

    def _fetch(self, words: list[str], options: dict[str, str]) -> list[str]:
        topics: dict[str, list[int]] = {}
        for topic, partition, _ in places(words):
            topics.setdefault(topic, []).append(partition)
        listed = [
            offset_fetch.OffsetFetchRequestTopics(name, topic_id(options["id"]) if "id" in options else bytes(16), p)
            for name, p in topics.items()
        ]
        wanted = offset_fetch.OffsetFetchRequestGroup(
            options.get("group", "g"), topics=None if "all" in words else listed
        )
        request = offset_fetch.OffsetFetchRequest(groups=[wanted], require_stable="stable" in words)
        return self._ask("fetch", request, options)

    def _delete_offsets(self, words: list[str], options: dict[str, str]) -> list[str]:
        topics: dict[str, list[offset_delete.OffsetDeleteRequestPartition]] = {}
        for topic, partition, _ in places(words):
            topics.setdefault(topic, []).append(offset_delete.OffsetDeleteRequestPartition(partition))
        request = offset_delete.OffsetDeleteRequest(
            group_id=options.get("group", "g"),
            topics=[offset_delete.OffsetDeleteRequestTopic(name, parts) for name, parts in topics.items()],
        )
        return self._ask("delete-offsets", request, options)

    def _topic_deleted(self, words: list[str], _: dict[str, str]) -> list[str]:
        return self._decide("", TopicsDeleted(tuple((name, topic_id(name)) for name in words)))

    def _txn(self, words: list[str], options: dict[str, str]) -> list[str]:
        client = words[1] if len(words) > 1 and ":" not in words[1] else ""
        topics: dict[str, list[txn_offset_commit.TxnOffsetCommitRequestPartition]] = {}
        for topic, partition, offset in places(words[2 if client else 1 :]):
            wanted = txn_offset_commit.TxnOffsetCommitRequestPartition(partition, offset)
            topics.setdefault(topic, []).append(wanted)
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=options.get("group", "g"),
            producer_id=int(words[0]),
            generation_id=self._generation(options) if client else -1,
            member_id=self._member(client, options),
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name, parts) for name, parts in topics.items()],
        )
        return self._ask("txn", request, options)

    def _end(self, words: list[str], _: dict[str, str]) -> list[str]:
        return self._decide("end", EndMarker(int(words[0]), 0, 0, words[1] == "commit"))

    def _offsets(self, _: list[str], options: dict[str, str]) -> list[str]:
        known = self._machine.offsets.of(options.get("group", "g"))
        return [f"{topic}:{number}={held.offset}" for (topic, number), held in known.items()] or ["none"]

    # The whole

    def _describe(self, _: list[str], options: dict[str, str]) -> list[str]:
        request = describe_groups.DescribeGroupsRequest(groups=[options.get("group", "g")])
        (line, *_rest) = self._ask("describe", request, options)
        return line.split("\n")

    def _list(self, _: list[str], options: dict[str, str]) -> list[str]:
        wanted = [options.get(key, "").split(",") if key in options else [] for key in ("states", "types")]
        return self._ask("list", list_groups.ListGroupsRequest(*wanted), options)

    def _delete(self, _: list[str], options: dict[str, str]) -> list[str]:
        return self._ask("delete", delete_groups.DeleteGroupsRequest([options.get("group", "g")]), options)

    def _policy(self, _: list[str], options: dict[str, str]) -> list[str]:
        self._limits = replace(self._limits, **{POLICY[key]: int(value) for key, value in options.items()})
        self._machine.policy = self._limits
        return []

    def _wait(self, words: list[str], _: dict[str, str]) -> list[str]:
        lines, until = [], self._now_ms + int(words[0])
        while self._now_ms < until:
            self._now_ms = min(self._now_ms + TICK_MS, until)
            lines += [f"{self._now_ms} {text}" for text in self._decide("", Tick(START_MS + self._now_ms))]
        return lines

    def _restart(self, _: list[str], __: dict[str, str]) -> list[str]:
        self._parked.clear()
        self._machine = self._load()
        return [f"{len(self._log)} records"]
