"""Barnabas, a Kafka-compatible broker. ``read`` and ``read_batches`` give a topic as Arrow data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.arrow.table import read, read_batches

__all__ = ["read", "read_batches"]


def __getattr__(name: str) -> object:
    """Loads pyarrow on first use: most who import the package do not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from barnabas.client.arrow import table  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ImportError(f"barnabas.{name} needs pyarrow and numpy: pip install 'barnabas[arrow]'") from error
    return getattr(table, name)
