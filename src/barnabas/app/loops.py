"""The event loop of a node: uvloop where it is installed, asyncio's own elsewhere."""

from __future__ import annotations

import asyncio

from barnabas.model.errors import StartError


def new_event_loop(choice: str = "auto") -> asyncio.AbstractEventLoop:
    """Touches no policy: the host process keeps its own."""
    if choice != "asyncio":
        try:
            import uvloop  # noqa: PLC0415 -- optional

            return uvloop.new_event_loop()
        except ImportError:
            if choice == "uvloop":
                raise StartError("barnabas.event.loop is uvloop, which is not installed: pip install uvloop.") from None
    return asyncio.new_event_loop()
