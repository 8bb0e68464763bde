"""Hostile requests against a running broker: valid, plausible, mutated and random ones, on many connections.

    python -m tests.fuzz.live --count 1000000 --seed 1

Whatever arrives, the process lives on, no exception leaves a handler (the broker would say "request failed"), memory
stays bounded, and a well-behaved client is served in between. A connection carries requests until one is refused.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from barnabas.broker.apis import OWN, SERVED
from barnabas.model.errors import ErrorCode
from barnabas.wire import catalogue, codec, header
from barnabas.wire.api.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.api.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.compression import Codec
from barnabas.wire.schema import DecodeError, Message, Struct, is_flexible
from barnabas.wire.source import Layout
from tests.reliability.process import BrokerProcess
from tests.reliability.raw import Raw, batch

from .messages import golden, random_message
from .requests import mutate

TOPICS = ("alpha", "beta", "gamma")
MAX_BURST = 32
MAX_GROWTH_BYTES = 64 << 20
WARM_UP = 20_000
"""Requests after which memory is measured for the first time: by then every handler and codec is loaded."""
CHECK_EVERY = 20_000
MAX_TOPICS = 100
"""Fuzzed requests create topics too; above so many they are deleted."""
SETTINGS = ("log.retention.check.interval.ms=2000", "log.segment.bytes=1048576", "log.retention.bytes=4194304")

_SMALL = {"partition", "partition_index", "index", "partition_indexes", "partitions", "num_partitions", "count"}
_SHORT_MS = {"max_wait_ms", "timeout_ms", "transaction_timeout_ms"}


class Requests:
    """Makes frames. Most are nearly right: what is wrong from the start is refused before it reaches anything."""

    def __init__(self, random: Random) -> None:
        self._random = random
        now = int(time.time() * 1000)
        self._batches = [batch(b"v" * size, codec=kind, timestamp=now) for kind in Codec for size in (1, 100, 2000)]
        self._batches += [
            batch(b"x", producer_id=number, producer_epoch=0, base_sequence=0, timestamp=now) for number in range(5)
        ]
        by_class: dict[tuple[type[Message], int], list[bytes]] = {}
        for row in golden():
            by_class.setdefault((row.cls, row.version), []).append(row.raw)
        self._pool = []
        for api in (*SERVED, *OWN):
            cls, _ = catalogue.api_classes(api.key)
            for version in range(api.min_version, api.max_version + 1):
                self._pool.append((cls, version, by_class.get((cls, version), [])))
        self._topic_ids: list[bytes] = []

    def learn(self, topic_ids: list[bytes]) -> None:
        self._topic_ids = topic_ids

    def next(self) -> tuple[bytes, bool]:
        """(frame, whether the broker will read on after it)."""
        random = self._random
        cls, version, recorded = random.choice(self._pool)
        if recorded and random.random() < 0.15:
            body = random.choice(recorded)
        else:
            body = codec.encode_bytes(self._sensible(cls, version), version)
        start = header.RequestHeader(cls.api_key, version, random.randrange(1 << 31), random.choice(("fuzz", None, "")))
        whole = codec.encode_bytes(start, header.request_header_version(cls, version)) + body
        chance = random.random()
        if chance < 0.45:
            whole = bytes(mutate(whole, random))
        elif chance < 0.47:
            whole = random.randbytes(random.randrange(1, 200))
        if chance > 0.99:
            wrong = random.choice((b"\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", random.randbytes(4)))
            return wrong + whole, False
        return len(whole).to_bytes(4, "big") + whole, bool(whole) and _is_readable(whole)

    def _sensible(self, cls: type[Message], version: int) -> Message:
        message: Message = random_message(cls, version, self._random)
        self._patch(message, Layout(version, is_flexible(cls, version)))
        return message

    def _patch(self, struct: Struct, layout: Layout) -> None:
        """Random values seldom name anything that exists; most are put right."""
        random = self._random
        for field in layout.present(type(struct)):
            value = getattr(struct, field.name)
            if field.kind == "array" and field.struct is not None:
                for element in value or ():
                    self._patch(element, layout)
            elif field.kind == "struct" and value is not None:
                self._patch(value, layout)
            elif random.random() < 0.85:
                setattr(struct, field.name, self._sensible_value(field.name, field.kind, field.element, value))

    def _sensible_value(self, name: str, kind: str, element: str | None, value: Any) -> Any:
        random = self._random
        if kind == "str" and ("topic" in name or name in ("name", "resource_name")):
            return random.choice(TOPICS)
        if kind == "array" and element == "str":
            return [random.choice(TOPICS) for _ in value or ()]
        if kind == "records":
            return random.choice(self._batches)
        if name in _SHORT_MS:
            return random.randrange(3)
        if name in _SMALL:
            return [random.randrange(3) for _ in value or ()] if kind == "array" else random.randrange(4)
        if name == "topic_id" and self._topic_ids:
            return random.choice(self._topic_ids)
        if name in ("acks", "isolation_level", "replica_id", "current_leader_epoch", "session_epoch", "resource_type"):
            return random.randrange(-1, 3)
        if name in ("fetch_offset", "offset", "timestamp", "session_id"):
            return random.randrange(-6, 50)
        return value


def _is_readable(whole: bytes) -> bool:
    """Whether the broker answers and reads on, as far as the bytes tell."""
    try:
        key, version, _, _, position = header.decode_request_header(memoryview(whole), 0, len(whole))
        served = next((api for api in (*SERVED, *OWN) if api.key == key), None)
        if served is None or not served.min_version <= version <= served.max_version:
            return False
        message, _ = codec.decode(catalogue.api_classes(key)[0], version, memoryview(whole), position)
    except DecodeError:
        return False
    return not any(getattr(message, name, 0) > 10 for name in _SHORT_MS) and getattr(message, "acks", 1) != 0


def _attack(port: int, frames: list[bytes]) -> str:
    """Sends, then waits for the broker to have read all of it and close."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(b"".join(frames))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
        except TimeoutError:
            return "not closed within 30 s"
        except OSError:
            return "reset"
    return "closed"


def _check(broker: BrokerProcess, base_bytes: int | None) -> None:
    output = broker.output
    assert broker.is_alive, f"the broker died: {output[-4000:]}"
    assert "request failed" not in output, output[output.index("request failed") - 200 :][:4000]
    assert "Traceback" not in output, output[output.index("Traceback") - 200 :][:4000]
    if base_bytes is not None:
        grown = broker.resident_bytes - base_bytes
        assert grown < MAX_GROWTH_BYTES, f"memory grew by {grown >> 20} MiB"


def _tidy(broker: BrokerProcess, requests: Requests) -> None:
    """As a client of good manners: what it asks for is answered, and topics that fuzzing made are deleted."""
    with Raw(broker.port) as client:
        found = client.call(MetadataRequest(topics=None), MetadataResponse, 12).topics
        if len(found) > MAX_TOPICS:
            doomed = [DeleteTopicState(topic.name) for topic in found]
            client.call(DeleteTopicsRequest(topics=doomed), DeleteTopicsResponse, 6)
            found = []
        for name in TOPICS:
            # A creation that fuzzing asked for may still be on its way: it is not waited for by anyone else.
            made = client.call(CreateTopicsRequest(topics=[CreatableTopic(name, 3, 1)]), CreateTopicsResponse, 7)
            assert made.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS), made
            answer = client.produce(name)
            assert not answer.error_code, f"a client of good manners is not served: {answer}"
        found = client.call(MetadataRequest(topics=None), MetadataResponse, 12).topics
    requests.learn([topic.topic_id for topic in found if topic.name in TOPICS] + [bytes(16)])


def run(count: int, seed: int, *, quiet: bool = True, data: Path | None = None) -> Counter[str]:
    """So many requests. A failure is raised with the seed, and with how far it got."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-") as folder:
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        with BrokerProcess(data or folder, *settings) as broker:
            try:
                _run(broker, Requests(Random(seed)), count, outcomes, quiet=quiet)
            except BaseException as problem:
                problem.add_note(f"seed {seed}, after {outcomes['requests']} requests")
                raise
            assert broker.stop() == 0, broker.output[-4000:]
    return outcomes


def _run(broker: BrokerProcess, requests: Requests, count: int, outcomes: Counter[str], *, quiet: bool) -> None:
    base_bytes: int | None = None
    next_check = 0
    start = time.perf_counter()
    while outcomes["requests"] < count:
        if outcomes["requests"] >= next_check:
            _tidy(broker, requests)
            _check(broker, base_bytes)
            if base_bytes is None and next_check >= WARM_UP:
                base_bytes = broker.resident_bytes
            next_check += CHECK_EVERY if base_bytes is not None else WARM_UP // 4
            if not quiet and outcomes["requests"]:
                rate = outcomes["requests"] / (time.perf_counter() - start)
                memory = broker.resident_bytes >> 20
                print(f"{outcomes['requests']} requests, {rate:,.0f} a second, {memory} MiB", flush=True)
        frames = []
        reads_on = True
        while reads_on and len(frames) < MAX_BURST:
            made, reads_on = requests.next()
            frames.append(made)
        outcomes[_attack(broker.port, frames)] += 1
        outcomes["requests"] += len(frames)
    _tidy(broker, requests)
    _check(broker, base_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    start = time.perf_counter()
    outcomes = run(options.count, options.seed, quiet=False)
    spent = time.perf_counter() - start
    print(f"seed {options.seed}: {dict(outcomes)} in {spent:.1f} s, {outcomes['requests'] / spent:,.0f} a second")


if __name__ == "__main__":
    main()
