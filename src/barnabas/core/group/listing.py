"""Decisions about groups as a whole: describing, listing, deleting."""

from __future__ import annotations

from barnabas.core.group.classic import State
from barnabas.core.group.offsets import tombstone
from barnabas.core.group.records import GroupRecord
from barnabas.core.group.turn import Turn
from barnabas.model.errors import ErrorCode
from barnabas.wire.api import delete_groups, describe_groups, list_groups
from barnabas.wire.stored.classic_group import GroupMetadataKey

CLASSIC = "classic"


class ListingTurn(Turn):
    def describe(self, request: describe_groups.DescribeGroupsRequest) -> None:
        self._reply(describe_groups.DescribeGroupsResponse(groups=[self._describe(name) for name in request.groups]))

    def _describe(self, group_id: str) -> describe_groups.DescribedGroup:
        group = self._machine.groups.get(group_id)
        if group is None:
            if self._machine.offsets.of(group_id):
                return describe_groups.DescribedGroup(group_id=group_id, group_state=State.EMPTY.value)
            described = describe_groups.DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
            if self._request.version >= 6:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = f"Group {group_id} not found."
            return described
        settled = group.state is State.STABLE
        return describe_groups.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if settled else "",
            members=[
                describe_groups.DescribedGroupMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.protocols.get(group.protocol or "", b"") if settled else b"",
                    member.assignment,
                )
                for member in group.members.values()
            ],
            rebalances=[
                describe_groups.DescribedRebalance(each.timestamp_ms, each.generation, each.member_count, each.cause)
                for each in group.rebalances
            ],
        )

    def list(self, request: list_groups.ListGroupsRequest) -> None:
        machine = self._machine
        states = {name.lower() for name in request.states_filter}
        types = {name.lower() for name in request.types_filter}
        listed = []
        for group_id in sorted({*machine.groups, *machine.offsets.groups()}):
            group = machine.groups.get(group_id)
            state = State.EMPTY if group is None else group.state
            if (states and state.value.lower() not in states) or (types and CLASSIC not in types):
                continue
            kind = (group.protocol_type or "") if group is not None else ""
            listed.append(list_groups.ListedGroup(group_id, kind, state.value, CLASSIC))
        self._reply(list_groups.ListGroupsResponse(groups=listed))

    def delete(self, request: delete_groups.DeleteGroupsRequest) -> None:
        results = []
        for group_id in request.groups_names:
            code = self._delete(group_id)
            results.append(delete_groups.DeletableGroupResult(group_id, code))
        self._reply(delete_groups.DeleteGroupsResponse(results=results))

    def _delete(self, group_id: str) -> ErrorCode:
        group = self._machine.groups.get(group_id)
        known = self._machine.offsets.of(group_id)
        if group is None and not known:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group is not None and group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self.records += [tombstone(group_id, place) for place in known]
        self.records.append(GroupRecord(GroupMetadataKey(group_id), None))
        return ErrorCode.NONE
