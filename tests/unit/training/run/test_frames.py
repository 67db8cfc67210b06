"""The way from the command to a training step is short enough to be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples.datasets.published import coloured, publish

pytest.importorskip("tensorflow")


def test_a_step_is_eight_frames_below_the_command(tmp_path: Path) -> None:
    publish(tmp_path / "sets", coloured({"train": {"a": 6, "b": 4}}, size=(8, 8)), name="set")
    command = [sys.executable, "-m", "tests.samples.training.frames", "set", "--root", str(tmp_path / "sets")]
    settings = ["data.image_size=16", "data.global_batch_size=10", "run.epochs=1", "run.devices=one"]
    command += ["--runs", str(tmp_path / "runs"), *(part for each in settings for part in ("--set", each))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    frames = json.loads(done.stdout.splitlines()[-1])
    assert frames[0] == "train.py:<module>"
    assert frames[-1] == "frames.py:step"
    assert len(frames) <= 8, frames
