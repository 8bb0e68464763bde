"""The sink's transactions and their commit, step by step, without Spark: what remains when a driver or a task dies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from barnabas.client.wire import BrokerError, Client
from barnabas.client.wire.admin import create_topic, delete_topics
from barnabas.client.wire.groups import committed_offsets
from barnabas.client.wire.transactional import end_transaction, init_producer
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.spark.exactly_once.commit import Committer
from barnabas.spark.exactly_once.decision import Decision, read_decision, write_decision
from barnabas.spark.exactly_once.names import ExactlyOnceError, Origin, TaskTransaction, driver_id, task_name
from barnabas.spark.exactly_once.rows import Checksum
from barnabas.spark.exactly_once.task import TaskResult, write_transaction
from barnabas.spark.options import SparkOptionError, parse_sink
from tests.spark.transactional import (
    DriverDied,
    Query,
    barnabas_servers,
    dies_at,
    kafka_missing,
    kafka_servers,
    open_of,
    sees,
    visible,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = [["a1", "a2", "a3"], ["b1", "b2"], ["c1"]]
ALL = sorted(row for rows in ROWS for row in rows)


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka" and (reason := kafka_missing()):
        pytest.skip(reason)
    with (kafka_servers if request.param == "kafka" else barnabas_servers)() as started:
        yield started


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers) as made:
        yield made


@pytest.fixture
def topic(client: Client, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    create_topic(client, name, partitions=3)
    return name


@pytest.fixture
def query(servers: str, topic: str) -> Query:
    return Query(servers, topic, f"app-{uuid.uuid4().hex[:8]}")


class TestBatches:
    def test_rows_are_seen_when_the_driver_has_committed(self, client: Client, topic: str, query: Query) -> None:
        results = [query.task(0, rows) for rows in ROWS]
        assert visible(client, topic) == []
        assert query.commit(client, 0, results).status == "committed"
        assert sees(client, topic, ALL)
        query.run(client, 1, [["d1"], ["e1"]])
        assert sees(client, topic, [*ALL, "d1", "e1"])
        assert [each.offset for each in committed_offsets(client, f"barnabas-sink-{query.application}").values()] == [2]

    def test_names_are_used_again_after_the_next_decision(self, client: Client, query: Query) -> None:
        names: list[set[str]] = []
        for batch in range(5):
            results = [query.task(batch, rows) for rows in ROWS]
            names.append({each.transaction.name for each in results if each.transaction})
            query.commit(client, batch, results)
        assert names[0].isdisjoint(names[1])
        assert len(set.union(*names)) <= 3 * len(ROWS)  # two sets, and one more where a task reads an old decision

    def test_a_batch_that_comes_again_is_not_written_again(self, client: Client, topic: str, query: Query) -> None:
        query.run(client, 0, ROWS)
        assert query.run(client, 0, ROWS).status == "repeated"
        assert sees(client, topic, ALL)
        assert open_of(client, query.application) == []

    def test_an_empty_batch(self, client: Client, topic: str, query: Query) -> None:
        assert query.commit(client, 0, [query.task(0, [])]).status == "empty"
        query.run(client, 1, ROWS)
        assert sees(client, topic, ALL)

    def test_several_topics(self, client: Client, topic: str, servers: str, new_topic: Callable[[], str]) -> None:
        other = new_topic()
        create_topic(client, other, partitions=1)
        options = parse_sink({"kafka.bootstrap.servers": servers, "deliveryMode": "exactly-once"})
        application = f"app-{uuid.uuid4().hex[:8]}"
        for batch, places in enumerate([[topic], [other], [topic, other], [other]]):
            rows = pa.RecordBatch.from_pydict({"value": [f"v{batch}"] * len(places), "topic": places})
            origin = Origin(application, "q", batch)
            Committer(client, application).commit(origin, [write_transaction(options, [rows], origin)])
        assert sees(client, topic, ["v0", "v2"])
        assert sees(client, other, ["v1", "v2", "v3"])
        found = read_decision(client, application)
        assert found is not None
        assert (found.batch, found.sequence) == (3, 4)
        delete_topics(client, [other])  # what was decided last went with it; what is older is still known
        rows = pa.RecordBatch.from_pydict({"value": ["v4"], "topic": [topic]})
        origin = Origin(application, "q", 4)
        Committer(client, application).commit(origin, [write_transaction(options, [rows], origin)])
        assert sees(client, topic, ["v0", "v2", "v4"])


class TestAttempts:
    def test_only_one_attempt_of_a_task_counts(self, client: Client, topic: str, query: Query) -> None:
        """A speculative attempt has written all its rows, too; Spark has taken the other one's."""
        results = [query.task(0, rows) for rows in ROWS]
        query.task(0, ROWS[0])
        query.task(0, ROWS[2])
        query.commit(client, 0, results)
        assert sees(client, topic, ALL)
        assert open_of(client, query.application) == []

    def test_an_attempt_that_outlives_its_batch_gets_nothing_in(
        self, client: Client, topic: str, query: Query, servers: str
    ) -> None:
        zombie = query.task(0, ["zombie"])
        query.run(client, 0, ROWS)
        assert zombie.transaction is not None
        with pytest.raises(BrokerError) as caught:
            end_transaction(client, zombie.transaction.producer(query.application), commit=True)
        assert caught.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        assert sees(client, topic, ALL)

    def test_a_task_that_fails_leaves_nothing_open(self, client: Client, topic: str, query: Query) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            wide = [f"{number:04}" + "x" * 2000 for number in range(2000)]
            yield pa.RecordBatch.from_pydict({"value": wide})
            raise OSError("the source is gone")

        options = parse_sink(query.options)
        with pytest.raises(OSError, match="the source is gone"):
            write_transaction(options, batches(), Origin(query.application, "q1", 0))
        assert open_of(client, query.application) == []
        assert visible(client, topic, committed=False) != []
        query.run(client, 0, ROWS)
        assert sees(client, topic, ALL)

    def test_spark_aborts_when_a_task_failed(self, client: Client, topic: str, query: Query) -> None:
        results = [query.task(0, rows) for rows in ROWS]
        Committer(client, query.application).abort(results)
        assert open_of(client, query.application) == []
        assert sees(client, topic, [])


STEPS = [
    ("taken over", 1, False),
    ("decision written", 1, False),
    ("decided", 1, True),
    ("task committed", 1, True),
    ("task committed", 2, True),
    ("task committed", 3, True),
    ("completed", 1, True),
]


class TestDriverCrashes:
    @pytest.mark.parametrize(("step", "times", "is_decided"), STEPS)
    def test_between_any_two_steps(
        self, client: Client, topic: str, query: Query, step: str, times: int, is_decided: bool
    ) -> None:
        query.run(client, 0, [["before"]])
        with pytest.raises(DriverDied):
            query.commit(client, 1, [query.task(1, rows) for rows in ROWS], dies_at(step, times))
        again = [query.task(1, rows) for rows in ROWS]
        assert query.commit(client, 1, again).status == ("repeated" if is_decided else "committed")
        assert sees(client, topic, ["before", *ALL])
        assert open_of(client, query.application) == []
        query.run(client, 2, [["after"]])
        assert sees(client, topic, ["before", *ALL, "after"])

    @pytest.mark.parametrize(("step", "times", "is_decided"), STEPS)
    def test_also_while_another_crash_is_mended(
        self, client: Client, topic: str, query: Query, step: str, times: int, is_decided: bool
    ) -> None:
        with pytest.raises(DriverDied):
            query.commit(client, 0, [query.task(0, rows) for rows in ROWS], dies_at(step, times))
        for second, count, _ in STEPS:
            results = [query.task(0, rows) for rows in ROWS]
            with suppress(DriverDied):  # not all steps are taken again
                query.commit(client, 0, results, dies_at(second, count))
        query.run(client, 0, ROWS)
        assert sees(client, topic, ALL)

    def test_what_was_decided_is_carried_out_without_the_batch(self, client: Client, topic: str, query: Query) -> None:
        with pytest.raises(DriverDied):
            query.commit(client, 0, [query.task(0, rows) for rows in ROWS], dies_at("decided"))
        query.task(0, ["left open"])
        decided = Committer(client, query.application).recover()
        assert decided is not None
        assert decided.is_of("q1", 0)
        assert sees(client, topic, ALL)
        assert open_of(client, query.application) == []

    @pytest.mark.parametrize("paused_at", ["taken over", "decision written"])
    def test_a_driver_that_was_replaced_decides_nothing(
        self, client: Client, topic: str, query: Query, paused_at: str
    ) -> None:
        """It was paused, and another one has done the batch since."""

        def pause(step: str) -> None:
            if step == paused_at:
                assert query.run(client, 0, ROWS).status == "committed"

        with pytest.raises((BrokerError, ExactlyOnceError), match=r"FENCED|INVALID_PRODUCER_EPOCH|not open any more"):
            query.commit(client, 0, [query.task(0, rows) for rows in ROWS], pause)
        assert sees(client, topic, ALL)

    def test_with_more_tasks_than_fit_into_one_offset(self, client: Client, topic: str, query: Query) -> None:
        rows = [[f"r{number:03}"] for number in range(150)]
        with pytest.raises(DriverDied):
            query.commit(client, 0, [query.task(0, each) for each in rows], dies_at("task committed", 70))
        assert query.run(client, 0, rows).status == "repeated"
        assert sees(client, topic, [row for each in rows for row in each])


class TestTimeouts:
    def test_a_task_that_timed_out_before_the_decision(self, client: Client, topic: str, query: Query) -> None:
        results = [query.task(0, rows) for rows in ROWS]
        self._time_out(client, query, results[1])
        with pytest.raises(ExactlyOnceError, match="not open any more"):
            query.commit(client, 0, results)
        assert sees(client, topic, [])
        query.run(client, 0, ROWS)
        assert sees(client, topic, ALL)

    def test_rows_that_timed_out_after_the_decision_are_replaced(
        self, client: Client, topic: str, query: Query
    ) -> None:
        results = [query.task(0, rows) for rows in ROWS]
        with pytest.raises(DriverDied):
            query.commit(client, 0, results, dies_at("task committed", 1))
        self._time_out(client, query, results[2])
        assert query.run(client, 0, ROWS).status == "repeated"
        assert sees(client, topic, ALL)
        assert query.run(client, 0, ROWS).status == "repeated"
        assert sees(client, topic, ALL)

    def test_and_where_the_rows_are_others_the_batch_fails(self, client: Client, topic: str, query: Query) -> None:
        results = [query.task(0, rows) for rows in ROWS]
        with pytest.raises(DriverDied):
            query.commit(client, 0, results, dies_at("task committed", 1))
        self._time_out(client, query, results[2])
        with pytest.raises(ExactlyOnceError, match=r"1 of 3 transactions of batch 0 .* with 1 rows, were aborted"):
            query.run(client, 0, [["a1", "a2"], ["a3", "b1", "b2"], ["c1", "new"]])

    def test_by_the_brokers_clock(self, client: Client, topic: str, servers: str) -> None:
        query = Query(servers, topic, f"app-{uuid.uuid4().hex[:8]}", **{"kafka.transaction.timeout.ms": "1000"})
        results = [query.task(0, rows) for rows in ROWS]
        assert sees(client, topic, [])
        while open_of(client, query.application):
            pass
        with pytest.raises(ExactlyOnceError, match=r"kafka\.transaction\.timeout\.ms"):
            query.commit(client, 0, results)
        assert sees(client, topic, [])

    def _time_out(self, client: Client, query: Query, result: TaskResult) -> None:
        """As the broker does it: the transaction is aborted under a new epoch."""
        assert result.transaction is not None
        init_producer(client, result.transaction.producer(query.application).transactional_id, 60_000)


class TestCheckpoints:
    def test_another_checkpoint_is_refused(self, client: Client, topic: str, query: Query, servers: str) -> None:
        query.run(client, 4, ROWS)
        other = Query(servers, topic, query.application, "q2")
        with pytest.raises(ExactlyOnceError, match="last written by query q1 up to batch 4"):
            other.run(client, 0, ROWS)
        assert sees(client, topic, ALL)

    def test_an_older_copy_of_the_checkpoint_is_refused(self, client: Client, topic: str, query: Query) -> None:
        query.run(client, 4, ROWS)
        with pytest.raises(ExactlyOnceError, match=r"batch 3 of .* comes after batch 4"):
            query.run(client, 3, ROWS)
        assert sees(client, topic, ALL)

    @pytest.mark.parametrize("step", ["completed", "decided", "decision written"])
    def test_a_lost_checkpoint_with_the_offsets_of_the_source(
        self, client: Client, topic: str, servers: str, step: str
    ) -> None:
        """The driver dies in the second batch, and its checkpoint is gone: all is read again, in other batches."""
        application = f"app-{uuid.uuid4().hex[:8]}"
        options = {"applicationId": application, "sourceColumn": "source"}
        lost = Query(servers, topic, application, "q1", **options)
        lost.commit(client, 0, [lost.task(0, ["a0", "a1"], 0, 0), lost.task(0, ["b0"], 1, 0)])
        results = [lost.task(1, ["a2", "a3"], 0, 2), lost.task(1, ["b1"], 1, 1)]
        with pytest.raises(DriverDied):
            lost.commit(client, 1, results, dies_at(step))
        new = Query(servers, topic, application, "q2", **options)
        results = [new.task(0, ["a0", "a1", "a2", "a3", "a4"], 0, 0), new.task(0, ["b0", "b1"], 1, 0)]
        new.commit(client, 0, results)
        assert sees(client, topic, ["a0", "a1", "a2", "a3", "a4", "b0", "b1"])
        new.commit(client, 1, [new.task(1, ["a5"], 0, 5), new.task(1, ["b2"], 1, 2)])
        assert sees(client, topic, ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1", "b2"])
        found = read_decision(client, application)
        assert found is not None
        assert found.offsets == {TopicPartition("in", 0): 6, TopicPartition("in", 1): 3}

    def test_a_new_checkpoint_reads_in_smaller_batches(self, client: Client, topic: str, servers: str) -> None:
        """Its first batch writes new rows of one partition, before it has come to the end of the other."""
        application = f"app-{uuid.uuid4().hex[:8]}"
        options = {"applicationId": application, "sourceColumn": "source"}
        lost = Query(servers, topic, application, "q1", **options)
        lost.commit(client, 0, [lost.task(0, ["a0", "a1"], 0, 0), lost.task(0, ["b0", "b1"], 1, 0)])
        new = Query(servers, topic, application, "q2", **options)
        new.commit(client, 0, [new.task(0, ["a0", "a1", "a2"], 0, 0), new.task(0, ["b0"], 1, 0)])
        new.commit(client, 1, [new.task(1, ["a3"], 0, 3), new.task(1, ["b1", "b2"], 1, 1)])
        assert sees(client, topic, ["a0", "a1", "a2", "a3", "b0", "b1", "b2"])
        third = Query(servers, topic, application, "q3", **options)
        third.commit(client, 0, [third.task(0, ["a2", "a3", "a4"], 0, 2), third.task(0, ["b0", "b1", "b2"], 1, 0)])
        assert sees(client, topic, ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2"])


def test_a_write_without_a_name(client: Client, topic: str, servers: str) -> None:
    query = Query(servers, topic, uuid.uuid4().hex, "")
    results = [query.task(None, rows) for rows in ROWS]
    query.task(None, ["an attempt that was lost"])
    query.commit(client, None, results)
    assert visible(client, topic) == ALL
    assert open_of(client, query.application) == []


def test_a_decision_is_read_as_it_was_written(client: Client, topic: str) -> None:
    application = f"app-{uuid.uuid4().hex[:8]}"
    tasks = tuple(TaskTransaction(f"{uuid.uuid4().hex[:16]}-{n}", 2**40 + n, n, n * 7, 2**63 + n) for n in range(700))
    offsets = {TopicPartition(topic, 2): 2**50}
    written = Decision(sequence=3, query="q", batch=12, tasks=tasks, offsets=offsets, inherited=offsets)
    driver = init_producer(client, driver_id(application), 60_000)
    write_decision(client, driver, application, topic, written)
    end_transaction(client, driver, commit=True)
    init_producer(client, driver_id(application), 60_000)
    assert read_decision(client, application) == written
    assert len(committed_offsets(client, f"barnabas-sink-{application}.1")) == 1


def test_names_of_other_applications_are_left_alone() -> None:
    token = "0123456789abcdef"
    assert task_name("shop", f"barnabas-sink-shop-{token}-12") == f"{token}-12"
    assert task_name("shop", f"barnabas-sink-shop-eu-{token}-12") is None
    assert task_name("shop", "barnabas-sink-shop-driver") is None
    assert task_name("s.op", f"barnabas-sink-shop-{token}-12") is None


def test_a_checksum_does_not_depend_on_how_rows_are_cut() -> None:
    def checksum(*batches: list[str | None]) -> int:
        made = Checksum()
        for rows in batches:
            made.add(pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.string())}))
        return made.value

    whole = pa.RecordBatch.from_pydict({"value": pa.array(["x", "ab", None, "c", ""], pa.string())})
    sliced = Checksum()
    sliced.add(whole.slice(1, 2))
    sliced.add(whole.slice(3))
    assert checksum(["ab", None], ["c", ""]) == checksum(["ab"], [None], ["c"], [""]) == sliced.value
    assert checksum(["ab", "c"]) != checksum(["a", "bc"])
    assert checksum(["ab"]) != checksum(["ab", None]) != checksum(["ab", ""])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"deliveryMode": "once"}, "deliveryMode is 'once': at-least-once or exactly-once is right"),
        ({"applicationId": "a"}, "applicationId is for deliveryMode exactly-once"),
        ({"deliveryMode": "exactly-once", "kafka.acks": "1"}, "only all is right"),
        ({"deliveryMode": "exactly-once", "kafka.enable.idempotence": "false"}, "needs it"),
        ({"deliveryMode": "exactly-once", "sourceColumn": "s"}, "sourceColumn needs an applicationId"),
    ],
)
def test_options(options: dict[str, str], text: str) -> None:
    with pytest.raises(SparkOptionError, match=text):
        parse_sink({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **options})
