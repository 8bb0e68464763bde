"""What clients saw, and its invariants: checked during the run and against the final logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

SHOWN = 3
"""Values on each side of a fault in a message."""


class Violation(AssertionError):
    """Something that must never happen."""


class History:
    def __init__(self) -> None:
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {}
        """Topic and partition -> offset -> acknowledged value."""
        self.sent: dict[tuple[str, int, str], list[bytes]] = {}
        """Topic, partition and producer -> values in the order in which they were first sent."""
        self._seen: dict[tuple[str, int], dict[int, bytes]] = {}
        self._committed: dict[tuple[str, str, int], int] = {}
        self._owners: dict[tuple[str, int, str, int], str] = {}
        self._producers: dict[tuple[int, int], str] = {}
        self.last_acknowledged: dict[tuple[str, int], int] = {}
        """Topic and partition -> the highest acknowledged offset."""
        self.on_acknowledged: Callable[[str, int, int], None] = lambda *_: None
        self.commits = 0
        self.reads = 0

    # Producers and consumers

    def grant(self, producer_id: int, producer_epoch: int, owner: str) -> None:
        """A client was answered this pair for its next batches, which nobody else may get, nor it again."""
        before = self._producers.setdefault((producer_id, producer_epoch), owner)
        if before != owner:
            raise Violation(f"{before} and {owner} both got producer id {producer_id} with epoch {producer_epoch}")

    def acknowledge(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        before = self.acknowledged.setdefault((topic, partition), {}).setdefault(offset, value)
        if before != value:
            raise Violation(f"{topic}-{partition} acknowledged {before!r} and {value!r} at offset {offset}")
        self._compare(topic, partition, offset, value)
        place = topic, partition
        self.last_acknowledged[place] = max(offset, self.last_acknowledged.get(place, -1))
        self.on_acknowledged(topic, partition, offset)

    def see(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """A consumer has read it."""
        self.reads += 1
        self._compare(topic, partition, offset, value)

    def _compare(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        before = self._seen.setdefault((topic, partition), {}).setdefault(offset, value)
        if before != value:
            raise Violation(f"{topic}-{partition} had {before!r} at offset {offset}, and now {value!r}")

    # Groups

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        """A member's commit was acknowledged."""
        self.commits += 1
        key = group, topic, partition
        if offset < self._committed.get(key, -1):
            raise Violation(f"{group} committed {offset} for {topic}-{partition} after {self._committed[key]}")
        self._committed[key] = offset

    def committed_so_far(self, group: str, topic: str, partition: int) -> int:
        return self._committed.get((group, topic, partition), -1)

    def fetch_commit(self, group: str, topic: str, partition: int, offset: int, at_least: int) -> None:
        """A member fetched a committed offset; ``at_least`` was committed before its request."""
        if offset < at_least:
            raise Violation(f"{group} had committed {at_least} for {topic}-{partition} and is told of {offset}")

    def own(self, group: str, generation: int, topic: str, partition: int, member: str) -> None:
        before = self._owners.setdefault((group, generation, topic, partition), member)
        if before != member:
            raise Violation(f"{topic}-{partition} has two owners in generation {generation} of {group}")

    # The end

    def check_log(self, topic: str, partition: int, found: Mapping[int, bytes]) -> None:
        """``found`` is all that the log holds, by offset."""
        for offset, value in self.acknowledged.get((topic, partition), {}).items():
            if found.get(offset) != value:
                raise Violation(
                    f"{topic}-{partition} lost {value!r} at offset {offset}: there is {found.get(offset)!r}"
                )
        in_log = [found[offset] for offset in sorted(found)]
        for (sent_topic, sent_partition, producer), sent in self.sent.items():
            if (sent_topic, sent_partition) != (topic, partition):
                continue
            own = [value for value in in_log if value.startswith(producer.encode() + b"/")]
            present = set(own)
            expected = [value for value in sent if value in present]
            if own != expected:
                excerpt = around_difference(own, expected)
                raise Violation(f"{topic}-{partition} holds records of {producer} twice or out of order: {excerpt}")


def around_difference(found: list[bytes], expected: list[bytes]) -> str:
    """A few values on both sides of the first that differs."""
    pairs = zip(found, expected, strict=False)
    at = next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(found), len(expected)))
    start, end = max(0, at - SHOWN), at + SHOWN + 1
    texts = [" ".join(value.decode() for value in values[start:end]) for values in (found, expected)]
    return f"from position {start} on there is … {texts[0]} … instead of … {texts[1]} …"
