"""Disks that are full, that fail and that are slow, under a real process: what was acknowledged is there afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.model.errors import ErrorCode
from barnabas.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.api.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.api.produce import ProduceResponse
from barnabas.wire.batch import iterate
from barnabas.wire.records import decode_batch
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import PRODUCE_VERSION, Raw, batch, produce_request, wait_until

CAN_MOUNT = os.geteuid() == 0 and shutil.which("mount") is not None
needs_mount = pytest.mark.skipif(not CAN_MOUNT, reason="only root can mount a small file system")
DISK_BYTES = 24 << 20


@contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(at)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=False)


@contextmanager
def injected(broker: BrokerProcess, *expressions: str) -> Iterator[None]:
    """System calls of the running broker fail or wait as told."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    words = [word for expression in expressions for word in ("-e", expression)]
    tracer = subprocess.Popen(
        ["strace", "-f", "-q", "-o", "/dev/null", "-p", str(broker.pid), *words],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_tracer(broker, tracer)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            tracer.wait(60)
        if tracer.poll() is None:
            tracer.kill()
            tracer.wait()
        assert tracer.stderr is not None
        tracer.stderr.close()


def _wait_for_tracer(broker: BrokerProcess, tracer: subprocess.Popen[str]) -> None:
    def is_attached() -> bool:
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            pytest.skip(f"strace cannot attach: {tracer.stderr.read().strip()}")
        tasks = Path(f"/proc/{broker.pid}/task").iterdir()
        return all(f"TracerPid:\t{tracer.pid}" in (task / "status").read_text() for task in tasks)

    wait_until(is_attached, "strace is attached to every thread")


def values(client: Raw, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while True:
        data = client.fetch(topic, offset)
        assert data.error_code == 0, ErrorCode(data.error_code).name
        if offset >= data.high_watermark:
            return found
        content = bytes(data.records or b"")
        for position, header in iterate(content):
            found += [record.value for record in decode_batch(content, position) if record.offset >= offset]
            offset = header.last_offset + 1


class Writer:
    """Numbered values; remembers what was acknowledged."""

    def __init__(self, client: Raw, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self._number = 0

    def send(self, size: int = 100) -> int:
        self._number += 1
        value = b"%08d" % self._number + bytes(size)
        code = self.client.produce(self.topic, batch(value)).error_code
        if code == 0:
            self.acknowledged.append(value)
        return code

    def check(self, client: Raw) -> None:
        found = values(client, self.topic)
        missing = set(self.acknowledged) - set(found)
        assert not missing, f"{len(missing)} acknowledged are lost"
        assert len(found) == len(set(found)), "duplicates"


@needs_mount
@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
def test_a_full_disk(tmp_path: Path, durable: bool) -> None:
    with small_disk(tmp_path / "disk") as disk:
        arguments = ["--set", "log.segment.bytes=1048576", *(["--durable"] if durable else [])]
        with BrokerProcess(disk / "data", *arguments) as broker:
            with Raw(broker.port) as client:
                client.create("filling")
                client.create("other")
                writer = Writer(client, "filling")
                bystander = Writer(client, "other")
                assert bystander.send() == 0
                ballast = disk / "ballast"
                ballast.write_bytes(bytes(8 << 20))
                while (code := writer.send(200_000)) == 0:
                    assert len(writer.acknowledged) < 500, "the disk does not fill"
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                for _ in range(20):
                    writer.send(200_000)
                    bystander.send(50_000)
                writer.check(client)  # reading goes on
                bystander.check(client)
                assert broker.is_alive, broker.output
                ballast.unlink()
                wait_until(lambda: writer.send(100) == 0, "writing goes on when there is room")
                for _ in range(10):
                    assert writer.send(100_000) == 0
                    assert bystander.send(1000) == 0
                writer.check(client)
            assert broker.stop() == 0, broker.output
            assert "Traceback" not in broker.output, broker.output
            assert "request failed" not in broker.output, broker.output
            broker.start()
            with Raw(broker.port) as client:
                writer.check(client)
                bystander.check(client)


@needs_mount
def test_a_stop_and_a_start_on_a_full_disk(tmp_path: Path) -> None:
    """Even where nothing more can be written the process ends with a word, and nothing is lost."""
    with small_disk(tmp_path / "disk") as disk, BrokerProcess(disk / "data") as broker:
        (disk / "reserve").write_bytes(bytes(4 << 20))
        with Raw(broker.port) as client:
            client.create("filling")
            writer = Writer(client, "filling")
            for size in (500_000, 10_000, 100):
                while writer.send(size) == 0:
                    pass
        _fill(disk / "ballast")
        assert broker.stop() == 1, broker.output
        assert "barnabas: Stopped, but the disk did not let it be clean" in broker.output
        assert "Traceback" not in broker.output, broker.output
        with contextlib.suppress(RuntimeError):  # it may refuse to start, in a sentence
            broker.start()
            broker.kill()
        assert "Traceback" not in broker.output, broker.output
        (disk / "ballast").unlink()
        (disk / "reserve").unlink()
        broker.start()
        with Raw(broker.port) as client:
            writer.check(client)


def _fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(bytes(4096)):
            pass


@needs_mount
def test_the_metadata_log_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk, BrokerProcess(disk / "data") as broker, Raw(broker.port) as client:
        client.create("before")
        _fill(disk / "ballast")

        def create(name: str) -> int:
            request = CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)])
            return client.call(request, CreateTopicsResponse, 7).topics[0].error_code

        refused = []
        made = []
        for number in range(300):
            name = f"full-{number}"
            code = create(name)
            (made if code == 0 else refused).append(name)
            assert code in (0, ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode(code).name
        assert refused, "the metadata log found room on a full disk"
        assert broker.is_alive, broker.output
        assert client.versions().error_code == 0
        (disk / "ballast").unlink()
        assert create("afterwards") == 0
        assert client.produce("afterwards").error_code == 0
        for name in made:
            assert client.produce(name).error_code == 0, f"{name}, made on a full disk, is not served"
        known = {topic.name for topic in client.call(MetadataRequest(topics=None), MetadataResponse, 9).topics}
        assert known == {"before", "afterwards", *made}
        broker.kill()
        broker.start()
        with Raw(broker.port) as again:
            found = {topic.name for topic in again.call(MetadataRequest(topics=None), MetadataResponse, 9).topics}
            assert found == known
            assert again.produce("afterwards").error_code == 0


@pytest.mark.parametrize("call", ["fdatasync", "fsync,fdatasync"])
def test_a_failed_sync_ends_the_broker(tmp_path: Path, call: str) -> None:
    with BrokerProcess(tmp_path / "data", "--durable") as broker:
        with Raw(broker.port) as client:
            client.create("t")
            writer = Writer(client, "t")
            for _ in range(50):
                assert writer.send() == 0
            with injected(broker, f"inject={call}:error=EIO"):
                with contextlib.suppress(ConnectionError):
                    code = writer.send()
                    assert code, "acknowledged though the sync failed"
                assert broker.wait() == 1
        told = [line for line in broker.output.splitlines() if line.startswith("barnabas: ")]
        assert len(told) == 1, broker.output
        assert "Input/output error" in told[0]
        assert "Traceback" not in broker.output
        assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        broker.start()
        with Raw(broker.port) as client:
            writer.check(client)


def test_a_failed_sync_of_the_metadata_log_ends_the_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Raw(broker.port) as client:
            client.create("before")
            with injected(broker, "inject=fsync,fdatasync:error=EIO"):
                with contextlib.suppress(ConnectionError, AssertionError):
                    client.create("during")
                assert broker.wait() == 1
        assert sum(line.startswith("barnabas: ") for line in broker.output.splitlines()) == 1, broker.output
        assert "Traceback" not in broker.output, broker.output
        broker.start()
        with Raw(broker.port) as client:
            assert client.produce("before").error_code == 0


def test_a_failed_write_is_refused_and_the_next_may_succeed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with Raw(broker.port) as client:
            client.create("t")
            writer = Writer(client, "t")
            for _ in range(20):
                assert writer.send() == 0
            with injected(broker, "inject=pwrite64,pwritev,write,writev:error=EIO:when=1"):
                pass  # attaching and detaching alone does no harm
            with injected(broker, "inject=pwrite64,pwritev:error=EIO"):
                assert writer.send() == ErrorCode.KAFKA_STORAGE_ERROR
                assert len(values(client, "t")) == 20
            for _ in range(20):
                assert writer.send() == 0
            writer.check(client)
        broker.kill()
        broker.start()
        with Raw(broker.port) as client:
            writer.check(client)


def test_a_slow_disk_slows_acknowledgements_and_nothing_else(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--durable") as broker, Raw(broker.port) as client, Raw(broker.port) as other:
        client.create("t")
        writer = Writer(client, "t")
        assert writer.send() == 0
        for number in range(3):
            with injected(broker, "trace=fdatasync", "inject=fdatasync:delay_enter=600s"):
                client.send(produce_request("t", batch(b"slow %d" % number)), PRODUCE_VERSION)
                for _ in range(50):
                    assert other.versions().error_code == 0, "the loop stood still"
                    assert other.fetch("t").high_watermark == 1 + number, "seen before it was synced"
                assert not client.has_answer(), "acknowledged before it was synced"
            _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)  # the delay ends with the tracer
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert values(client, "t")[1:] == [b"slow 0", b"slow 1", b"slow 2"]
