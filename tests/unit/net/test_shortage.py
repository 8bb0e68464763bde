"""Which connections are closed when incomplete requests have filled the buffers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.net.listener import ConnectionLimits
from barnabas.net.shortage import PROGRESS_BYTES


class Loop:
    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., None], Any]] = []

    def call_later(self, _delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        self.calls.append((call, arguments))

    def tick(self) -> None:
        calls, self.calls = self.calls, []
        for call, arguments in calls:
            call(*arguments)


class Peer:
    """A connection as the shortage sees it: it holds a buffer for a frame that began at some time."""

    def __init__(self, limits: ConnectionLimits, began: float, size: int) -> None:
        self.limits = limits
        self.frame_since = began
        self.received = self.buffer_bytes = size
        self.is_open = True
        self.waits_for_peer = True
        self.waits_for_room = False
        limits.open.add(self)  # type: ignore[arg-type]
        limits.buffered_bytes += size

    @property
    def arrived(self) -> tuple[float, int]:
        return self.frame_since, self.received

    def release_buffer(self) -> None: ...

    def read_on(self) -> None:
        if self.limits.has_room(self.buffer_bytes):
            self.waits_for_room = False
            self.limits.buffered_bytes += self.buffer_bytes

    def give_up(self, reason: str) -> None:
        assert reason
        self.is_open = self.waits_for_room = False
        self.limits.open.discard(self)  # type: ignore[arg-type]
        self.limits.buffered_bytes -= self.buffer_bytes


class Scene:
    def __init__(self, *sizes: int) -> None:
        self.limits = ConnectionLimits(max_buffered_bytes=sum(sizes))
        self.loop = Loop()
        self.peers = [Peer(self.limits, float(number), size) for number, size in enumerate(sizes)]

    def wait(self, *peers: Peer) -> None:
        for peer in peers:
            peer.waits_for_room = True
            listener: Any = SimpleNamespace(limits=self.limits, loop=self.loop)
            self.limits.shortage.wait(peer, listener)  # type: ignore[arg-type]

    @property
    def open(self) -> list[bool]:
        return [peer.is_open for peer in self.peers]


def test_the_oldest_that_is_stalled_goes_and_no_more_than_needed() -> None:
    scene = Scene(100, 100, 100, 50)
    last = scene.peers[3]
    scene.wait(last)
    assert len(scene.loop.calls) == 1
    assert all(scene.open), "they get a second to show that they send"
    scene.loop.tick()
    assert scene.open == [False, True, True, True]
    assert not last.waits_for_room
    assert scene.loop.calls == [], "nobody waits, so nobody looks"


def test_who_gets_on_is_waited_for() -> None:
    scene = Scene(100, 100, 50)
    scene.wait(scene.peers[2])
    for _ in range(3):
        scene.peers[0].received += PROGRESS_BYTES
        scene.peers[1].frame_since += 0.1
        scene.loop.tick()
        assert all(scene.open)
        assert len(scene.loop.calls) == 1
    scene.peers[0].received += PROGRESS_BYTES
    scene.loop.tick()
    assert scene.open == [True, False, True]


def test_a_trickle_is_no_progress() -> None:
    scene = Scene(100, 50)
    scene.wait(scene.peers[1])
    scene.peers[0].received += PROGRESS_BYTES - 1
    scene.loop.tick()
    assert scene.open == [False, True]


def test_those_who_wait_for_each_other_are_let_go_one_by_one() -> None:
    scene = Scene(100, 100, 100)
    scene.wait(*scene.peers)
    scene.loop.tick()
    assert scene.open == [False, True, True]
    assert [peer.waits_for_room for peer in scene.peers] == [False, True, False]
    assert len(scene.loop.calls) == 1


def test_those_who_wait_are_spared_while_another_gets_on() -> None:
    scene = Scene(100, 100, 100)
    scene.wait(scene.peers[0], scene.peers[1])
    scene.peers[2].received += PROGRESS_BYTES
    scene.loop.tick()
    assert all(scene.open)


def test_the_only_one_is_not_let_go_for_its_own_sake() -> None:
    scene = Scene(100)
    scene.wait(*scene.peers)
    scene.loop.tick()
    assert all(scene.open)
    assert len(scene.loop.calls) == 1
