"""``barnabas.read`` and ``barnabas.read_batches`` against a broker, and what pandas, Polars and DuckDB make of them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

import barnabas
from barnabas.client.arrow.columns import arrow_schema
from barnabas.client.wire import BrokerError, BrokerUnavailable, Client
from barnabas.client.wire.admin import create_topic, delete_records
from barnabas.client.wire.data import produce
from barnabas.client.wire.errors import DataLoss
from barnabas.model.ids import TopicPartition
from barnabas.testing import EmbeddedBroker
from barnabas.wire import records
from barnabas.wire.compression import Codec

NOON_MS = 1_700_000_000_000
NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)


@pytest.fixture
def client(shared_broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(shared_broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(client: Client, new_topic: Callable[[], str]) -> str:
    """Three partitions: ten records, a second apart, in 0; five in 1, compressed; none in 2."""
    name = new_topic()
    create_topic(client, name, partitions=3)
    write(client, name, 0, 10)
    write(client, name, 1, 5, Codec.ZSTD)
    return name


def write(client: Client, topic: str, partition: int, count: int, codec: Codec = Codec.NONE) -> None:
    made = [
        records.Record(
            key=b"k%d" % number,
            value=b"%d" % (10 * number),
            timestamp=NOON_MS + 1000 * number,
            headers=(("n", b"%d" % number),),
        )
        for number in range(count)
    ]
    produce(client, {TopicPartition(topic, partition): records.encode_batch(made, codec=codec)})


@pytest.fixture
def servers(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap_servers


def offsets(found: pa.Table) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row in found.select(["partition", "offset"]).to_pylist():
        rows.setdefault(row["partition"], []).append(row["offset"])
    return rows


def test_pandas(topic: str, servers: str) -> None:
    orders = barnabas.read(topic, servers=servers).to_pandas()
    assert list(orders.groupby("partition").offset.max()) == [9, 4]
    assert orders.value.astype(int).sum() == 450 + 100
    assert orders.timestamp.min() == NOON


def test_polars(topic: str, servers: str) -> None:
    orders = polars.from_arrow(barnabas.read(topic, servers=servers))
    assert isinstance(orders, polars.DataFrame)
    assert orders.group_by("partition").len().sort("partition").rows() == [(0, 10), (1, 5)]
    assert orders["value"].cast(polars.String).cast(polars.Int64).sum() == 550
    batches = polars.from_arrow(barnabas.read_batches(topic, servers=servers, columns=["offset"]))
    assert isinstance(batches, polars.DataFrame)
    assert batches.shape == (15, 1)


def test_duckdb(topic: str, servers: str) -> None:
    orders = barnabas.read(topic, servers=servers)
    counted = duckdb.sql("select partition, count(*), sum(value::varchar::int) from orders group by all order by all")
    assert counted.fetchall() == [(0, 10, 450), (1, 5, 100)]
    assert orders.num_rows == 15
    batches = barnabas.read_batches(topic, servers=servers)
    assert duckdb.sql("select max(\"offset\") from batches where topic like 't%'").fetchall() == [(9,)]
    assert batches.schema.names[0] == "key"


def test_columns_are_those_of_sparks_source(topic: str, servers: str) -> None:
    found = barnabas.read(topic, servers=servers)
    assert found.schema == arrow_schema(False)
    assert found.slice(1, 1).to_pylist() == [
        {
            "key": b"k1",
            "value": b"10",
            "topic": topic,
            "partition": 0,
            "offset": 1,
            "timestamp": NOON + timedelta(seconds=1),
            "timestampType": 0,
        }
    ]
    with_headers = barnabas.read(topic, servers=servers, headers=True)
    assert with_headers.schema == arrow_schema(True)
    assert with_headers["headers"][2].as_py() == [{"key": "n", "value": b"2"}]


@pytest.mark.parametrize(
    ("columns", "headers", "names"),
    [
        (["offset", "value"], False, ["offset", "value"]),
        (["headers", "key"], False, ["headers", "key"]),
        (["key"], True, ["key", "headers"]),
    ],
)
def test_columns_can_be_chosen(topic: str, servers: str, columns: list[str], headers: bool, names: list[str]) -> None:
    found = barnabas.read(topic, servers=servers, columns=columns, headers=headers)
    assert found.column_names == names
    assert found.num_rows == 15


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"start": "latest"}, {}),
        ({"end": "earliest"}, {}),
        ({"partitions": [1]}, {1: [0, 1, 2, 3, 4]}),
        ({"partitions": [2]}, {}),
        ({"partitions": []}, {}),
        ({"start": {0: 7, 1: 5}}, {0: [7, 8, 9]}),
        ({"start": {0: 8}, "end": {1: 2}}, {0: [8, 9], 1: [0, 1]}),
        ({"start": NOON + timedelta(seconds=3), "end": NOON + timedelta(seconds=5)}, {0: [3, 4], 1: [3, 4]}),
        ({"start": NOON + timedelta(microseconds=7_000_001)}, {0: [8, 9]}),
        ({"start": (NOON + timedelta(seconds=8)).astimezone().replace(tzinfo=None)}, {0: [8, 9]}),
        ({"start": NOON_MS + 8000}, {0: [8, 9]}),
        ({"start": NOON_MS + 60_000}, {}),
        ({"start": np.int64(NOON_MS + 8000)}, {0: [8, 9]}),
        ({"start": {np.int32(0): np.int64(9), np.int64(1): 5}}, {0: [9]}),
        ({"start": pandas.Timestamp(NOON) + pandas.Timedelta(seconds=8)}, {0: [8, 9]}),
        ({"start": pandas.Timestamp((NOON + timedelta(seconds=8)).astimezone().replace(tzinfo=None))}, {0: [8, 9]}),
        ({"end": NOON_MS + 1000}, {0: [0], 1: [0]}),
        ({"isolation": "read_uncommitted", "start": {0: 9, 1: 4, 2: 0}}, {0: [9], 1: [4]}),
    ],
)
def test_bounds(topic: str, servers: str, given: dict[str, object], expected: dict[int, list[int]]) -> None:
    assert offsets(barnabas.read(topic, servers=servers, **given)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"start": "newest"}, r"start is 'newest': \"earliest\", \"latest\", a datetime"),
        ({"end": None}, "end is None: "),
        ({"end": True}, "end is True: "),
        ({"start": 1.5}, "start is 1.5: "),
        ({"end": -1}, "end is -1: "),
        ({"start": 17}, r"start is 17: a number is a time in milliseconds since 1970.*\{0: 17\}"),
        ({"start": np.int64(17)}, "start is .*17.*: a number is a time"),
        ({"start": {0: -2}}, r"start is \{0: -2\}: "),
        ({"start": {"0": 2}}, r"start is \{'0': 2\}: "),
        ({"start": {7: 2}}, r"start is \{7: 2\}: partition 7 is not among those that are read"),
        ({"end": {0: 11}}, r"end is \{0: 11\}: t.*-0 begins at offset 0 and ends at 10"),
        ({"start": {0: 11}}, r"start is \{0: 11\}: "),
        ({"start": {0: 5}, "end": {0: 4}}, r"start is \{0: 5\}, after end, which is \{0: 4\}"),
        ({"start": NOON_MS + 1, "end": NOON}, "start is 1700000000001, after end, which is datetime"),
        ({"partitions": [0, 3]}, "partitions names 3, but topic t.* has partitions 0 to 2"),
        ({"partitions": 3}, "partitions is 3: "),
        ({"columns": "value"}, "columns is 'value': "),
        ({"columns": ["values"]}, "columns names 'values': key, value, "),
        ({"isolation": "committed"}, "isolation is 'committed': "),
        ({"servers": "here:port"}, "servers is 'here:port': "),
        ({"servers": ""}, "servers is '': "),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(
    topic: str, servers: str, given: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        barnabas.read_batches(topic, **{"servers": servers, **given})  # type: ignore[arg-type]


def test_an_unknown_topic_is_an_error_at_once_and_not_created(servers: str, client: Client) -> None:
    with pytest.raises(BrokerError, match="topic no-such-topic: there is no such topic"):
        barnabas.read_batches("no-such-topic", servers=servers)
    assert "no-such-topic" not in client.load(None)


def test_a_missing_broker_is_named() -> None:
    with EmbeddedBroker() as broker:
        address = broker.bootstrap_servers
    with pytest.raises(BrokerUnavailable, match=f"no broker answers at {address}"):
        barnabas.read("orders", servers=address)


def test_records_deleted_under_a_reader_are_an_error(topic: str, servers: str, client: Client) -> None:
    batches = barnabas.read_batches(topic, servers=servers)
    delete_records(client, {TopicPartition(topic, 0): 6})
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 9 are to be read, but the log holds offsets 6 to 9"):
        batches.read_all()


def test_a_reader_that_is_not_used_up_leaves_no_connection(topic: str, servers: str) -> None:
    """An open socket would be a ResourceWarning, which is an error in tests."""
    unused = barnabas.read_batches(topic, servers=servers)
    begun = barnabas.read_batches(topic, servers=servers)
    assert begun.read_next_batch().num_rows == 10
    del unused, begun


def test_without_pyarrow_the_extra_is_named() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; import barnabas; barnabas.read"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "ImportError: barnabas.read needs pyarrow and numpy: pip install 'barnabas[arrow]'" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/READING.md"])
def test_the_examples_work(page: str) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {"barnabas": barnabas}
    with EmbeddedBroker() as broker, Client(broker.bootstrap_servers) as client:
        create_topic(client, "orders", partitions=1)
        write(client, "orders", 0, 10)
        place = f'"{broker.bootstrap_servers}"'
        for code in (code for code in blocks if "barnabas.read" in code):
            asked = code.replace('"127.0.0.1:9092"', place)
            if "servers=" not in asked:
                asked = asked.replace('("orders",', f'("orders", servers={place},')
            exec(compile(asked, page, "exec"), names)
        assert isinstance(names["orders"], pa.Table)
        assert names["orders"].num_rows == 10
