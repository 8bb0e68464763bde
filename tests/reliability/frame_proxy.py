"""A proxy that knows where requests begin and end, and what they are: it holds, repeats and reorders chosen ones.

A request that is held keeps those behind it waiting, as in a full socket. One that is overtaken goes to the broker over
a connection of its own, after those behind it; the client still gets the answers in the order of its requests. A copy
goes over a connection of its own too, and its answer to nobody. An answer that is lost ends the client's connection.

When a request may arrive late depends on the protocol. Up to EndTxn 4 all transactions of a producer have one epoch: a
late request is harmless only before the next transaction begins, or after InitProducerId gave out another epoch. At
other times it ends or changes the next transaction, on Apache Kafka too (KIP-890). From EndTxn 5 on each transaction
has an epoch of its own, and its requests may arrive at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from barnabas.wire import codec, header
from barnabas.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.api.init_producer_id import InitProducerIdResponse

T = TypeVar("T")

HOST = "127.0.0.1"
PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSET_COMMIT = 0, 22, 24, 25, 26, 28
DISTURBED = {PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, OFFSET_COMMIT, END}
LAST_CLIENT_ADD_PARTITIONS = 3
"""Later versions of AddPartitionsToTxn are for brokers among themselves."""
FIRST_EPOCH_PER_TRANSACTION = 5
"""The version of EndTxn with which each transaction gets an epoch of its own (KIP-890)."""
SIDE_TIMEOUT_S = 20.0
MAX_HOLD_S = 0.3
MAX_LATE_S = 1.5
NAMES = {PRODUCE: "Produce", ADD_PARTITIONS: "AddPartitions", ADD_OFFSETS: "AddOffsets", END: "EndTxn"}
NAMES[OFFSET_COMMIT] = "TxnOffsetCommit"


class Chances(NamedTuple):
    hold: float = 0.12
    overtake: float = 0.015
    repeat: float = 0.15
    lose: float = 0.03
    keep: float = 0.30
    """A copy that is sent after the transaction."""


class Frame:
    """A request with its size."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        found = header.decode_request_header(data, 4, len(data))
        self.api_key, self.version, _, client_id, self.body = found
        self.client_id = client_id or ""

    @property
    def is_disturbed(self) -> bool:
        if self.api_key == ADD_PARTITIONS and self.version > LAST_CLIENT_ADD_PARTITIONS:
            return False
        return self.api_key in DISTURBED

    @property
    def commits(self) -> bool:
        return bool(codec.decode(EndTxnRequest, self.version, self.data, self.body)[0].committed)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


class FrameProxy:
    """Its loop runs on a thread of its own. Clients are told apart by their client ids."""

    def __init__(self, seed: int, chances: Chances | None = None, *, at_any_time: bool = False) -> None:
        self.chance = random.Random(seed)
        self.chances = chances or Chances()
        self.at_any_time = at_any_time
        """Copies come late to transactions of any protocol: the checks must find torn ones then."""
        self.counts: Counter[str] = Counter()
        self.kept: dict[str, list[Frame]] = {}
        self._ports: dict[int, int] = {}
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Future[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="frames", daemon=True)
        self._thread.start()

    # From the thread of the owner

    def listen(self, target_port: int) -> int:
        """Opens a port that leads to a broker's; returns it."""
        return asyncio.run_coroutine_threadsafe(self._listen(target_port), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def forget(self) -> None:
        """Between two rounds: copies of the last one are sent no more."""
        self._loop.call_soon_threadsafe(self.kept.clear)

    # On the loop

    async def _listen(self, target_port: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await Connection(self, target_port, reader, writer).carry()
            finally:
                self._tasks.discard(task)

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def count(self, what: str, frame: Frame) -> None:
        self.counts[f"{what} {NAMES[frame.api_key]}"] += 1

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """What goes on beside its connection, and is cancelled at the end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a connection that is gone does not ask for it

    def send_later(self, frames: list[tuple[int, Frame]]) -> None:
        """Each by itself at some moment soon; nobody waits for that."""

        async def late(port: int, frame: Frame) -> None:
            await asyncio.sleep(self.chance.uniform(0, MAX_LATE_S))
            self.count("late", frame)
            await exchange(port, frame)

        for port, frame in frames:
            self.spawn(late(port, frame))


async def exchange(port: int, frame: Frame) -> bytes | None:
    """Sends a request over a connection of its own and returns the answer; None where there is none."""
    try:
        async with asyncio.timeout(SIDE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(frame.data)
                return await read_frame(reader)
            finally:
                writer.transport.abort()
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return None


class Connection:
    """Answers go to the client in the order of its requests: each has a place in ``_answers``."""

    def __init__(
        self, proxy: FrameProxy, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._port = port
        self._reader = reader
        self._writer = writer
        self._answers: asyncio.Queue[asyncio.Future[bytes]] = asyncio.Queue()
        self._pending: deque[asyncio.Future[bytes]] = deque()
        self._loop = asyncio.get_running_loop()

    async def carry(self) -> None:
        broker: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError):
            source, broker = await asyncio.open_connection(HOST, self._port)
            jobs = [
                asyncio.ensure_future(job)
                for job in (self._take_requests(broker), self._take_answers(source), self._give_answers())
            ]
            try:
                await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for job in jobs:
                    job.cancel()
                await asyncio.gather(*jobs, return_exceptions=True)
        for answer in self._pending:
            answer.cancel()
        for each in (self._writer, broker):
            if each is not None:
                each.transport.abort()

    async def _take_requests(self, broker: asyncio.StreamWriter) -> None:
        while True:
            frame = Frame(await read_frame(self._reader))
            if frame.is_disturbed or frame.api_key == INIT_PRODUCER_ID:
                await self._disturb(frame, broker)
            else:
                await self._answers.put(self._forward(frame, broker))

    def _forward(self, frame: Frame, broker: asyncio.StreamWriter) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._pending.append(answer)
        broker.write(frame.data)
        return answer

    async def _take_answers(self, source: asyncio.StreamReader) -> None:
        while True:
            data = await read_frame(source)
            answer = self._pending.popleft()
            if not answer.cancelled():
                answer.set_result(data)

    async def _give_answers(self) -> None:
        while True:
            self._writer.write(await (await self._answers.get()))
            await self._writer.drain()

    # What happens to a request of a transaction

    async def _disturb(self, frame: Frame, broker: asyncio.StreamWriter) -> None:
        proxy, chances = self._proxy, self._proxy.chances
        if frame.api_key == INIT_PRODUCER_ID:
            await self._answers.put(self._then(self._forward(frame, broker), frame))
            return
        fate = proxy.chance.random()
        if proxy.chance.random() < chances.keep:
            proxy.kept.setdefault(frame.client_id, []).append(frame)
        if fate < chances.hold:
            proxy.count("held", frame)
            await asyncio.sleep(proxy.chance.uniform(0, MAX_HOLD_S))
            answer = self._forward(frame, broker)
        elif (fate := fate - chances.hold) < chances.overtake:
            answer = proxy.spawn(self._overtaken(frame))
        elif (fate := fate - chances.overtake) < chances.repeat:
            answer = proxy.spawn(self._repeated(frame, broker))
        elif fate - chances.repeat < chances.lose:
            answer = proxy.spawn(self._lost(frame, self._forward(frame, broker)))
        else:
            answer = self._forward(frame, broker)
        await self._answers.put(self._then(answer, frame) if frame.api_key == END else answer)

    async def _overtaken(self, frame: Frame) -> bytes:
        self._proxy.count("overtaken", frame)
        await asyncio.sleep(self._proxy.chance.uniform(0, MAX_HOLD_S))
        answer = await exchange(self._port, frame)
        if answer is None:
            raise ConnectionResetError("the broker did not answer")
        return answer

    async def _repeated(self, frame: Frame, broker: asyncio.StreamWriter) -> bytes:
        """The copy and the request race; the client has its answer when both are done."""
        self._proxy.count("repeated", frame)
        copy = self._proxy.spawn(exchange(self._port, frame))
        if self._proxy.chance.random() < 0.5:
            await asyncio.sleep(self._proxy.chance.uniform(0, 0.02))
        answer = await self._forward(frame, broker)
        await copy
        return answer

    async def _lost(self, frame: Frame, answer: asyncio.Future[bytes]) -> bytes:
        self._proxy.count("answer lost to", frame)
        await answer
        raise ConnectionResetError("the client does not get the answer")

    # Between two transactions

    def _then(self, answer: asyncio.Future[bytes], frame: Frame) -> asyncio.Future[bytes]:
        async def settled() -> bytes:
            data = await answer
            if self._succeeded(frame, data):
                await self._release(frame)
            return data

        return self._proxy.spawn(settled())

    def _succeeded(self, frame: Frame, data: bytes) -> bool:
        kind = EndTxnResponse if frame.api_key == END else InitProducerIdResponse
        start = 8 + header.response_header_version(kind, frame.version)
        return not codec.decode(kind, frame.version, data, start)[0].error_code

    async def _release(self, frame: Frame) -> None:
        """The client has not heard of the end of its transaction yet, so that it cannot begin the next one."""
        proxy = self._proxy
        has_epoch_of_its_own = frame.api_key == INIT_PRODUCER_ID or frame.version >= FIRST_EPOCH_PER_TRANSACTION
        if has_epoch_of_its_own or proxy.at_any_time:
            proxy.send_later([(self._port, each) for each in proxy.kept.pop(frame.client_id, [])])
        elif proxy.chance.random() < 0.5:
            await asyncio.sleep(proxy.chance.uniform(0, 0.1))
            kept = proxy.kept.get(frame.client_id, [])
            harmless = [each for each in kept if each.api_key != OFFSET_COMMIT]
            for each in proxy.chance.sample(harmless, len(harmless)):
                proxy.count("repeated after the end:", each)
                await exchange(self._port, each)
