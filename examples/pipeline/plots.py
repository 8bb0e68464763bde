"""The tables as pictures. They are read with deltalake: no Spark is needed to look at them."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from matplotlib.dates import DateFormatter

mpl.use("Agg")
import matplotlib.pyplot as plt

SIZE = (9, 4.5)


def draw(tables: Path, plots: Path) -> list[Path]:
    plots.mkdir(parents=True, exist_ok=True)
    drawn = [
        _page_speed(read(tables / "page_speed"), plots / "page-speed.png"),
        _payment_delay(read(tables / "paid_orders"), plots / "payment-delay.png"),
        _order_states(read(tables / "order_snapshot"), plots / "order-states.png"),
    ]
    plt.close("all")
    return drawn


def read(folder: Path) -> pa.Table:
    return DeltaTable(str(folder)).to_pyarrow_table()


def _page_speed(rows: pa.Table, file: Path) -> Path:
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(SIZE[0], 6.5))
    for page in sorted(pc.unique(rows["page"]).to_pylist()):
        one = rows.filter(pc.equal(rows["page"], page)).sort_by("minute")
        minutes = one["minute"].to_pylist()
        above.plot(minutes, one["per_second"].to_pylist(), label=page)
        below.plot(minutes, one["p99_ms"].to_pylist(), label=page)
    above.set_ylabel("clicks per second")
    below.set_ylabel("p99, ms")
    above.margins(y=0.2)
    above.set_ylim(bottom=0)
    below.set_ylim(bottom=0)
    above.legend(frameon=False, ncols=4, loc="upper left")
    below.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    return _save(figure, file, "Clicks by page, minute by minute")


def _payment_delay(rows: pa.Table, file: Path) -> Path:
    figure, axes = plt.subplots(figsize=SIZE)
    seconds = [delay / 1000 for delay in rows["delay_ms"].to_pylist()]
    axes.hist(seconds, bins=60)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds from order to payment")
    axes.set_ylabel("orders")
    return _save(figure, file, f"{len(seconds):,} paid orders")


def _order_states(rows: pa.Table, file: Path) -> Path:
    figure, axes = plt.subplots(figsize=SIZE)
    counts = {item["values"]: item["counts"] for item in pc.value_counts(rows["status"]).to_pylist()}
    names = sorted(counts)
    bars = axes.bar(names, [counts[name] for name in names])
    axes.bar_label(bars, fmt="{:,.0f}")
    axes.set_ylabel("orders")
    return _save(figure, file, "Where orders are now")


def _save(figure: plt.Figure, file: Path, title: str) -> Path:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_title(title, loc="left")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    return file
