"""``barnabas wire``: converts protocol messages between hex and JSON, line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import click

from barnabas.cli.suggestions import CommandGroup
from barnabas.wire import catalogue, codec, jsonvalue
from barnabas.wire.schema import Message, versions_of

Entry: TypeAlias = dict[str, Any]


class NotDone(Exception):
    """Why a line could not be decoded or encoded."""


@click.group(cls=CommandGroup)
def wire() -> None:
    """Decode and encode protocol messages: JSON lines in, JSON lines out.

    Bytes and records are "hex:…", a UUID is 32 hex digits. A line that cannot be done comes out with an "error".

    Examples:
      echo '{"message": "RequestHeader", "version": 1, "hex": "0012000300000007000462656e63"}' | barnabas wire decode
      echo '{"message": "ListGroupsRequest", "version": 0, "value": {}}' | barnabas wire encode
    """


@wire.command()
def decode() -> None:
    """{message, version, hex} on standard input comes out with its value.

    Examples:
      echo '{"message": "ListGroupsRequest", "version": 0, "hex": ""}' | barnabas wire decode
      zcat messages.jsonl.gz | barnabas wire decode | grep '"error"'
    """
    _run(_decode)


@wire.command()
def encode() -> None:
    """{message, version, value} on standard input comes out with its hex.

    Examples:
      echo '{"message": "FetchRequest", "version": 12, "value": {"max_wait_ms": 500}}' | barnabas wire encode
    """
    _run(_encode)


@wire.command("list")
def list_messages() -> None:
    """Name every message and its versions."""
    for name in catalogue.names():
        click.echo(f"{name} {catalogue.message_class(name).versions}")


def _run(work: Callable[[Entry], None]) -> None:
    """Flushes one output line for each input line: a program at the other end of the pipe waits for it."""
    out = sys.stdout
    for line in sys.stdin.buffer:
        out.write(json.dumps(_answer(line, work)) + "\n")
        out.flush()


def _answer(line: bytes, work: Callable[[Entry], None]) -> Entry:
    try:
        entry = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return {"input": line.decode("utf-8", "replace").rstrip("\r\n"), "error": f"not JSON: {error}"}
    if not isinstance(entry, dict):
        return {"input": entry, "error": "not a JSON object"}
    entry.pop("error", None)
    try:
        work(entry)
    except (NotDone, codec.DecodeError, codec.EncodeError, ValueError, RecursionError) as error:
        entry["error"] = str(error)
    return entry


def _decode(entry: Entry) -> None:
    entry.pop("value", None)
    cls, version = _message(entry)
    text = _field(entry, "hex")
    if not isinstance(text, str):
        raise NotDone("hex must be a string")
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise NotDone(f"bad hex: {error}") from error
    message, end = codec.decode(cls, version, data)
    if end != len(data):
        raise NotDone(f"{len(data) - end} trailing bytes after the message")
    entry["value"] = jsonvalue.to_value(message, version)


def _encode(entry: Entry) -> None:
    entry.pop("hex", None)
    cls, version = _message(entry)
    message = jsonvalue.from_value(cls, version, _field(entry, "value"))
    entry["hex"] = codec.encode_bytes(message, version).hex()


def _message(entry: Entry) -> tuple[type[Message], int]:
    name, version = _field(entry, "message"), _field(entry, "version")
    if not isinstance(name, str):
        raise NotDone("message must be a string")
    try:
        cls = catalogue.message_class(name)
    except KeyError:
        raise NotDone(f"unknown message {name}") from None
    if not isinstance(version, int) or isinstance(version, bool):
        raise NotDone("version must be a number")
    if version not in versions_of(cls):
        raise NotDone(f"{name} has versions {cls.versions}, not {version}")
    return cls, version


def _field(entry: Entry, name: str) -> Any:
    try:
        return entry[name]
    except KeyError:
        raise NotDone(f"{name} is missing") from None
