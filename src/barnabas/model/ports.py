"""The ports: time, randomness, files and the network, passed as arguments to state machines and drivers.

The real ports are in ``app``. The simulator has its own, so that one seed reproduces any failure and minutes of cluster
time take milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview


class DiskError(Exception):
    """The disk refused or failed an operation: full, failing, gone, read-only.

    What was asked for must be taken as not done. A write may have been done in part.
    """

    def __init__(self, operation: str, path: str, cause: BaseException | str) -> None:
        super().__init__(f"{operation} {path}: {cause}")
        self.operation = operation
        self.path = path
        self.cause = cause


class FileMissing(DiskError):
    """The file or folder is not there."""


class File(Protocol):
    """An open file. Offsets are explicit; there is no position that two users could fight over."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def read(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes at ``offset``; fewer only where the file ends."""

    def write(self, chunks: Sequence[Bytes], offset: int) -> None:
        """Writes all chunks one after the other at ``offset``, or raises DiskError.

        A write that fails after some bytes has cut the file back to ``offset`` before it raises where
        the disk still allows that; the owner must not append again unless it has checked the size.
        """

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserves blocks for ``size`` bytes without changing what ``size()`` of the data means to us."""

    def sync(self) -> None:
        """Blocks until data and size are on the disk. Never called on the event loop's hot path."""

    def start_writeback(self, offset: int, size: int) -> None:
        """Asks the kernel to begin writing a range out; a hint that may do nothing."""

    def read_cached_into(self, buffer: bytearray | memoryview, offset: int) -> int | None:
        """Fills the buffer as far as that needs no waiting for the disk, as far as can be told; returns how far.

        None where it would have to wait for the first byte already.
        """

    def is_cached(self, size: int, offset: int) -> bool:
        """Whether reading that range now would not wait for the disk, as far as can be told."""

    def fileno(self) -> int:
        """A descriptor for sendfile; valid until ``release_fileno``. Raises DiskError where there is none."""

    def release_fileno(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute, with ``/`` between their parts.

    Every method raises DiskError (FileMissing where that is the reason) and nothing else.
    """

    def open(self, path: str, *, create: bool = False) -> File: ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, content: Bytes, *, sync: bool = True) -> None:
        """Replaces the file as a whole: a temporary beside it, synced, then renamed over it.

        With ``sync`` the file and its folder are on the disk when this returns.
        """

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""

    def make_directory(self, path: str) -> None:
        """Creates the folder and its missing parents; no error where it exists."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Removes a file; no error where it is missing already."""

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync(self, file: File, then: Callable[[DiskError | None], None]) -> None:
        """Syncs off the loop, then calls ``then`` on the loop. Syncs of one file asked for while one is
        under way are answered together by the next."""

    def sync_names(self, path: str, then: Callable[[DiskError | None], None]) -> None:
        """Syncs a folder off the loop, then calls ``then`` on the loop; renamed meanwhile, it is the same folder."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds the path."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970; may jump."""

    def monotonic_ms(self) -> int:
        """Never goes back; the only clock for time-outs."""

    def monotonic_ns(self) -> int:
        """The same in nanoseconds, for measuring short times."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Calls back on the loop once ``monotonic_ms()`` has reached the deadline."""


class Address(NamedTuple):
    """Where a node listens for other nodes."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Network(Protocol):
    """Requests to other nodes by address. Callbacks come on the loop, never from within ``send``."""

    on_refused: Callable[[Address], None]
    """Called when a connection is refused: the host is up, and nothing listens there."""

    def send(
        self,
        address: Address,
        lane: str,
        request: Any,
        timeout_ms: int,
        then: Callable[[Any], None],
        *,
        version: int | None = None,
    ) -> None:
        """``then`` gets the response, or an ApiError: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, UNSUPPORTED_VERSION.

        The request goes in ``version``, or in the highest that both sides know. It may have been carried out whatever
        the error says. Requests of one lane share a connection, on which a node answers them in order: those that may
        wait for long (a fetch) need a lane of their own. Records of a response are views that are valid only during
        ``then``.
        """


class Offload(Protocol):
    def __call__(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        """Runs ``work`` where it may block, then calls ``then`` on the loop with what it raised."""


class Random(Protocol):
    """What the code uses of random.Random, which is the real port."""

    def randrange(self, start: int, stop: int, /) -> int: ...

    def randbytes(self, n: int, /) -> bytes: ...
