"""``barnabas pipeline``: what is said about options before anything starts."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from barnabas.app.cli.pipeline import pipeline

DEADLETTERS = ["deadletters", "orders-dead", "--format", "avro", "--schema", "{}"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--framing", "confluent"], "--framing confluent needs --writer-schema ID=SCHEMA"),
        (["--writer-schema", "7={}"], "--writer-schema is for --framing confluent"),
        (["--framing", "confluent", "--writer-schema", "x={}"], "'x' is not a schema's number"),
    ],
)
def test_writers_schemas(given: list[str], reason: str) -> None:
    found = CliRunner().invoke(pipeline, [*DEADLETTERS, *given])
    assert found.exit_code == 2
    assert reason in found.output
