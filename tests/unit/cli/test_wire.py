"""``barnabas wire``: Kafka's own messages, and invalid input."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.fuzz.messages import golden
from tests.unit.cli.command_line import json_lines, run


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_every_golden_message_is_decoded_and_encoded() -> None:
    rows = [row for row in golden() if not row.has_unknown_tags]
    asked = [
        {"message": row.name, "version": row.version, "hex": row.raw.hex(), "id": at} for at, row in enumerate(rows)
    ]
    decoded = json_lines(run("wire", "decode", stdin=_lines(asked)))
    assert [row["id"] for row in decoded] == list(range(len(rows)))
    assert not [row for row in decoded if "error" in row]
    for row in decoded:
        del row["hex"]
    encoded = json_lines(run("wire", "encode", stdin=_lines(decoded)))
    assert [row.get("hex") for row in encoded] == [row.raw.hex() for row in rows]


def test_golden_values_are_encoded() -> None:
    known = [row for row in golden() if not row.has_unknown_tags]
    rows = [{"message": row.name, "version": row.version, "value": row.value} for row in known]
    encoded = json_lines(run("wire", "encode", stdin=_lines(rows)))
    assert [row.get("hex") for row in encoded] == [row.raw.hex() for row in known]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"message": "Nope", "version": 0, "hex": ""}', "unknown message Nope"),
        ('{"message": "FetchRequest", "version": 99, "hex": ""}', "FetchRequest has versions 4-18, not 99"),
        ('{"message": "FetchRequest", "version": true, "hex": ""}', "version must be a number"),
        ('{"message": "ResponseHeader", "version": 0, "hex": "0000000100"}', "1 trailing bytes after the message"),
        ('{"message": "ResponseHeader", "version": 0, "hex": "zz"}', "bad hex"),
        ('{"message": "ResponseHeader", "version": 0, "hex": "00"}', "ResponseHeader"),
        ('{"message": "ResponseHeader", "version": 0, "hex": 7}', "hex must be a string"),
        ('{"message": "ResponseHeader", "version": 0}', "hex is missing"),
        ('{"version": 0, "hex": ""}', "message is missing"),
        ("nonsense", "not JSON"),
        ("", "not JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_cannot_be_decoded_says_why(line: str, error: str) -> None:
    (answer,) = json_lines(run("wire", "decode", stdin=line + "\n"))
    assert error in answer["error"]
    if line.startswith("{"):
        assert {**json.loads(line), "error": answer["error"]} == answer


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, "an object is needed"),
        ({"correlation_id": 1 << 40}, "an int32 is needed"),
        ({"nope": 1}, "has no field 'nope'"),
    ],
)
def test_what_cannot_be_encoded_says_why(value: Any, error: str) -> None:
    (answer,) = json_lines(
        run("wire", "encode", stdin=_lines([{"message": "ResponseHeader", "version": 0, "value": value}]))
    )
    assert error in answer["error"]
    assert "hex" not in answer


def test_bytes_that_are_no_text_are_an_error() -> None:
    (answer,) = json_lines(run("wire", "decode", stdin=b"\xff\xfe\n"))
    assert "not JSON" in answer["error"]


def test_answers_come_line_by_line() -> None:
    """Whoever talks to it through pipes gets an answer before sending on."""
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "wire", "encode"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(
                f'{{"message": "ResponseHeader", "version": 0, "value": {{"correlation_id": {number}}}}}\n'
            )
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["hex"] == f"0000000{number}"
        process.stdin.close()
        assert process.wait(60) == 0
