"""Abuse by connections: too many, too slow, not reading, disconnected; order of replies on one."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import time
from pathlib import Path

import pytest

from barnabas.wire.api.api_versions import ApiVersionsRequest
from barnabas.wire.api.fetch import FetchResponse
from barnabas.wire.api.metadata import MetadataRequest
from barnabas.wire.api.produce import ProduceResponse
from tests.integration.abuse import unharmed
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    TIMEOUT_S,
    Raw,
    batch,
    fetch_request,
    frame,
    produce_request,
    wait_until,
)


def settings(**given: object) -> list[str]:
    return [word for key, value in given.items() for word in ("--set", f"{key.replace('_', '.')}={value}")]


def correlation_id(reply: bytes) -> int:
    return int(struct.unpack_from(">i", reply)[0])


# Slow and silent peers


def test_a_frame_must_be_complete_in_time(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *settings(barnabas_frame_timeout_ms=400)) as broker, unharmed(broker):
        whole = frame(MetadataRequest(topics=None), 1)
        with Raw(broker.port) as slow, Raw(broker.port) as quick, Raw(broker.port) as silent:
            start = time.monotonic()
            with contextlib.suppress(ConnectionError):
                for at in range(10_000):
                    if at < len(whole) - 1:
                        slow.send_bytes(whole[at : at + 1])
                    quick.versions()
                    slow.socket.settimeout(0.02)
                    with contextlib.suppress(TimeoutError):
                        assert slow.socket.recv(1) == b""
                        break
                else:
                    pytest.fail("the connection stays open")
            assert time.monotonic() - start > 0.3
            assert silent.versions().error_code == 0  # a connection without a frame may be silent
        assert "a frame not complete within 400 ms" in broker.output


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *settings(connections_max_idle_ms=1500)) as broker:
        with Raw(broker.port) as idle:
            idle.versions()
            assert idle.is_closed()
        with Raw(broker.port) as newcomer:
            newcomer.create("t")
            parked = newcomer.fetch("t", max_wait_ms=3000, min_bytes=1)  # longer than idle: waiting is not idling
            assert parked.error_code == 0


def test_a_peer_that_never_reads_costs_little_and_is_closed(tmp_path: Path) -> None:
    arguments = settings(connections_max_idle_ms=2000, log_segment_bytes=16 << 20)
    with BrokerProcess(tmp_path, *arguments) as broker:
        with Raw(broker.port) as writer:
            writer.create("large")
            for _ in range(40):
                assert writer.produce("large", batch(os.urandom(1_000_000))).error_code == 0
        base = broker.descriptor_count
        with unharmed(broker, bystander_stays=False):
            asks = b"".join(frame(fetch_request("large", max_bytes=50 << 20), FETCH_VERSION, n) for n in range(200))
            deaf = []
            for _ in range(40):
                attacker = Raw(broker.port)
                attacker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                attacker.send_bytes(asks)
                deaf.append(attacker)
            with Raw(broker.port) as other:
                assert other.fetch("large", 3).error_code == 0
            wait_until(lambda: broker.descriptor_count <= base + 2, "all who never read are closed")
            for attacker in deaf:
                attacker.close()


@pytest.mark.parametrize("behind", [0, 400_000], ids=["alone", "with-requests-behind"])
def test_a_parked_fetch_of_a_peer_that_is_gone_is_forgotten(tmp_path: Path, behind: int) -> None:
    """With a full buffer behind it the connection is not read, and its end is not seen: it is idle then."""
    arguments = settings(connections_max_idle_ms=2000)
    with BrokerProcess(tmp_path, *arguments) as broker, unharmed(broker, bystander_stays=False):
        with Raw(broker.port) as client:
            client.create("quiet")
        base = broker.descriptor_count
        request = frame(fetch_request("quiet", max_wait_ms=2**31 - 1), FETCH_VERSION)
        for _ in range(20):
            with Raw(broker.port, timeout_s=0.3) as attacker, contextlib.suppress(TimeoutError):
                attacker.send_bytes(request + frame(ApiVersionsRequest(), 0) * behind)
        wait_until(lambda: broker.descriptor_count <= base, "connections that are gone are closed")
        with Raw(broker.port) as client:
            assert client.produce("quiet").error_code == 0


def test_a_chain_of_parked_fetches_is_answered_one_by_one(tmp_path: Path) -> None:
    """Each append completes a fetch on a connection whose next request is an append that completes the next fetch."""
    count = 400
    with BrokerProcess(tmp_path) as broker, unharmed(broker):
        with Raw(broker.port) as client:
            client.create("chain", count + 1)
        chained = []
        for number in range(count):
            link = Raw(broker.port)
            ask = fetch_request("chain", max_wait_ms=60_000)
            ask.topics[0].partitions[0].partition = number
            link.send_bytes(
                frame(ask, FETCH_VERSION, 1)
                + frame(produce_request("chain", batch(), partition=number + 1), PRODUCE_VERSION, 2)
            )
            chained.append(link)
        with Raw(broker.port) as client:
            client.produce("chain", partition=0)
        for link in chained:
            assert link.receive(FetchResponse, FETCH_VERSION)[1].responses[0].partitions[0].records
            assert link.receive(ProduceResponse, PRODUCE_VERSION)[0] == 2
            link.close()


# Many connections


def test_idle_connections_as_many_as_descriptors_allow(tmp_path: Path) -> None:
    """Other clients are still served: connected ones, and new ones once there is room again."""
    limited = BrokerProcess(tmp_path, under=("prlimit", "--nofile=400:400"))
    with limited as broker:
        with Raw(broker.port) as client:
            client.create("t", 20)
            with unharmed(broker):
                crowd = [Raw(broker.port) for _ in range(200)]  # 168 are let in, the others wait in the kernel's queue
                wait_until(lambda: "accepting paused" in broker.output, "the limit is reached")
                for number in range(20):
                    assert client.produce("t", partition=number).error_code == 0
                    assert client.fetch("t").error_code == 0
                for idle in crowd:
                    idle.close()
        assert broker.output.count("accepting paused") < 20
        assert "Too many open files" not in broker.output  # the logs' share is not given to connections


@pytest.mark.slow
def test_five_thousand_idle_connections(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(5000, hard - 200)
    if count < 1000:
        pytest.skip(f"only {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with (
            BrokerProcess(tmp_path, *settings(socket_listen_backlog_size=4096)) as broker,
            unharmed(broker),
            contextlib.ExitStack() as crowd,
        ):
            for _ in range(count):
                crowd.enter_context(Raw(broker.port))
            with Raw(broker.port) as client:
                client.create("t")
                for _ in range(200):
                    assert client.produce("t").error_code == 0
            wait_until(lambda: broker.descriptor_count > count, "all are accepted")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_max_connections(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, *settings(max_connections=5)) as broker:
        first = [Raw(broker.port) for _ in range(5)]
        for client in first:
            client.versions()
        waiting = Raw(broker.port, timeout_s=0.5)
        waiting.send(ApiVersionsRequest(), 0)
        with pytest.raises(TimeoutError):
            waiting.receive_frame()
        first.pop().close()
        waiting.socket.settimeout(TIMEOUT_S)
        assert correlation_id(waiting.receive_frame()) == 1
        for client in [*first, waiting]:
            client.close()


def test_max_connections_per_address(tmp_path: Path) -> None:
    arguments = settings(max_connections_per_ip=3, max_connections_per_ip_overrides="127.0.0.2:1,127.0.0.3:5")
    with BrokerProcess(tmp_path, *arguments) as broker:
        for address, allowed in (("127.0.0.1", 3), ("127.0.0.2", 1), ("127.0.0.3", 5)):
            kept = [Raw(broker.port, source=address) for _ in range(allowed)]
            for client in kept:
                client.versions()
            with Raw(broker.port, source=address) as refused:
                assert refused.is_closed()
            kept.pop().close()

            def is_let_in(source: str = address) -> bool:
                with Raw(broker.port, source=source) as again:
                    try:
                        return again.versions().error_code == 0
                    except ConnectionError:
                        return False

            wait_until(is_let_in, "another is let in")
            for client in kept:
                client.close()


def test_exhausted_descriptors_pause_accepting_and_it_recovers(tmp_path: Path) -> None:
    """The limit is lowered under the running broker: accept itself fails then."""
    with BrokerProcess(tmp_path) as broker, Raw(broker.port) as client:
        client.create("t")
        client.produce("t")
        now = broker.descriptor_count
        os.system(f"prlimit --pid {broker.pid} --nofile={now + 3}:20000")
        crowd = [Raw(broker.port) for _ in range(10)]
        wait_until(lambda: re.search("Too many open files|Errno 24", broker.output), "accepting pauses")
        assert client.produce("t").error_code == 0
        os.system(f"prlimit --pid {broker.pid} --nofile=20000:20000")
        with Raw(broker.port) as newcomer:
            assert newcomer.versions().error_code == 0
        for one in crowd:
            one.close()
        assert broker.output.count("accepting paused") < 12


# Order


def test_replies_keep_the_order_of_mixed_requests(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--durable") as broker, unharmed(broker), Raw(broker.port) as client:
        client.create("mixed")
        whole = bytearray()
        expected = []
        appended = 0
        for number in range(1, 400):
            kind = number % 5
            if kind == 0:
                whole += frame(produce_request("mixed", batch(), acks=0), PRODUCE_VERSION, number)
                appended += 1
                continue
            if kind in (1, 2):
                whole += frame(produce_request("mixed", batch(b"v" * number)), PRODUCE_VERSION, number)
                appended += 1
            elif kind == 3:
                whole += frame(fetch_request("mixed", max_wait_ms=20, min_bytes=1 << 20), FETCH_VERSION, number)
            else:
                whole += frame(MetadataRequest(topics=[]), 1, number)
            expected.append(number)
        client.send_bytes(bytes(whole))
        assert [correlation_id(client.receive_frame()) for _ in expected] == expected
        wait_until(lambda: client.fetch("mixed").high_watermark == appended, "acks=0 too is appended")


def test_many_produce_requests_in_flight_share_their_syncs(tmp_path: Path) -> None:
    count = 3000
    with BrokerProcess(tmp_path, "--durable") as broker, unharmed(broker), Raw(broker.port) as client:
        client.create("busy")
        client.send_bytes(b"".join(frame(produce_request("busy", batch()), PRODUCE_VERSION, n) for n in range(count)))
        for number in range(count):
            found, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
            partition = answer.responses[0].partition_responses[0]
            assert (found, partition.error_code, partition.base_offset) == (number, 0, number)


def test_a_refused_append_without_acknowledgement_closes_the_connection(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, unharmed(broker), Raw(broker.port) as client:
        client.send(produce_request("no-such-topic", batch(), acks=0), PRODUCE_VERSION)
        assert client.is_closed()
