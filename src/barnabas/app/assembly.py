"""Puts a server together from loaded settings: the disk, the limits, the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas.app import limits
from barnabas.app.server import Server
from barnabas.app.settings_loader import LoadedSettings
from barnabas.node.node import Report


def assemble(
    loaded: LoadedSettings,
    *,
    loop: asyncio.AbstractEventLoop,
    memory: bool,
    report: Report,
    on_failure: Callable[[str], None],
) -> Server:
    settings = loaded.settings
    files, connections = limits.shares(settings.open_files)
    return Server(
        settings=settings,
        static_settings=loaded.texts,
        disk=_disk(loop, memory=memory, files=files, portable=settings.portable),
        loop=loop,
        report=report,
        on_failure=on_failure,
        descriptors=connections,
    )


def _disk(loop: asyncio.AbstractEventLoop, *, memory: bool, files: int, portable: bool) -> Any:
    def post(callback: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop has ended, and with it all that waited
            return

    if memory:
        from barnabas.app.memory_disk import MemoryDisk  # noqa: PLC0415 -- one of the two is used

        return MemoryDisk(post, fallbacks=portable)
    from barnabas.app.os_disk import OsDisk  # noqa: PLC0415 -- one of the two is used

    return OsDisk(post, max_open_files=files, fallbacks=portable)
