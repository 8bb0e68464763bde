"""A shop's data pipeline from end to end: ``make demo-pipeline``, or ``python examples/pipeline/demo.py --help``.

It starts a broker of its own, fills it with a morning's orders, payments and clicks, and makes of them: orders joined
with their payments, the speed of each page by the minute, the state of every order as a compacted topic with a snapshot
of it, and an archive of all orders that is checked record by record. Tables are Delta, plots are PNG.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import plots
from generator import events, send
from queries import Shop

from barnabas.client.wire import Client
from barnabas.spark import session
from barnabas.spark.jobs.archive import Archive, archive
from barnabas.spark.tables.formats import open_table
from barnabas.spark.verify import verify
from barnabas.testing import EmbeddedBroker

T = TypeVar("T")

MINUTES = 40
"""How long the shop's morning is."""


def step(text: str, work: Callable[[], T]) -> T:
    began = time.monotonic()
    print(f"{text} …", flush=True)
    result = work()
    print(f"  {time.monotonic() - began:.1f} s", flush=True)
    return result


def run(orders: int, folder: Path, master: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with EmbeddedBroker(data=str(folder / "broker")) as broker:
        servers = broker.bootstrap_servers
        print(f"a broker listens on {servers}")
        start_ms = (int(time.time()) // 60 - MINUTES - 30) * 60_000
        found = events(orders, start_ms, MINUTES)
        counts = step(f"sending {len(found):,} events", lambda: send(servers, found))
        spark = step("starting Spark", lambda: session("shop", master))
        try:
            shop = Shop(spark, servers, folder)
            _queries(shop)
            _archive(shop, spark, servers, counts["orders"])
        finally:
            spark.stop()
    drawn = step("drawing", lambda: plots.draw(folder / "tables", folder / "plots"))
    _summary(folder, counts, drawn)


def _queries(shop: Shop) -> None:
    step(
        "orders joined with their payments",
        lambda: shop.watch(shop.to_table(shop.paid_orders(), "paid_orders")),
    )
    step("page speed by the minute", lambda: shop.watch(shop.to_table(shop.page_speed(), "page_speed")))
    step(
        "the state of every order, to a compacted topic",
        lambda: shop.watch(shop.to_topic(shop.order_state(), "order-state")),
    )
    step("a snapshot of it", lambda: shop.snapshot("order-state", "order_snapshot"))


def _archive(shop: Shop, spark: object, servers: str, expected: int) -> None:
    options = {"tableFormat": "delta", "path": str(shop.table("orders_archive"))}
    job = Archive(
        topics=("orders",),
        servers=servers,
        table=options,
        checkpoint=str(shop.table("orders_archive").parent.parent / "checkpoints" / "orders_archive"),
    )
    step("an archive of all orders", lambda: archive(spark, job))  # type: ignore[arg-type]
    with open_table(options) as table, Client(servers) as client:
        report = step("is it complete?", lambda: verify(table, client, "orders", whole_topic=True))
    rows = sum(partition.rows for partition in report.partitions)
    if not report.ok or rows != expected:
        raise SystemExit(f"the archive is not complete: {report.problems}")
    print(f"  {rows:,} records, none missing, none twice")


def _summary(folder: Path, counts: dict[str, int], drawn: list[Path]) -> None:
    print("\nsent      " + ", ".join(f"{count:,} {topic}" for topic, count in sorted(counts.items())))
    for table in sorted((folder / "tables").iterdir()):
        print(f"table     {table}  {plots.read(table).num_rows:,} rows")
    for file in drawn:
        print(f"plot      {file}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=10_000, help="how many orders the shop gets (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("demo-output"), help="where everything goes (%(default)s)")
    parser.add_argument("--master", default="local[*]", help="where Spark runs (%(default)s)")
    options = parser.parse_args()
    run(options.orders, options.folder.resolve(), options.master)


if __name__ == "__main__":
    main()
