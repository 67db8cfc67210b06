"""No process that loads data for PyTorch knows a file of ours under two names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.samples.datasets.published import coloured, publish
from tests.samples.modules_seen import check_one_name, saying_modules

SCRIPT = """\
import shardmill

if __name__ == "__main__":
    loader = shardmill.open_dataset("colours", "datasets").torch(
        "train", batch_size=8, image_size=16, num_workers=1, multiprocessing_context="spawn"
    )
    print(len(next(iter(loader))[1]))
"""


def test_a_spawned_worker_of_a_loader(tmp_path: Path) -> None:
    publish(tmp_path / "datasets", coloured({"train": {"blue": 8, "green": 8}}), name="colours")
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, **saying_modules(tmp_path / "seen")}
    subprocess.run([sys.executable, "script.py"], cwd=tmp_path, env=env, timeout=300, check=True)
    assert any("spawn_main" in command for command in check_one_name(tmp_path / "seen"))
