"""Fixtures of the tests of peers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.unit.net.fake_node import unused_port


@pytest.fixture
async def unhandled() -> AsyncIterator[list[dict[str, Any]]]:
    """What reached the loop's exception handler; a test that expects something takes it out."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(context))
    yield found
    assert found == []


@pytest.fixture
def refusing_port() -> Iterator[int]:
    sock, port = unused_port()
    with sock:
        yield port
