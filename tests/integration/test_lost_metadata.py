"""A node of a cluster that has lost its metadata folder does not begin anew under its old identity."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.reliability.process import PATIENCE_S
from tests.unit.cli.command_line import run


def test_a_lost_metadata_folder_is_refused_with_the_remedy(tmp_path: Path) -> None:
    data = formatted(tmp_path)
    (data / "orders-0").mkdir()  # the folder was in use
    shutil.rmtree(data / "__cluster_metadata-0")
    command = [sys.executable, "-m", "barnabas", "serve", "--config", str(tmp_path / "node.properties")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "__cluster_metadata-0 is missing" in done.stderr
    assert "--no-initial-controllers" in done.stderr
    assert not (data / "__cluster_metadata-0").exists()


def formatted(folder: Path) -> Path:
    data = folder / "data"
    file = folder / "node.properties"
    file.write_text(
        "node.id=2\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:1\nlog.dirs={data}\n",
        encoding="utf-8",
    )
    cluster_id = run("storage", "random-uuid").stdout.strip()
    run("storage", "format", "-t", cluster_id, "-c", str(file), "--no-initial-controllers")
    return data
