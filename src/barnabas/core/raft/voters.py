"""Voters of the quorum: who they are, where they listen, and which set of them is in force (KIP-853).

The set in force is that of the latest VotersRecord in the log, committed or not. A truncation that removes the record
puts the former set in force again, so sets are kept with the offset of their record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from barnabas.model.ids import ZERO_UUID
from barnabas.model.ports import Address

KRAFT_VERSION = 1
"""The kraft.version that this build writes; voter changes need 1."""

Endpoints = tuple[tuple[str, str, int], ...]
"""(listener, host, port) of each endpoint."""

FROM_BOOTSTRAP = -1
"""The offset of a voter set that is in the snapshot 0-0 and in no record of the log."""


class Voter(Struct, frozen=True):
    node_id: int
    directory_id: bytes

    def matches(self, node_id: int, directory_id: bytes) -> bool:
        """Old versions of the requests have no directory id: it is zero then and not compared."""
        return self.node_id == node_id and directory_id in (ZERO_UUID, self.directory_id)


class VoterNode(Struct, frozen=True):
    voter: Voter
    endpoints: Endpoints = ()
    min_kraft_version: int = 0
    max_kraft_version: int = KRAFT_VERSION


class VoterSet(Struct, frozen=True):
    nodes: tuple[VoterNode, ...] = ()

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Voter]:
        return (node.voter for node in self.nodes)

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def find(self, node_id: int) -> VoterNode | None:
        return next((node for node in self.nodes if node.voter.node_id == node_id), None)

    def contains(self, voter: Voter) -> bool:
        return any(node.voter == voter for node in self.nodes)

    def is_voter(self, node_id: int, directory_id: bytes) -> bool:
        return any(node.voter.matches(node_id, directory_id) for node in self.nodes)

    def others(self, me: Voter) -> list[VoterNode]:
        return [node for node in self.nodes if node.voter != me]

    def address_of(self, node_id: int, listener: str) -> Address | None:
        node = self.find(node_id)
        return None if node is None else address_in(node.endpoints, listener)

    def with_node(self, node: VoterNode) -> VoterSet:
        """With the node added, or in place of the one with its id."""
        kept = [each for each in self.nodes if each.voter.node_id != node.voter.node_id]
        return VoterSet(tuple(sorted([*kept, node], key=lambda each: each.voter.node_id)))

    def without(self, voter: Voter) -> VoterSet:
        return VoterSet(tuple(node for node in self.nodes if node.voter != voter))


def address_in(endpoints: Iterable[tuple[str, str, int]], listener: str) -> Address | None:
    """The endpoint of that listener, or the first where no name is the same."""
    listed = list(endpoints)
    for name, host, port in listed:
        if name == listener:
            return Address(host, port)
    return Address(listed[0][1], listed[0][2]) if listed else None


class VoterHistory:
    """Voter sets by the offset of their record, ascending."""

    def __init__(self, entries: Iterable[tuple[int, VoterSet]] = ()) -> None:
        self._entries = list(entries)

    @property
    def latest(self) -> VoterSet:
        return self._entries[-1][1] if self._entries else VoterSet()

    @property
    def latest_offset(self) -> int:
        return self._entries[-1][0] if self._entries else FROM_BOOTSTRAP

    @property
    def previous(self) -> VoterSet:
        """The set that the latest replaced; empty where it is not known any more."""
        return self._entries[-2][1] if len(self._entries) > 1 else VoterSet()

    def before(self, offset: int) -> VoterSet:
        """The set in force for a reader that has applied the log up to ``offset``, for its snapshot."""
        found = [voters for at, voters in self._entries if at < offset]
        return found[-1] if found else self.latest

    def add(self, offset: int, voters: VoterSet) -> None:
        self.truncate(offset)
        self._entries.append((offset, voters))

    def truncate(self, end_offset: int) -> None:
        while self._entries and self._entries[-1][0] >= max(end_offset, 0):
            self._entries.pop()

    def discard_before(self, offset: int) -> None:
        """A snapshot at ``offset`` covers all earlier entries but the last of them."""
        covered = [entry for entry in self._entries if entry[0] < offset]
        if len(covered) > 1:
            del self._entries[: len(covered) - 1]

    def reset(self, offset: int, voters: VoterSet) -> None:
        self._entries = [(offset, voters)]
