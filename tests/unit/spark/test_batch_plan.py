"""Positions in the checkpoint, what the next batch reads, and how it is shared out."""

from __future__ import annotations

import json
import random

import pytest

from barnabas.client.wire.data import OffsetRange
from barnabas.model.ids import TopicPartition
from barnabas.spark import batch_plan
from barnabas.spark.batch_plan import Position, View, from_json, to_json
from barnabas.spark.client_settings import SparkOptionError

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)


def view(
    latest: dict[TopicPartition, int], earliest: dict[TopicPartition, int] | None = None, topic: str = "id"
) -> View:
    return View({"t": topic}, {**dict.fromkeys(latest, 0), **(earliest or {})}, latest)


def at(offsets: dict[TopicPartition, int], *, is_initial: bool = False, topic: str = "id") -> Position:
    return Position(offsets=offsets, topic_ids={"t": topic}, query="q", is_initial=is_initial)


def step(start: Position, seen: View, max_offsets: int | None = None) -> tuple[Position, list[str]]:
    found = batch_plan.advance(start, seen)
    return batch_plan.next_position(start, seen, found, max_offsets), found.losses


# Positions


def test_a_position_survives_json() -> None:
    position = Position(
        offsets={TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3},
        topic_ids={"b": "y", "a": "x"},
        begins={TopicPartition("a", 0): 0},
        query="q",
        is_initial=True,
    )
    assert from_json(json.loads(json.dumps(to_json(position)))) == position


def test_the_text_does_not_depend_on_the_order_in_which_partitions_were_found() -> None:
    partitions = [TopicPartition(topic, number) for topic in ("b", "a") for number in range(12)]
    texts = set()
    for seed in range(5):
        random.Random(seed).shuffle(partitions)
        offsets = {partition: partition.partition for partition in partitions}
        texts.add(
            json.dumps(to_json(Position(offsets=offsets, begins=offsets, query="q", topic_ids={"b": "", "a": ""})))
        )
    assert len(texts) == 1
    assert list(json.loads(texts.pop())["a"]) == [str(number) for number in range(12)]


def test_a_position_of_sparks_own_source_is_understood() -> None:
    assert from_json({"t": {"0": 5, "1": 7}}) == Position(offsets={A: 5, B: 7})


# The next batch


def test_nothing_new_is_the_same_position() -> None:
    start = at({A: 5, B: 7})
    end, losses = step(start, view({A: 5, B: 7}))
    assert end is start
    assert not losses


def test_the_first_batch_tells_where_it_begins() -> None:
    start = at({A: 5, B: 7}, is_initial=True)
    end, _ = step(start, view({A: 6, B: 7}))
    assert end == Position(offsets={A: 6, B: 7}, topic_ids={"t": "id"}, begins={A: 5, B: 7}, query="q")
    later = at({A: 100, B: 100}, is_initial=True)  # startingOffsets=latest, asked again after a restart
    assert batch_plan.ranges(later, end, {}) == [OffsetRange(A, 5, 6, "id")]


def test_later_batches_need_not_tell() -> None:
    end, _ = step(at({A: 5, B: 7}), view({A: 9, B: 8}))
    assert end.begins == {}
    assert batch_plan.ranges(at({A: 5, B: 7}), end, {}) == [OffsetRange(A, 5, 9, "id"), OffsetRange(B, 7, 8, "id")]


def test_a_new_partition_is_read_from_its_start() -> None:
    end, losses = step(at({A: 5}), view({A: 5, B: 3}))
    assert not losses
    assert end.begins == {B: 0}
    assert batch_plan.ranges(at({A: 5}), end, {}) == [OffsetRange(B, 0, 3, "id")]


def test_a_new_partition_whose_start_is_gone_is_a_loss() -> None:
    end, losses = step(at({A: 5}), view({A: 5, B: 9}, {B: 4}))
    assert losses == [
        (
            "t-1: the partition is new to the query and its log holds offsets 4 to 8: "
            "offsets 0 to 3 were deleted before they were read"
        )
    ]
    assert end.begins == {B: 4}


def test_retention_that_overtakes_the_reader_is_a_loss() -> None:
    end, losses = step(at({A: 5}), view({A: 40}, {A: 20}))
    assert losses == [
        (
            "t-0: offset 5 would be read next, but the log holds offsets 20 to 39: "
            "offsets 5 to 19 were deleted before they were read"
        )
    ]
    assert batch_plan.ranges(at({A: 5}), end, {}) == [OffsetRange(A, 20, 40, "id")]


def test_a_log_that_lost_its_end_is_a_loss() -> None:
    start = at({A: 50})
    seen = view({A: 40}, {A: 20})
    assert batch_plan.is_behind(seen, start)
    end, losses = step(start, seen)
    assert losses == ["t-0: offset 50 would be read next, but the log holds offsets 20 to 39: its end was lost"]
    assert end.offsets == {A: 40}
    assert batch_plan.ranges(start, end, {}) == []


def test_a_topic_of_the_same_name_is_another_topic() -> None:
    start = at({A: 5, B: 2})
    seen = view({A: 3, B: 4}, topic="other")
    assert not batch_plan.is_behind(seen, start)
    end, losses = step(start, seen)
    assert len(losses) == 2
    assert losses[0] == (
        "t-0: the topic was deleted and created again after offset 5 was reached: what the old one held from there on "
        "is lost, and the new one holds offsets 0 to 2"
    )
    assert batch_plan.ranges(start, end, {}) == [OffsetRange(A, 0, 3, "other"), OffsetRange(B, 0, 4, "other")]
    again, losses = step(end, seen)
    assert again is end
    assert not losses


def test_another_topic_with_as_many_records_is_noticed() -> None:
    end, losses = step(at({A: 5}), view({A: 5}, topic="other"))
    assert len(losses) == 1
    assert batch_plan.ranges(at({A: 5}), end, {}) == [OffsetRange(A, 0, 5, "other")]


def test_a_partition_that_is_gone_is_a_loss_once() -> None:
    start = at({A: 5, B: 7})
    end, losses = step(start, view({A: 5}))
    assert losses == ["t-1: the partition is gone, of which offset 7 would be read next"]
    assert step(end, view({A: 5})) == (end, [])


def test_brokers_without_topic_ids_are_taken_at_their_word() -> None:
    assert not step(at({A: 5}, topic=""), view({A: 6}))[1]
    assert not step(at({A: 5}), view({A: 6}, topic=""))[1]


# Rate limits


def test_a_limit_is_shared_in_proportion() -> None:
    begins, ends = {A: 0, B: 100, C: 0}, {A: 300, B: 200, C: 0}
    assert batch_plan.rate_limited(100, begins, ends) == {A: 75, B: 125, C: 0}


def test_a_small_partition_is_not_starved() -> None:
    limited = batch_plan.rate_limited(10, {A: 0, B: 0}, {A: 1_000_000, B: 3})
    assert limited == {A: 9, B: 1}


def test_a_limit_above_what_there_is_does_nothing() -> None:
    assert batch_plan.rate_limited(10, {A: 0, B: 0}, {A: 5, B: 5}) == {A: 5, B: 5}


def test_limited_batches_come_to_the_end() -> None:
    position, seen, count = at({A: 0, B: 10}, is_initial=True), view({A: 107, B: 23}), 0
    while (after := step(position, seen, 10)[0]) is not position:
        assert sum(each.size for each in batch_plan.ranges(position, after, {})) <= 11
        position, count = after, count + 1
    assert position.offsets == {A: 107, B: 23}
    assert 12 <= count <= 20


def test_new_records_are_counted() -> None:
    seen = view({A: 10, B: 4}, {A: 2})
    assert batch_plan.new_records(batch_plan.advance(at({A: 5}), seen), seen) == 9


# Ranges of batch queries


def test_a_batch_reads_what_is_there() -> None:
    found, losses = batch_plan.batch_ranges({A: 0, B: 2}, {A: 5, B: 2}, view({A: 5, B: 9}))
    assert found == [OffsetRange(A, 0, 5, "id")]
    assert not losses


def test_a_batch_that_reaches_beyond_the_log_is_told() -> None:
    found, losses = batch_plan.batch_ranges({A: 0, B: 5}, {A: 30, B: 7}, view({A: 20, B: 0}, {A: 10}))
    assert found == [OffsetRange(A, 10, 20, "id")]
    assert losses == [
        "t-0: offsets 0 to 29 are to be read, but the log holds offsets 10 to 19",
        "t-1: offsets 5 to 6 are to be read, but the log holds nothing",
    ]


def test_a_batch_does_not_end_before_it_starts() -> None:
    with pytest.raises(SparkOptionError, match="t-0: reading starts at offset 8, after its end at offset 5"):
        batch_plan.batch_ranges({A: 8}, {A: 5}, view({A: 10}))


# Tasks


def sizes(pieces: list[OffsetRange]) -> list[int]:
    return [piece.size for piece in pieces]


def test_without_limits_a_range_is_a_task() -> None:
    found = [OffsetRange(A, 0, 10), OffsetRange(B, 5, 5), OffsetRange(C, 1, 2)]
    assert batch_plan.split(found, min_partitions=None, max_records=None) == [found[0], found[2]]
    assert batch_plan.split(found, min_partitions=2, max_records=None) == [found[0], found[2]]


def test_long_ranges_are_cut() -> None:
    pieces = batch_plan.split([OffsetRange(A, 0, 10), OffsetRange(B, 0, 3)], min_partitions=None, max_records=4)
    assert [(piece.partition, piece.start, piece.stop) for piece in pieces] == [
        (A, 0, 3),
        (A, 3, 6),
        (A, 6, 10),
        (B, 0, 3),
    ]


def test_large_ranges_make_up_the_tasks_that_are_wanted() -> None:
    pieces = batch_plan.split([OffsetRange(A, 0, 800), OffsetRange(B, 0, 10)], min_partitions=5, max_records=None)
    assert sizes(pieces) == [200, 200, 200, 200, 10]


def test_both_limits_hold() -> None:
    found = [OffsetRange(A, 0, 100)]
    assert len(batch_plan.split(found, min_partitions=4, max_records=50)) == 4
    assert len(batch_plan.split(found, min_partitions=4, max_records=10)) == 10


def test_no_task_is_empty() -> None:
    pieces = batch_plan.split([OffsetRange(A, 7, 9)], min_partitions=8, max_records=None)
    assert sizes(pieces) == [1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_tasks_hold_every_offset_once(seed: int) -> None:
    rng = random.Random(seed)
    found = [OffsetRange(TopicPartition("t", number), 3, 3 + rng.randrange(0, 1000)) for number in range(5)]
    pieces = batch_plan.split(
        found, min_partitions=rng.choice([None, 3, 17]), max_records=rng.choice([None, 7, 100, 5000])
    )
    held = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.stop)]
    assert held == [(each.partition, offset) for each in found for offset in range(each.start, each.stop)]
