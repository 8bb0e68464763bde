"""Requests and replies of the group machine as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.core.group.classic import ClassicGroup
from barnabas.core.group.records import GroupRecord
from barnabas.core.txn.marker import EndMarker
from barnabas.model.errors import ErrorCode
from barnabas.wire import codec
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
from barnabas.wire.stored.classic_group import GroupMetadataKey, GroupMetadataValue, OffsetCommitValue
from barnabas.wire.stored.consumer_protocol import ConsumerProtocolSubscription

_UUID = re.compile(r"-00000000-0000-0000-0000-([0-9a-f]{12})")


def short(text: str) -> str:
    return _UUID.sub(lambda found: f"-{int(found[1], 16)}", text)


def long(member_id: str) -> str:
    stem, _, number = member_id.rpartition("-")
    return f"{stem}-00000000-0000-0000-0000-{int(number):012x}" if number.isdigit() else member_id


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"\0")


def subscribed(topics: str) -> bytes:
    """``t+u`` as consumers say it; ``!`` is what no consumer says."""
    if topics == "!":
        return b"!"
    return b"\0\1" + codec.encode_bytes(ConsumerProtocolSubscription(topics=topics.split("+")), 1)


def places(words: list[str]) -> Iterator[tuple[str, int, int]]:
    for word in words:
        if ":" in word:
            place, _, offset = word.partition("=")
            topic, _, partition = place.partition(":")
            yield topic, int(partition), int(offset or -1)


def standing(group: ClassicGroup) -> str:
    members = [f"{name}{'*' * (name == group.leader)}" for name in group.members]
    pending = f" pending={','.join(group.pending)}" if group.pending else ""
    protocol = f" {group.protocol}" if group.protocol else ""
    return f"{group.group_id} {group.state.value} {group.generation}{protocol} [{' '.join(members)}]{pending}"


def shown(record: GroupRecord | EndMarker) -> str:
    if isinstance(record, EndMarker):
        return f"marker of {record.producer_id}: {'commit' if record.committed else 'abort'}"
    key, value = record.key, record.value
    pending = f" in the transaction of {record.producer.producer_id}" if record.producer is not None else ""
    if isinstance(key, GroupMetadataKey):
        if not isinstance(value, GroupMetadataValue):
            return f"{key.group} deleted"
        members = [f"{m.member_id}={m.assignment.decode()}" for m in value.members]
        return f"{key.group} generation={value.generation} {value.protocol} [{' '.join(members)}]"
    place = f"{key.group} {key.topic}:{key.partition}"
    if not isinstance(value, OffsetCommitValue):
        return f"{place} deleted"
    expires = f" until {value.expire_timestamp}" if value.expire_timestamp >= 0 else ""
    return f"{place}={value.offset}{expires}{pending}"


def said(response: Any) -> str:
    return _SAID[type(response)](response)


def _code(number: int) -> str:
    return ErrorCode(number).name


def _join(response: join_group.JoinGroupResponse) -> str:
    if response.error_code:
        return f"{_code(response.error_code)} {response.member_id}".rstrip()
    text = f"{response.member_id} generation={response.generation_id} {response.protocol_name} leader={response.leader}"
    if response.members:
        text += f" members={','.join(member.member_id for member in response.members)}"
    return text + " skip" * response.skip_assignment


def _sync(response: sync_group.SyncGroupResponse) -> str:
    return _code(response.error_code) if response.error_code else f"assigned {response.assignment.decode() or '-'}"


def _leave(response: leave_group.LeaveGroupResponse) -> str:
    members = [f"{m.member_id or m.group_instance_id}={_code(m.error_code)}" for m in response.members]
    return f"{_code(response.error_code)} {' '.join(members)}".rstrip()


def _committed(response: Any) -> str:
    return " ".join(
        f"{topic.name}:{part.partition_index}={_code(part.error_code)}"
        for topic in response.topics
        for part in topic.partitions
    )


def _deleted_offsets(response: offset_delete.OffsetDeleteResponse) -> str:
    return _code(response.error_code) if response.error_code else _committed(response)


def _fetched(response: offset_fetch.OffsetFetchResponse) -> str:
    (group,) = response.groups
    found = [
        f"{topic.name}:{part.partition_index}="
        + (
            _code(part.error_code)
            if part.error_code
            else f"{part.committed_offset}{part.metadata and '/'}{part.metadata}"
        )
        for topic in group.topics
        for part in topic.partitions
    ]
    return " ".join(found) or "nothing"


def _described(response: describe_groups.DescribeGroupsResponse) -> str:
    (group,) = response.groups
    code = f"{_code(group.error_code)} " if group.error_code else ""
    lines = [f"{code}{group.group_state} {group.protocol_type} {group.protocol_data}".rstrip()]
    for member in group.members:
        instance = f" instance={member.group_instance_id}" if member.group_instance_id is not None else ""
        assigned = f" assigned {member.member_assignment.decode()}" if member.member_assignment else ""
        lines.append(f"  {member.member_id}{instance} client={member.client_id} host={member.client_host}{assigned}")
    lines += [
        f"  {each.timestamp_ms}: generation {each.generation}, {each.member_count} members: {each.cause}"
        for each in group.rebalances
    ]
    return "\n".join(lines)


def _listed(response: list_groups.ListGroupsResponse) -> str:
    found = [f"{g.group_id}/{g.protocol_type}/{g.group_state}/{g.group_type}" for g in response.groups]
    return " ".join(found) or "none"


_SAID: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "written",
    txn_offset_commit.TxnOffsetCommitResponse: _committed,
    join_group.JoinGroupResponse: _join,
    sync_group.SyncGroupResponse: _sync,
    heartbeat.HeartbeatResponse: lambda response: _code(response.error_code),
    leave_group.LeaveGroupResponse: _leave,
    offset_commit.OffsetCommitResponse: _committed,
    offset_fetch.OffsetFetchResponse: _fetched,
    offset_delete.OffsetDeleteResponse: _deleted_offsets,
    describe_groups.DescribeGroupsResponse: _described,
    list_groups.ListGroupsResponse: _listed,
    delete_groups.DeleteGroupsResponse: lambda response: _code(response.results[0].error_code),
}
