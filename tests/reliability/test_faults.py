"""A slice of ``make faults``: one fault of each main kind through the link proxy. No timing decides."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.reliability import fault_kinds
from tests.reliability.fault_hosts import ProxyHosts
from tests.reliability.fault_kinds import one
from tests.reliability.fault_round import Round


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_faults_lose_duplicate_and_reorder_nothing(tmp_path: Path) -> None:
    chance = random.Random(1)
    faults = [
        one(fault_kinds.KILL, chance, target="leader"),
        one(fault_kinds.KILL, chance, target="controller"),
        one(fault_kinds.PAUSE, chance, target="coordinator"),
        one(fault_kinds.CUT, chance, target="leader"),
        one(fault_kinds.DEAF, chance, target="controller"),
        one(fault_kinds.MUTE, chance, target="leader"),
        one(fault_kinds.KILL_ALL, chance),
        one(fault_kinds.ROLLING, chance),
    ]
    hosts = ProxyHosts()
    try:
        result = Round(hosts, tmp_path, chance).run(iter(faults), lambda done: done < len(faults))
    finally:
        hosts.close()
    assert result.problems == []
    assert len(result.outcomes) == len(faults)
    assert result.acknowledged > 0
