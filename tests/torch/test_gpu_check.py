"""The GPU check with PyTorch, on the CPU with small sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.train.gpu_check.bundle import DATASET
from tests.samples.datasets.published import coloured, publish

REPOSITORY = Path(__file__).parents[2]


def check(folder: Path, only: str) -> dict[str, dict[str, Any]]:
    """Run parts, and return their rows by name."""
    publish(folder / "datasets", coloured({"train": {"a": 20, "b": 20}}, size=(64, 80)), name=DATASET)
    argv = [sys.executable, "-m", "tests.benchmarks.train.gpu_check", "--bundle", str(folder)]
    argv += ["--device", "cpu", "--only", only, "--minutes", "8", "--out", str(folder)]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["what"]: row for row in json.loads((folder / "gpu-check.json").read_text())["rows"]}


def test_real_data_are_measured_beside_synthetic_ones(tmp_path: Path) -> None:
    rows = check(tmp_path, "torch,resnet")
    model = "shufflenet_v2_x0_5"
    assert rows["PyTorch, into the device"]["images_per_second"] > 0
    real, synthetic = rows[f"{model}, real data"], rows[f"{model}, synthetic"]
    assert real["beside"] == synthetic["what"]
    assert real["ratio"] == pytest.approx(real["images_per_second"] / synthetic["images_per_second"])
    assert real["wait_ms"] > 0


@pytest.mark.slow
def test_ranks_are_killed_and_resumed(tmp_path: Path) -> None:
    rows = check(tmp_path, "decode,compiled,ranks")
    assert "records as planned" in rows["two ranks, batch normalisation synchronised"]["note"]
    assert rows["torchvision decodes on the device"]["images_per_second"] > 0
    assert rows["shufflenet_v2_x0_5, compiled, real data"]["images_per_second"] > 0
