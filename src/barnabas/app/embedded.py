"""A broker with its own thread and event loop, for use inside another program's process."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from barnabas.app.assembly import assemble
from barnabas.app.listeners import Address
from barnabas.app.logs import silent
from barnabas.app.loops import new_event_loop
from barnabas.app.server import Server
from barnabas.app.settings_loader import load
from barnabas.model.errors import StartError

START_TIMEOUT_S = 120.0
"""For what hangs: a start takes milliseconds, and many seconds on a machine that is busy with other things."""


class EmbeddedBroker:
    """A broker as a context manager, sync or async. ``start`` and ``stop`` can be called by hand as well.

    ``data``: a folder (str or Path) that is kept; ``"temporary"``: one that is removed at the end; None: in memory.
    ``settings``: Kafka's names and values, e.g. ``{"num.partitions": 3}``.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        durable: bool = False,
    ) -> None:
        self._is_temporary = data == "temporary"  # a Path of that name is a folder like any other
        self._temporary: str | None = None
        self._data = None if data is None else os.fspath(data)
        place = Address("PLAINTEXT", host, port)
        self._given = {"listeners": f"{place.name}://{place}", "barnabas.durable": str(durable).lower()}
        self._given |= {key: _text(value) for key, value in (settings or {}).items()}
        self._ready = threading.Event()
        self._problem: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[bool] | None = None
        self._server: Server | None = None

    # What tests use

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the first listener."""
        server = self._running()
        return str(server.bound[0].address)

    @property
    def host(self) -> str:
        return self._running().bound[0].address.host

    @property
    def port(self) -> int:
        return self._running().bound[0].address.port

    @property
    def data(self) -> str | None:
        """The data folder; None where everything is in memory."""
        return self._temporary or self._data

    def start(self) -> Self:
        """Returns when clients can connect. Raises StartError with the reason where they cannot."""
        self._ready.clear()
        self._problem = None
        if self._is_temporary and self._temporary is None:  # after a kill it is there
            self._temporary = tempfile.mkdtemp(prefix="barnabas-")
        folder = self.data
        if folder is not None:
            self._given["log.dirs"] = folder
        self._thread = threading.Thread(target=self._run, name="barnabas-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise StartError(f"The embedded broker did not start within {START_TIMEOUT_S:.0f} s.")
        if self._problem is not None:
            self._thread.join()
            self._remove_temporary()
            raise self._problem
        return self

    def stop(self) -> None:
        """A clean stop: everything is on the disk, where there is one."""
        self._end(clean=True)
        self._remove_temporary()

    def kill(self) -> None:
        """Stops as a crash would: nothing is marked clean. The folder stays for the next start."""
        self._end(clean=False)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # The thread

    def _run(self) -> None:
        try:
            loaded = load(given=self._given.items())
            loop = self._loop = new_event_loop(loaded.settings.event_loop)
        except BaseException as problem:
            self._problem = problem
            self._ready.set()
            return
        try:
            self._ended = loop.create_future()
            server = assemble(loaded, loop=loop, memory=self.data is None, report=silent, on_failure=self._failed)
            loop.run_until_complete(server.start())
            self._server = server
            self._ready.set()
            clean = loop.run_until_complete(self._ended)
            if clean:
                loop.run_until_complete(server.stop())
            else:
                server.abort()
        except BaseException as problem:
            self._problem = problem
        finally:
            self._ready.set()
            loop.close()

    def _failed(self, reason: str) -> None:
        silent("the embedded broker failed", reason=reason)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(False)

    def _end(self, *, clean: bool) -> None:
        thread, loop, ended = self._thread, self._loop, self._ended
        if thread is None or loop is None or ended is None:
            return
        self._thread = None

        def end() -> None:
            if not ended.done():
                ended.set_result(clean)

        if thread.is_alive():
            loop.call_soon_threadsafe(end)
            thread.join()
        self._server = None
        if self._problem is not None:
            raise self._problem

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError("the embedded broker is not running: use it as a context manager, or call start()")
        return self._server


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return str(value)
