"""Scenario commands of the transaction machine. Decisions are appended and replayed at once; the default id is ``tx``.

    init [timeout=60000] [expected=7/3] [new=8]     add a:0 b:1 [verify] [client=2]     end commit|abort [client=2]
    written                                         describe                            list [states=..] [longer=..]
    wait 6000            (milliseconds)             tick                                 limits version=0 max=..
    set epoch=32766      another coordinator finds this in the log
    restart              another coordinator, which has only the log

Every request may say ``id=other`` and ``as=7/3`` (producer id/epoch); otherwise it comes from the last owner of the id.
Replies come first, then each record with a plus sign, then effects with an arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from barnabas.core.decision import Tick
from barnabas.core.txn import records as framing
from barnabas.core.txn.machine import TxnMachine, TxnPolicy
from barnabas.core.txn.records import TxnRecord
from barnabas.core.txn.requests import (
    AddPartitions,
    Describe,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    Owner,
    ProducerIdNeeded,
    SendMarkers,
)
from barnabas.core.txn.transaction import Transaction
from barnabas.model.errors import ApiError
from barnabas.model.ids import TopicPartition

START_MS = 1_000_000


class TxnScenario:
    def __init__(self) -> None:
        self._policy = TxnPolicy()
        self._log: list[tuple[bytes, bytes | None]] = []
        self._now_ms = 0
        self._next_producer_id = 1
        self._owners: dict[str, Owner] = {}
        self._machine = TxnMachine(self._policy)
        self._machine.loaded(0, START_MS)

    def run(self, command: list[str]) -> list[str]:
        (line,) = command
        name, *words = line.split()
        flags = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        run: Callable[[list[str], dict[str, str]], list[str]] = getattr(self, f"_{name}")
        return run(flags, options) or ["ok"]

    # The machine

    def _decide(self, request: Any) -> list[str]:
        try:
            decision = self._machine.decide("token", request, self._now_ms)
        except ApiError as problem:
            return [problem.code.name]
        except ProducerIdNeeded:
            self._next_producer_id += 1
            return self._decide(changed(request, new_producer_id=self._next_producer_id - 1))
        lines = [self._said(request, reply) for _, reply in decision.replies]
        self._append(list(decision.records))
        lines += [f"+ {_record(record)}" for record in decision.records]
        return [line for line in lines if line] + [f"-> {_effect(effect)}" for effect in decision.effects]

    def _append(self, records: list[TxnRecord]) -> None:
        self._log += [framing.encode(record) for record in records]
        for record in records:
            stored = framing.decode(*framing.encode(record))
            kept = changed(record.transaction, last_producer_epoch=-1) if record.transaction is not None else None
            assert stored is not None
            assert stored.transaction == (kept if record.version else changed(kept, **NOT_IN_VERSION_0))  # type: ignore[type-var]
        self._machine.replay(records, next_offset=len(self._log), raft_epoch=1, timestamp_ms=0)

    def _said(self, request: Any, reply: Any) -> str:
        if isinstance(reply, ApiError):
            return reply.code.name
        if isinstance(reply, Owner):
            self._owners[request.transactional_id] = reply
            return f"producer {reply.producer_id}/{reply.producer_epoch}"
        if isinstance(reply, dict):
            return " ".join(f"{each.topic}:{each.partition}={code.name}" for each, code in reply.items())
        if isinstance(reply, Transaction):
            return _transaction(reply)
        if isinstance(reply, list):
            return "\n".join(f"{name} {each.state.title}" for name, each in reply) or "none"
        return ""

    def _owner(self, options: dict[str, str], key: str = "as") -> dict[str, int]:
        if key in options:
            producer_id, _, epoch = options[key].partition("/")
            return {"producer_id": int(producer_id), "producer_epoch": int(epoch)}
        owner = self._owners.get(options.get("id", "tx"), Owner(-1, -1))
        return {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch}

    # Requests

    def _init(self, _: list[str], options: dict[str, str]) -> list[str]:
        expected = tuple(self._owner(options, "expected").values()) if "expected" in options else None
        request = InitProducer(
            transactional_id=options.get("id", "tx"),
            timeout_ms=int(options.get("timeout", 60_000)),
            wall_ms=START_MS + self._now_ms,
            expected=expected,  # type: ignore[arg-type]
        )
        return self._decide(request)

    def _add(self, words: list[str], options: dict[str, str]) -> list[str]:
        partitions = [word.partition(":") for word in words if word != "verify"]
        request = AddPartitions(
            transactional_id=options.get("id", "tx"),
            **self._owner(options),
            partitions=tuple(TopicPartition(topic, int(number)) for topic, _, number in partitions),
            wall_ms=START_MS + self._now_ms,
            verify_only="verify" in words,
            client_version=int(options.get("client", 0)),
        )
        return self._decide(request)

    def _end(self, words: list[str], options: dict[str, str]) -> list[str]:
        request = EndTransaction(
            transactional_id=options.get("id", "tx"),
            **self._owner(options),
            committed=words[0] == "commit",
            wall_ms=START_MS + self._now_ms,
            client_version=int(options.get("client", 0)),
        )
        return self._decide(request)

    def _written(self, _: list[str], options: dict[str, str]) -> list[str]:
        name = options.get("id", "tx")
        current = self._machine.transactions[name]
        owner = self._owner(options) if "as" in options else None
        producer = tuple(owner.values()) if owner else (current.producer_id, current.producer_epoch)
        return self._decide(MarkersWritten(name, *producer, START_MS + self._now_ms))  # type: ignore[call-arg]

    def _describe(self, _: list[str], options: dict[str, str]) -> list[str]:
        return self._decide(Describe(options.get("id", "tx")))

    def _list(self, _: list[str], options: dict[str, str]) -> list[str]:
        states = frozenset(options["states"].split(",")) if "states" in options else frozenset()
        longer = int(options.get("longer", -1))
        request = ListTransactions(states=states, longer_than_ms=longer, wall_ms=START_MS + self._now_ms)
        return "\n".join(self._decide(request)).split("\n")

    # Time and failures

    def _wait(self, words: list[str], _: dict[str, str]) -> list[str]:
        lines, until = [], self._now_ms + int(words[0])
        while self._machine.next_deadline_ms <= until:
            self._now_ms = self._machine.next_deadline_ms
            lines += [f"{self._now_ms} {text}" for text in self._decide(Tick(START_MS + self._now_ms))]
        self._now_ms = until
        return lines

    def _tick(self, _: list[str], __: dict[str, str]) -> list[str]:
        return self._decide(Tick(START_MS + self._now_ms))

    def _policy_of(self, options: dict[str, str]) -> TxnPolicy:
        names = {"max": "max_timeout_ms", "expiration": "id_expiration_ms", "interval": "expiration_interval_ms"}
        policy = replace(self._policy, **{names[key]: int(value) for key, value in options.items() if key in names})
        if "version" in options:
            level = int(options["version"])
            policy = replace(policy, version=lambda: level)
        return policy

    def _set(self, _: list[str], options: dict[str, str]) -> list[str]:
        name = options.get("id", "tx")
        current = self._machine.transactions[name]
        if "epoch" in options:
            current = changed(current, producer_epoch=int(options["epoch"]))
            self._owners[name] = Owner(current.producer_id, current.producer_epoch)
        self._append([TxnRecord(name, current)])
        return []

    def _limits(self, _: list[str], options: dict[str, str]) -> list[str]:
        self._policy = self._machine.policy = self._policy_of(options)
        return []

    def _restart(self, _: list[str], __: dict[str, str]) -> list[str]:
        self._machine = TxnMachine(self._policy)
        for offset, (key, value) in enumerate(self._log):
            self._machine.replay_stored(offset, -1, -1, key, value)
        effects = self._machine.loaded(self._now_ms, START_MS + self._now_ms)
        return [f"{len(self._log)} records"] + [f"-> {_effect(effect)}" for effect in effects]


NOT_IN_VERSION_0 = {"previous_producer_id": -1, "next_producer_id": -1, "client_version": 0}


def _record(record: TxnRecord) -> str:
    if record.transaction is None:
        return f"{record.transactional_id} deleted"
    return f"{record.transactional_id} {_transaction(record.transaction)}"


def _transaction(transaction: Transaction) -> str:
    partitions = " ".join(f"{each.topic}:{each.partition}" for each in transaction.partitions)
    following = f" next={transaction.next_producer_id}" if transaction.next_producer_id >= 0 else ""
    shown = f"{transaction.state.title} {transaction.producer_id}/{transaction.producer_epoch}{following}"
    return f"{shown} [{partitions}]" if partitions else shown


def _effect(effect: SendMarkers) -> str:
    transaction = effect.transaction
    outcome = "commit" if transaction.is_commit else "abort"
    places = " ".join(f"{each.topic}:{each.partition}" for each in transaction.partitions)
    return f"{outcome} {transaction.producer_id}/{transaction.producer_epoch} to {places or 'nobody'}"
