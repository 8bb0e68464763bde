"""Torn writes and damage of the metadata log."""

from __future__ import annotations

import pytest

from barnabas.sim.disk import SimDisk
from barnabas.storage.torn import find_damage
from tests.unit.storage.kit import DIRECTORY, append, batch, open_log, small

NAME = f"{DIRECTORY}/{0:020d}.log"


def written(*leader_epochs: int) -> tuple[SimDisk, list[int]]:
    """A log with a batch of each epoch, and where they begin."""
    disk, starts = SimDisk(), []
    log = open_log(disk, small(segment_bytes=100_000))
    for leader_epoch in leader_epochs:
        starts.append(log.active.size)
        append(log, batch(value=b"v" * 300), leader_epoch=leader_epoch)
    log.flush()
    return disk, starts


def change(disk: SimDisk, position: int, data: bytes) -> None:
    disk.open(NAME).write((data,), position)


@pytest.mark.parametrize("closed_in", [1, None])
def test_a_sound_log(closed_in: int | None) -> None:
    disk, _ = written(0, 0, 1)
    assert find_damage(disk, DIRECTORY, closed_in=closed_in) is None


def test_a_tail_is_torn_by_a_crash_but_not_by_a_clean_stop() -> None:
    disk, starts = written(0, 0, 0)
    disk.open(NAME).truncate(starts[2] + 100)
    assert find_damage(disk, DIRECTORY, closed_in=None) is None
    assert find_damage(disk, DIRECTORY, closed_in=0) == (NAME, starts[2])
    assert find_damage(disk, DIRECTORY, closed_in=1) is None, "a leader has begun since, and was torn away"


def test_a_changed_byte_before_sound_batches_is_damage() -> None:
    disk, starts = written(0, 0, 0)
    change(disk, starts[1] + 200, b"x")
    assert find_damage(disk, DIRECTORY, closed_in=None) == (NAME, starts[1])


def test_a_page_that_was_not_written_is_torn_unless_a_later_leader_has_seen_it() -> None:
    disk, starts = written(0, 0, 0)
    change(disk, starts[1], bytes(starts[2] - starts[1]))
    assert find_damage(disk, DIRECTORY, closed_in=None) is None
    disk, starts = written(0, 0, 1)
    change(disk, starts[1], bytes(starts[2] - starts[1]))
    assert find_damage(disk, DIRECTORY, closed_in=None) == (NAME, starts[1])


def test_what_is_behind_it_in_another_segment_shows_damage_too() -> None:
    disk = SimDisk()
    log = open_log(disk, small(segment_bytes=400))
    for _ in range(3):
        append(log, batch(value=b"v" * 300))
    log.flush()
    first = disk.open(NAME)
    first.truncate(first.size() - 1)
    assert find_damage(disk, DIRECTORY, closed_in=None) == (NAME, 0)
