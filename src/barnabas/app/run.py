"""Runs a server in this process until a signal or a failure ends it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.app.server import Server
    from barnabas.app.settings_loader import LoadedSettings

START_GRACE_S = 3.0
"""A signal during the start takes effect after it, unless the start waits: for other nodes, or for room on the disk."""


def run(
    *,
    config: str | None,
    given: list[tuple[str, str]],
    memory: bool,
    on_started: Callable[[Server], None],
    on_ending: Callable[[str | None], None],
    until_stdin_ends: bool = False,
) -> bool:
    """Serves until SIGTERM or SIGINT. Returns whether the stop was clean; raises StartError.

    ``on_ending`` gets the reason of a failure, after which nothing is marked clean, or None for a signal.
    """
    gc.disable()  # until the server has started: collections take a tenth of the start otherwise
    from barnabas.app import limits, settings_loader  # noqa: PLC0415 -- after gc.disable()
    from barnabas.app.loops import new_event_loop  # noqa: PLC0415
    from barnabas.wire import walk  # noqa: PLC0415

    loaded = settings_loader.load(file=config, environment=os.environ, given=given)
    limits.raise_limit()
    if loaded.settings.portable:
        walk.use(native=False)  # for the whole process, which is ours
    loop = new_event_loop(loaded.settings.event_loop)
    try:
        return loop.run_until_complete(_serve(loop, loaded, memory, on_started, on_ending, until_stdin_ends))
    finally:
        loop.close()


async def _serve(
    loop: asyncio.AbstractEventLoop,
    loaded: LoadedSettings,
    memory: bool,
    on_started: Callable[[Server], None],
    on_ending: Callable[[str | None], None],
    until_stdin_ends: bool,
) -> bool:
    from barnabas.app.assembly import assemble  # noqa: PLC0415 -- after gc.disable()
    from barnabas.app.logs import LOAD_DELAY_S, Report  # noqa: PLC0415

    ended: asyncio.Future[str | None] = loop.create_future()

    def end(reason: str | None) -> None:
        if not ended.done():
            ended.set_result(reason)

    report = Report()
    if loaded.ignored:
        report("settings without effect here", settings=", ".join(loaded.ignored))
    server = assemble(loaded, loop=loop, memory=memory, report=report, on_failure=end)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, None)
    if until_stdin_ends:
        _watch_stdin(loop, lambda: end(None))
    starting = asyncio.ensure_future(server.start())
    first_of: list[asyncio.Future[Any]] = [starting, ended]
    await asyncio.wait(first_of, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        await asyncio.wait([starting], timeout=START_GRACE_S)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        on_ending(ended.result())
        return False
    starting.result()
    gc.freeze()
    gc.enable()
    on_started(server)
    loop.call_later(LOAD_DELAY_S, report.load)
    failure = await ended
    on_ending(failure)
    if failure is not None:
        server.abort()
        return False
    return await server.stop()


def _watch_stdin(loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
    """Standard input is a pipe from the supervisor, which ends with it."""

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            on_end()

    loop.add_reader(0, readable)
