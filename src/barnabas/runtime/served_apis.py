"""The table of APIs and their handlers, from which broker and controller make their pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from barnabas.runtime.pipeline import Api, Loaded
from barnabas.wire.catalogue import api_name

PRODUCE_KEY = 0


class ServedApi(NamedTuple):
    key: int
    min_version: int
    max_version: int
    module: str
    """Of both the handler and the messages."""
    advertised_min_version: int = -1

    @property
    def name(self) -> str:
        return api_name(self.key)

    @property
    def lowest_advertised(self) -> int:
        return self.min_version if self.advertised_min_version < 0 else self.advertised_min_version


def advertised(served: Sequence[ServedApi]) -> list[tuple[int, int, int]]:
    """(key, lowest, highest version) of each."""
    return [(api.key, api.lowest_advertised, api.max_version) for api in served]


def make_table(served: Sequence[ServedApi], handlers: str, owner: Any) -> dict[int, Api]:
    """``handlers`` is the package of the handlers, which get ``owner`` as their first argument."""
    return {api.key: _make(api, handlers, owner) for api in served}


def _make(api: ServedApi, handlers: str, owner: Any) -> Api:
    def load() -> Loaded:
        messages = import_module(f"barnabas.wire.api.{api.module}")
        handler = import_module(f"{handlers}.{api.module}")
        request, handle = getattr(messages, f"{api.name}Request"), partial(handler.handle, owner)
        if api.key == PRODUCE_KEY:
            return Loaded(request, handle, partial(handler.fast_path, owner))
        return Loaded(request, handle)

    return Api(
        key=api.key,
        name=api.name,
        min_version=api.min_version,
        max_version=api.max_version,
        load=load,
        is_pipelined=api.key == PRODUCE_KEY,
    )
