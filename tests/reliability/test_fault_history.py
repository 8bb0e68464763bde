"""The checker finds each anomaly when it is planted in a sound history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.app.local_cluster import LocalCluster
from tests.reliability import fault_replicas
from tests.reliability.fault_history import (
    Ack,
    Assignment,
    Commit,
    Committed,
    History,
    Log,
    Poll,
    Send,
    Value,
    anomalies,
)
from tests.reliability.fault_plot import longest_gap

VALUES = [Value(offset % 2, offset // 2) for offset in range(10)]
"""Two producers in turn, on one partition."""


def sound() -> tuple[History, Log]:
    history = History()
    for offset, value in enumerate(VALUES):
        history.sends.append(Send(offset, 0, value))
        history.acks.append(Ack(offset + 0.1, 0, value, offset))
        history.readers["reader"].append(Poll(offset + 0.2, 0, offset, value))
    history.acks[3] = history.acks[3]._replace(offset=-1)
    history.members["member 1"] = [Assignment(0, (0,)), *history.readers["reader"][:6]]
    history.commits = [Commit(5.5, 5.6, 0, 5, None), Commit(6.5, 6.6, 0, 6, "timed out")]
    history.committed = [Committed(1, 1.1, 0, -1001), Committed(6, 6.1, 0, 5), Committed(7, 7.1, 0, 6)]
    later = [poll._replace(time_s=poll.time_s + 5) for poll in history.readers["reader"][6:]]
    history.members["member 2"] = [Assignment(7, (0,)), *later]
    return history, {0: list(enumerate(VALUES))}


def test_a_sound_history_has_no_anomaly() -> None:
    assert anomalies(*sound()) == []


def lost_at_its_offset(history: History, log: Log) -> None:
    log[0][9] = (9, Value(1, 99))
    history.sends.append(Send(9, 0, Value(1, 99)))


def lost_without_offset(history: History, log: Log) -> None:
    log[0][3] = (3, Value(0, 7))
    history.sends.append(Send(9, 0, Value(0, 7)))


def cut_short(_history: History, log: Log) -> None:
    log[0].pop()


def duplicate(_history: History, log: Log) -> None:
    log[0].append((10, VALUES[9]))


def reordered(_history: History, log: Log) -> None:
    log[0][4], log[0][6] = (4, VALUES[6]), (6, VALUES[4])


def phantom(_history: History, log: Log) -> None:
    log[0].append((10, Value(0, 5)))


def two_values(history: History, _log: Log) -> None:
    history.readers["reader"][4] = Poll(4.2, 0, 4, VALUES[6])


def read_and_gone(history: History, _log: Log) -> None:
    history.readers["reader"].append(Poll(11, 0, 10, Value(0, 5)))


def skipping(history: History, _log: Log) -> None:
    del history.readers["reader"][4]


def non_monotonic(history: History, _log: Log) -> None:
    history.readers["reader"].append(Poll(11, 0, 3, VALUES[3]))


def member_goes_back(history: History, _log: Log) -> None:
    history.members["member 2"] = [Assignment(7, (0,)), Poll(8, 0, 4, VALUES[4])]


def member_skips(history: History, _log: Log) -> None:
    history.members["member 2"] = [Assignment(7, (0,)), Poll(8, 0, 7, VALUES[7])]


def member_skips_on_the_way(history: History, _log: Log) -> None:
    del history.members["member 1"][3]


def commit_goes_back(history: History, _log: Log) -> None:
    history.committed.append(Committed(8, 8.1, 0, 5))


def commit_is_lost(history: History, _log: Log) -> None:
    history.committed[1] = Committed(6, 6.1, 0, -1001)


def fatal(history: History, _log: Log) -> None:
    history.fatal.append("out of order sequence number")


@pytest.mark.parametrize(
    ("plant", "word"),
    [
        (lost_at_its_offset, "lost"),
        (lost_without_offset, "lost"),
        (cut_short, "lost"),
        (duplicate, "duplicate"),
        (reordered, "reordered"),
        (phantom, "phantom"),
        (two_values, "two values"),
        (read_and_gone, "two values"),
        (skipping, "skipping poll"),
        (non_monotonic, "non-monotonic poll"),
        (member_goes_back, "commit went back"),
        (member_skips, "group skips"),
        (member_skips_on_the_way, "group member"),
        (commit_goes_back, "commit went back"),
        (commit_is_lost, "commit went back"),
        (fatal, "fatal"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_anomaly_is_found(plant: Callable[[History, Log], None], word: str) -> None:
    history, log = sound()
    plant(history, log)
    assert any(text.startswith(word) for text in anomalies(history, log)), anomalies(history, log)


def batch(offset: int, content: bytes) -> bytes:
    return offset.to_bytes(8, "big") + len(content).to_bytes(4, "big") + content


@pytest.mark.parametrize(
    ("third", "count"),
    [
        ([batch(0, b"a"), batch(1, b"b")], 0),
        ([batch(0, b"a"), batch(1, b"b"), batch(2, b"uncommitted")], 0),
        ([batch(0, b"a"), batch(1, b"c")], 1),
        ([batch(0, b"a")], 1),
    ],
)
def test_replicas_are_compared_below_the_end(tmp_path: Path, third: list[bytes], count: int) -> None:
    cluster = LocalCluster.create(tmp_path, brokers=3, settings={})
    for node, content in {1: [batch(0, b"a"), batch(1, b"b")], 2: [batch(0, b"a"), batch(1, b"b")], 3: third}.items():
        folder = tmp_path / f"node-{node}" / "numbers-0"
        folder.mkdir(parents=True)
        (folder / "00000000000000000000.log").write_bytes(content[0])
        (folder / "00000000000000000001.log").write_bytes(b"".join(content[1:]))
    assert len(list(fault_replicas.differences(cluster, "numbers", 1, {0: 2}))) == count


def test_a_gap_counts_from_the_last_time_before_the_window_to_its_end() -> None:
    times = [0.0, 1.0, 4.0, 5.0, 9.0]
    assert longest_gap(times, 2.0, 6.0) == 3.0
    assert longest_gap(times, 4.5, 8.0) == 3.0
    assert longest_gap([], 4.5, 8.0) == 3.5
