"""The flow of Prefect with ``--framework torch``: Prefect and PyTorch in one environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import torch

from tests.samples.training.torch_runs import command

REPOSITORY = Path(__file__).parents[3]


def test_the_flow_of_prefect_trains_with_pytorch(root: Path, tensorflow_python: str, tmp_path: Path) -> None:
    # Both environments hold the versions of constraints.txt, so the packages of one can join the other.
    packages = Path(torch.__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(packages))),
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "HOME": str(tmp_path),
    }
    code = "from shardmill.flows.cli import main; main()"
    arguments = command(root, "--runs", str(tmp_path / "runs"), "--framework", "torch")
    done = subprocess.run(
        [tensorflow_python, "-c", code, "train", *arguments],
        cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (run_dir,) = (tmp_path / "runs").glob("set-*")
    result = json.loads((run_dir / "result.json").read_bytes())
    assert (result["framework"], result["steps"]) == ("torch", 12)
    assert (run_dir / "export" / "model.pt2").stat().st_size
    assert "Completed" in done.stdout + done.stderr or "trained" in done.stdout
