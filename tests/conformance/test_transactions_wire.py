"""Requests about transactions in every version, as clients of other languages send them, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.testing import EmbeddedBroker
from barnabas.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from barnabas.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas.wire.api.fetch import FetchResponse
from barnabas.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.wire.api.produce import ProduceResponse
from barnabas.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.conformance.transactions_wire import (
    OLDEST,
    VERSION_1,
    VERSION_2,
    TransactionalProducer,
    Versions,
    latest,
)
from tests.reliability.raw import Raw, batch, fetch_request, produce_request, wait_until

NewName = Callable[[], str]
COMMITTED, UNCOMMITTED = 1, 0

ALL_VERSIONS = pytest.mark.parametrize("versions", [OLDEST, VERSION_1, VERSION_2], ids=["oldest", "1", "2"])


@pytest.fixture
def raw(single_broker: EmbeddedBroker) -> Iterator[Raw]:
    with Raw(single_broker.port) as connection:
        connection.call(FindCoordinatorRequest("any", 0, ["any"]), FindCoordinatorResponse, 4)
        yield connection


@pytest.fixture
def topic(raw: Raw, new_topic: NewName) -> str:
    name = new_topic()
    raw.create(name, 2)
    return name


def begin(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    if producer.versions is not VERSION_2:
        assert producer.add(topic) == [ErrorCode.NONE]
    assert producer.send(topic, *values).error_code == ErrorCode.NONE


def committed_offset(raw: Raw, group: str, topic: str, *, stable: bool = True) -> tuple[int, int]:
    wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    reply = raw.call(OffsetFetchRequest(groups=[wanted], require_stable=stable), OffsetFetchResponse, 8)
    found = reply.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


def test_the_feature_is_finalized(raw: Raw) -> None:
    reply = raw.call(ApiVersionsRequest("test", "1"), ApiVersionsResponse, 3)
    finalized = {feature.name: feature.max_version_level for feature in reply.finalized_features}
    assert finalized["transaction.version"] == 2


@ALL_VERSIONS
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_last_stable_offset_and_aborted_ranges(raw: Raw, topic: str, versions: Versions, commit: bool) -> None:
    producer = TransactionalProducer(raw, topic, versions)
    assert producer.init().error_code == ErrorCode.NONE
    begin(producer, topic, b"one", b"two")
    assert latest(raw, topic, isolation_level=UNCOMMITTED) == 2
    assert latest(raw, topic, isolation_level=COMMITTED) == 0
    owner = producer.producer_id
    assert producer.end(commit=commit).error_code == ErrorCode.NONE
    wait_until(lambda: latest(raw, topic, isolation_level=COMMITTED) == 3, "the marker is written")
    reply = raw.call(fetch_request(topic, isolation_level=COMMITTED), FetchResponse, 12)
    found = reply.responses[0].partitions[0]
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    assert aborted == ([] if commit else [(owner, 0)])
    assert found.last_stable_offset == 3


@ALL_VERSIONS
def test_offsets_are_pending_until_the_transaction_ends(raw: Raw, topic: str, versions: Versions) -> None:
    producer = TransactionalProducer(raw, topic, versions)
    producer.init()
    for number, commit in enumerate([True, False, True], 1):
        if versions is not VERSION_2:
            assert producer.add_offsets(topic) == ErrorCode.NONE
        assert producer.commit_offset(topic, topic, number) == ErrorCode.NONE
        assert committed_offset(raw, topic, topic) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        producer.end(commit=commit)
        last = number if commit else number - 1
        wait_until(lambda last=last: committed_offset(raw, topic, topic) == (0, last), "the marker is written")  # type: ignore[misc]


def test_a_batch_whose_partition_was_not_added_is_refused(raw: Raw, topic: str) -> None:
    for versions, code in [
        (OLDEST, ErrorCode.INVALID_TXN_STATE),
        (VERSION_1, ErrorCode.TRANSACTION_ABORTABLE),
    ]:
        producer = TransactionalProducer(raw, f"{topic}-{versions.produce}", versions)
        producer.init()
        assert producer.add(topic, [1]) == [ErrorCode.NONE]
        assert producer.send(topic, b"lost").error_code == code
        assert producer.commit_offset(topic, topic, 3) in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    assert latest(raw, topic, isolation_level=UNCOMMITTED) == 0


def test_a_late_batch_of_a_former_transaction_is_refused(raw: Raw, topic: str) -> None:
    for versions in (VERSION_1, VERSION_2):
        producer = TransactionalProducer(raw, f"{topic}-{versions.produce}", versions)
        producer.init()
        begin(producer, topic, b"one")
        late = TransactionalProducer(raw, producer.transactional_id, versions)
        late.producer_id, late.producer_epoch = producer.producer_id, producer.producer_epoch
        late.sequence[topic, 0] = 1
        producer.end(commit=True)
        before = latest(raw, topic, isolation_level=UNCOMMITTED)
        codes = (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert late.send(topic, b"late").error_code in codes
        assert latest(raw, topic, isolation_level=UNCOMMITTED) == before


@ALL_VERSIONS
def test_a_new_owner_fences_the_former(raw: Raw, topic: str, versions: Versions) -> None:
    former, owner = (TransactionalProducer(raw, topic, versions) for _ in range(2))
    former.init()
    begin(former, topic, b"zombie")
    assert owner.init().error_code == ErrorCode.NONE, "it waits until the open transaction is aborted"
    assert owner.producer_epoch > former.producer_epoch
    fenced = ErrorCode.PRODUCER_FENCED if versions is not OLDEST else ErrorCode.INVALID_PRODUCER_EPOCH
    assert former.end(commit=True).error_code == fenced
    assert former.add(topic, [1]) == [fenced]
    assert former.send(topic, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert former.commit_offset(topic, topic, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    begin(owner, topic, b"mine")
    assert owner.end(commit=True).error_code == ErrorCode.NONE


def test_a_transaction_that_takes_too_long_is_aborted(raw: Raw, topic: str) -> None:
    producer = TransactionalProducer(raw, topic)
    producer.init(timeout_ms=300)
    begin(producer, topic, b"slow")
    wait_until(lambda: latest(raw, topic, isolation_level=COMMITTED) == 2, "it is aborted")
    assert producer.end(commit=True).error_code == ErrorCode.PRODUCER_FENCED
    assert producer.init().error_code == ErrorCode.NONE
    begin(producer, topic, b"quick")
    assert producer.end(commit=True).error_code == ErrorCode.NONE


def test_repeated_ends_of_version_2(raw: Raw, topic: str) -> None:
    producer = TransactionalProducer(raw, topic, VERSION_2)
    producer.init()
    begin(producer, topic, b"one")
    epoch = producer.producer_epoch
    assert producer.end(commit=True).producer_epoch == epoch + 1
    producer.producer_epoch = epoch
    assert producer.end(commit=True).producer_epoch == epoch + 1, "the same request, sent again"
    producer.producer_epoch = epoch
    assert producer.end(commit=False).error_code == ErrorCode.INVALID_TXN_STATE
    producer.producer_epoch = epoch + 1
    assert producer.end(commit=False).producer_epoch == epoch + 2, "an abort without partitions"


def test_wrong_requests(raw: Raw, topic: str) -> None:
    nobody = TransactionalProducer(raw, f"{topic}-nobody")
    nobody.producer_id, nobody.producer_epoch = 9, 0
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert nobody.add(topic) == [mapping]
    assert nobody.end(commit=True).error_code == mapping
    assert nobody.add_offsets(topic) == mapping
    assert nobody.send(topic, b"x").error_code == mapping
    assert TransactionalProducer(raw, "").init().error_code == ErrorCode.INVALID_REQUEST
    producer = TransactionalProducer(raw, topic)
    assert producer.init(timeout_ms=0).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert producer.init(timeout_ms=900_001).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert producer.init().error_code == ErrorCode.NONE
    assert producer.end(commit=True).error_code == ErrorCode.INVALID_TXN_STATE
    codes = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.add(topic, [0, 7]) == codes
    assert producer.commit_offset("", topic, 1) != ErrorCode.NONE
    # A batch of a transaction in a request without a transactional id.
    records = batch(b"x", producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    reply = raw.call(produce_request(topic, records), ProduceResponse, 9)
    code = reply.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_requests_of_leaders_for_several_transactions(raw: Raw, topic: str) -> None:
    known = TransactionalProducer(raw, topic)
    known.init()
    known.add(topic)
    wanted = [AddPartitionsToTxnTopic(topic, [0, 1])]
    transactions = [
        AddPartitionsToTxnTransaction(topic, known.producer_id, known.producer_epoch, verify_only, wanted)
        for verify_only in (True, False)
    ]
    transactions.append(AddPartitionsToTxnTransaction("nobody", 1, 0, True, wanted))
    reply = raw.call(AddPartitionsToTxnRequest(transactions=transactions), AddPartitionsToTxnResponse, 4)
    codes = [
        [result.partition_error_code for result in each.topic_results[0].results_by_partition]
        for each in reply.results_by_transaction
    ]
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert codes == [[0, ErrorCode.TRANSACTION_ABORTABLE], [0, 0], [mapping, mapping]]


def test_listing_and_describing(raw: Raw, topic: str) -> None:
    producer = TransactionalProducer(raw, topic)
    producer.init()
    begin(producer, topic, b"x")

    def listed(**filters: object) -> dict[str, str]:
        reply = raw.call(ListTransactionsRequest(**filters), ListTransactionsResponse, 2)  # type: ignore[arg-type]
        return {each.transactional_id: each.transaction_state for each in reply.transaction_states}

    assert listed()[topic] == "Ongoing"
    assert topic in listed(state_filters=["Ongoing"], producer_id_filters=[producer.producer_id])
    assert topic not in listed(state_filters=["Empty"])
    assert topic not in listed(producer_id_filters=[producer.producer_id + 1])
    assert topic not in listed(duration_filter=3_600_000)
    assert list(listed(transactional_id_pattern=f"{topic[:3]}.*{topic[-4:]}")) == [topic]
    assert not listed(transactional_id_pattern=topic[:3])
    reply = raw.call(ListTransactionsRequest(transactional_id_pattern="("), ListTransactionsResponse, 2)
    assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    reply = raw.call(ListTransactionsRequest(state_filters=["Odd"]), ListTransactionsResponse, 0)
    assert (reply.unknown_state_filters, reply.transaction_states) == (["Odd"], [])

    request = DescribeTransactionsRequest([topic, "nobody", ""])
    described, nobody, empty = raw.call(request, DescribeTransactionsResponse, 0).transaction_states
    assert (described.transaction_state, described.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert [(each.topic, each.partitions) for each in described.topics] == [(topic, [0])]
    assert nobody.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST
    reply = raw.call(DescribeProducersRequest([TopicRequest(topic, [0])]), DescribeProducersResponse, 0)
    (active,) = reply.topics[0].partitions[0].active_producers
    assert (active.producer_id, active.current_txn_start_offset) == (producer.producer_id, 0)
    producer.end(commit=False)


def test_records_of_open_transactions_are_not_deleted(raw: Raw, topic: str, single_broker: EmbeddedBroker) -> None:
    raw.produce(topic, batch(b"a", b"b"))
    producer = TransactionalProducer(raw, topic)
    producer.init()
    begin(producer, topic, b"open")

    def delete(offset: int, timeout_ms: int = 30_000) -> tuple[int, int]:
        wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])
        reply = raw.call(DeleteRecordsRequest([wanted], timeout_ms), DeleteRecordsResponse, 2)
        answer = reply.topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    assert delete(3, timeout_ms=50) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (ErrorCode.NONE, 2)
    with Raw(single_broker.port) as other:
        wanted = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 3)])
        other.send(DeleteRecordsRequest([wanted], 30_000), 2)
        producer.end(commit=True)
        _, reply = other.receive(DeleteRecordsResponse, 2)
    assert reply.topics[0].partitions[0].low_watermark == 3, "it waits for the end of the transaction"
    assert delete(-1) == (ErrorCode.NONE, 4)


@pytest.mark.parametrize("version", [1, 2])
def test_markers_by_hand(raw: Raw, topic: str, version: int) -> None:
    """As Admin.abortTransaction sends them for a hanging transaction (KIP-664)."""
    producer = TransactionalProducer(raw, topic)
    producer.init()
    begin(producer, topic, b"hanging")

    def write(coordinator_epoch: int, producer_epoch: int) -> list[int]:
        wanted = [WritableTxnMarkerTopic(topic, [0, 5]), WritableTxnMarkerTopic("nowhere", [0])]
        marker = WritableTxnMarker(producer.producer_id, producer_epoch, False, wanted, coordinator_epoch)
        reply = raw.call(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, version)
        return [result.error_code for each in reply.markers[0].topics for result in each.partitions]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write(7, producer.producer_epoch) == [0, unknown, unknown]
    assert latest(raw, topic, isolation_level=COMMITTED) == 2
    assert write(6, producer.producer_epoch)[0] == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write(7, producer.producer_epoch - 1)[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_read_committed_fetch_waits_for_the_end_of_a_transaction(
    raw: Raw, topic: str, single_broker: EmbeddedBroker
) -> None:
    producer = TransactionalProducer(raw, topic)
    producer.init()
    begin(producer, topic, b"x" * 1000)
    with Raw(single_broker.port) as reader:
        request = fetch_request(topic, isolation_level=COMMITTED, max_wait_ms=30_000, min_bytes=900)
        reader.send(request, 12)
        begin_more = producer.send(topic, b"y" * 1000)
        assert begin_more.error_code == ErrorCode.NONE
        producer.end(commit=True)
        _, reply = reader.receive(FetchResponse, 12)
    found = reply.responses[0].partitions[0]
    assert found.last_stable_offset == 3
    assert len(found.records or b"") > 2000
