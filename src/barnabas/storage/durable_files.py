"""Replacing small files durably without blocking: written aside, synced off the loop, renamed, the folder synced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.model.ports import Disk, DiskError

ASIDE_SUFFIX = ".next"

Then = Callable[[DiskError | None], None]


def replace_files(
    disk: Disk,
    folder: str,
    contents: Mapping[str, bytes],
    then: Then,
    *,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """``contents`` is by name. ``is_wanted`` is asked before the renames: False leaves the files as they are."""
    _Replacement(disk, folder, contents, then, is_wanted).begin()


class _Replacement:
    def __init__(
        self, disk: Disk, folder: str, contents: Mapping[str, bytes], then: Then, is_wanted: Callable[[], bool]
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._contents = contents
        self._then = then
        self._is_wanted = is_wanted
        self._unsynced = list(contents)

    def begin(self) -> None:
        try:
            for name, content in self._contents.items():
                self._disk.write_file(self._aside(name), content, sync=False)
        except DiskError as problem:
            self._then(problem)
            return
        self._sync_next(None)

    def _sync_next(self, problem: DiskError | None) -> None:
        try:
            if problem is not None:
                raise problem
            if self._unsynced:
                self._disk.sync(self._disk.open(self._aside(self._unsynced.pop())), self._sync_next)
                return
            if not self._is_wanted():
                self._then(None)
                return
            for name in self._contents:
                self._disk.rename(self._aside(name), f"{self._folder}/{name}")
        except DiskError as failure:
            self._then(failure)
        else:
            self._disk.sync_names(self._folder, self._then)

    def _aside(self, name: str) -> str:
        return f"{self._folder}/{name}{ASIDE_SUFFIX}"
