"""Reads as a member of a group for ``barnabas consume --group``, and commits what it has printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from barnabas.cli.consume_commits import Commits, PlainCommits, TransactionalCommits
from barnabas.cli.interrupts import Deferred
from barnabas.cli.message_format import Format, style_of
from barnabas.cli.suggestions import naming_topics
from barnabas.client.wire import Client
from barnabas.model.ids import TopicPartition
from barnabas.wire.records import Record

AT_ONCE = 500
POLL_S = 0.2


def consume(topic: str, group: str, style: str, bootstrap: str, options: dict[str, Any]) -> None:
    out = sys.stdout.buffer
    with Client(bootstrap) as client, naming_topics(client, topic):
        client.topic(topic)  # librdkafka would look for brokers and topics for ever
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - slow to import

    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "barnabas-consume",
            "enable.auto.commit": False,
            "enable.partition.eof": not options["follow"],
            "auto.offset.reset": options["offset"],
            "isolation.level": options["isolation_level"],
            "session.timeout.ms": 10_000,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
    )
    try:
        commits = _commits(reader, bootstrap, options)
        _Reading(reader, topic, options, commits).run(style_of(style), out)
    except KafkaException as error:
        raise click.ClickException(f"{error.args[0].str()}.") from error
    except KeyboardInterrupt:
        out.flush()
    finally:
        reader.close()


def _commits(reader: Any, bootstrap: str, options: dict[str, Any]) -> Commits:
    if options["transactional_id"] is None:
        return PlainCommits(reader)
    return TransactionalCommits(reader, bootstrap, options["transactional_id"])


class _Reading:
    """Ends where every partition that it was given has been read to its end, unless it follows."""

    def __init__(self, reader: Any, topic: str, options: dict[str, Any], commits: Commits) -> None:
        self._reader = reader
        self._commits = commits
        self._follow = options["follow"]
        self._left = options["max_messages"]
        self._owned: set[int] | None = None
        self._ended: set[int] = set()
        reader.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _reader: Any, partitions: list[Any]) -> None:
        self._owned = {part.partition for part in partitions}
        self._ended.clear()

    def _revoked(self, _reader: Any, _partitions: list[Any]) -> None:
        self._commits.commit()
        self._owned = None

    def run(self, show: Format, out: BinaryIO) -> None:
        for messages in self._rounds():

            def write(found: list[Any] = messages) -> None:
                out.write(b"".join([show(*_record(message)) for message in found]))
                out.flush()  # before it is committed: what is committed has been seen

            if not self._commits.commit_after(messages, write):
                self._ended -= {message.partition() for message in messages}
            elif self._left is not None:
                self._left -= len(messages)
        self._commits.commit()

    def _rounds(self) -> Iterator[list[Any]]:
        while self._left is None or self._left > 0:
            most = AT_ONCE if self._left is None else min(AT_ONCE, self._left)
            with Deferred():
                messages = self._reader.consume(most, POLL_S)
            yield [message for message in messages if self._is_message(message)]
            if not self._follow and self._owned is not None and self._owned <= self._ended:
                return

    def _is_message(self, message: Any) -> bool:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - slow to import

        error = message.error()
        if error is None:
            self._ended.discard(message.partition())
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(message.partition())
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
        return False


def _record(message: Any) -> tuple[TopicPartition, Record]:
    headers = tuple((key, value) for key, value in message.headers() or ())
    place = TopicPartition(message.topic(), message.partition())
    return place, Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)
