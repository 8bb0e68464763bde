"""The worked example of docs/TRANSACTIONS.md: every input record has one output record, also after a restart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.testing import EmbeddedBroker
from tests.reliability.stable_offsets import read_committed

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "TRANSACTIONS.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run_example(servers: str) -> None:
    script = EXAMPLE.replace("127.0.0.1:9092", servers).replace("timeout=10", "timeout=3")
    exec(compile(script, "TRANSACTIONS.md", "exec"), {})


@pytest.mark.parametrize("barnabas_settings", [{"num.partitions": 2}])
def test_the_worked_example(barnabas_broker: EmbeddedBroker) -> None:
    servers = barnabas_broker.bootstrap_servers
    source = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for turn in range(2):
        for number in range(700):
            source.produce("orders", key=str(number), value=f"{turn}-{number}")
        assert source.flush(30) == 0
        run_example(servers)
    found = [m.value() or b"" for messages in read_committed(servers, "invoices").values() for m in messages]
    expected = [b"invoice of %d-%d" % (turn, number) for turn in range(2) for number in range(700)]
    assert sorted(found) == sorted(expected)
