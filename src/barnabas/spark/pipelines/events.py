"""What a run is asked for, and what it tells; nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """One batch of a flow."""

    flow: str
    batch_id: int
    rows: int
    seconds: float
    lag: int | None
    """Records that were in its topics and not yet read; None where its source does not say."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """A word of Spark's about the run or one of its flows."""

    message: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Which datasets are brought up to date, and which are made anew. Nothing named is everything, as it goes on."""

    refresh: Sequence[str] = ()
    full_refresh: Sequence[str] = ()
    full_refresh_all: bool = False
    dry: bool = False


Report = Callable[[FlowProgress | FlowEvent], None]


@dataclass
class Outcome:
    seconds: float
    rows: dict[str, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    lag: dict[str, int] = field(default_factory=dict)
