"""What tests of the Spark room share: one session per process, for it takes seconds to start, and records in topics."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.wire import Client
from barnabas.client.wire.admin import create_topic
from barnabas.client.wire.data import produce
from barnabas.model.ids import TopicPartition
from barnabas.testing import EmbeddedBroker
from barnabas.wire import records
from barnabas.wire.compression import Codec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests are short: code is compiled once, and quickly."""

SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores. Spark's workers find the package where this process has it."""
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH", "")]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own, of pandas and of sockets that it leaves open
        from barnabas.spark import session

        made = session(
            "tests",
            master="local[2]",
            config={
                "spark.driver.extraJavaOptions": FAST_START,
                "spark.local.dir": str(folder / "local"),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.streaming.stopTimeout": "30s",
            },
        )
        yield made
        made.stop()


@pytest.fixture
def broker(shared_broker: EmbeddedBroker) -> EmbeddedBroker:
    """The broker of the run: use topics of your own."""
    return shared_broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(client: Client, new_topic: Callable[[], str]) -> str:
    """A new topic of two partitions."""
    name = new_topic()
    create_topic(client, name, partitions=2)
    return name


Row = tuple[bytes | None, bytes | None]


@pytest.fixture
def fill(client: Client) -> Callable[..., None]:
    return lambda *given, **named: write(client, *given, **named)


def write(
    client: Client,
    topic: str,
    rows: Sequence[Row],
    *,
    partition: int = 0,
    timestamp: int = 1_700_000_000_000,
    codec: Codec = Codec.NONE,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Appends rows as one batch, a millisecond between each and the next."""
    made = [
        records.Record(offset=index, timestamp=timestamp + index, key=key, value=value, headers=tuple(headers))
        for index, (key, value) in enumerate(rows)
    ]
    produce(client, {TopicPartition(topic, partition): records.encode_batch(made, codec=codec)})


def values(count: int, prefix: str = "v", first: int = 0) -> list[Row]:
    return [(f"k{number}".encode(), f"{prefix}{number}".encode()) for number in range(first, first + count)]


class Reading:
    """Reads topics of one broker with the options given."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap_servers

    def batch(self, **options: Any) -> DataFrame:
        return self._options(self._spark.read.format("barnabas"), options).load()

    def stream(self, **options: Any) -> DataFrame:
        return self._options(self._spark.readStream.format("barnabas"), options).load()

    def _options(self, reader: Any, options: dict[str, Any]) -> Any:
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader


@pytest.fixture
def reading(spark: SparkSession, broker: EmbeddedBroker) -> Reading:
    return Reading(spark, broker.bootstrap_servers)
