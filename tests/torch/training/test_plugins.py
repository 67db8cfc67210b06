"""A model and an augmentation of another distribution train with PyTorch, in ranks too."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.samples.plugins import PACKAGE, add_distribution, environment
from tests.samples.training.torch_runs import command


def test_plugins_train_in_two_ranks(root: Path, tmp_path: Path) -> None:
    about = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    add_distribution(tmp_path / "installed", f"{about['name']} {about['version']}", about["entry-points"])
    chosen = (
        "model.name=tiny_torch",
        "augment.negative.share=0.5",
        "run.devices=cpu:2",
        "data.global_batch_size=8",
    )
    changes = [part for override in chosen for part in ("--set", override)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "shardmill.training.train",
            *command(root, "--runs", str(tmp_path), "--json", *changes),
        ],
        env=environment(PACKAGE, tmp_path / "installed"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    (run,) = tmp_path.glob("set-v1-*/run.json")
    assert json.loads(run.read_text())["plugins"] == {"shardmill-example": "1.0"}
