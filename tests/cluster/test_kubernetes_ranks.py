"""The pods of the rendered JobSet as processes of this machine: the command, the variables and the restarts.

No Kubernetes runs here. ``tests/unit/training/ranks/launchers`` checks the manifest by its published schema.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardmill.training.ranks.launchers.slurm_next_try import last_checkpoint
from tests.samples.clusters.jobset_processes import JobSetProcesses
from tests.samples.clusters.kubernetes_schemas import check_jobset
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.supervised import assert_same_training
from tests.samples.training.trainer import settings, train
from tests.samples.waiting import before_its_end

pytestmark = pytest.mark.timeout(1800)

COUNTS = {"train": {"a": 60, "b": 31, "c": 14}, "validation": {"a": 6, "b": 4, "c": 2}}
CONFIG = settings(
    model={"name": "tests.samples.models.linear_model"},
    data={"balance": "uniform"},
    run={
        "epochs": 16,
        "log_every_steps": 1,
        "checkpoint_every_steps": 4,
        "trace_records": True,
        "deterministic": True,
        "devices": "cpu:2",
    },
)


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same training with two ranks of the local launcher."""
    folder = tmp_path_factory.mktemp("local")
    publish(folder / "datasets", coloured(COUNTS), name="colours")
    return train(folder, "colours", {**CONFIG, "ranks": {"workers": "2"}})


def rendered(folder: Path, config: dict[str, Any], ranks_per_pod: int = 1) -> tuple[dict[str, Any], Path]:
    """The JobSet that the command writes, with folders of this machine as volumes, and the run's folder."""
    publish(folder / "datasets", coloured(COUNTS), name="colours")
    paths = {"datasets_path": str(folder / "datasets"), "runs_path": str(folder / "runs")}
    config = {**config, "ranks": {"kubernetes": {**paths, "ranks_per_pod": ranks_per_pod}}}
    command = [
        sys.executable,
        "-m",
        "shardmill.training.train",
        "colours",
        "--launcher",
        "kubernetes",
        "--workers",
        "2",
    ]
    command += ["--root", str(folder / "datasets"), "--runs", str(folder / "runs"), "--json"]
    command += ["--config-json", json.dumps(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    written = json.loads(done.stdout.splitlines()[-1])
    (file,) = written["files"]
    manifest: dict[str, Any] = yaml.safe_load(Path(file).read_text())
    check_jobset(manifest)
    return manifest, Path(written["run_dir"])


@contextmanager
def running(manifest: dict[str, Any], folder: Path) -> Iterator[JobSetProcesses]:
    with closing(socket.socket()) as probe:
        # Real pods have their own addresses and a free port; these pods share the ports of this machine.
        if probe.connect_ex(("127.0.0.1", 29500)) == 0:
            pytest.skip("port 29500 of this machine is in use")
    with closing(JobSetProcesses(manifest, folder / "pods.log")) as jobset:
        yield jobset


def wait_for_step(jobset: JobSetProcesses, run_dir: Path, step: int) -> None:
    checkpoints = run_dir / "checkpoints"
    before_its_end(lambda: last_checkpoint(checkpoints) >= step or None, lambda: jobset.look() != "Running")


def result(run_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return found


def test_pods_train_like_one_machine_through_a_kill_and_a_preemption(
    on_one_machine: dict[str, Any], tmp_path: Path
) -> None:
    manifest, run_dir = rendered(tmp_path, CONFIG)
    with running(manifest, tmp_path) as jobset:
        wait_for_step(jobset, run_dir, 8)
        jobset.kill(jobset.pods[1])
        jobset.wait_for_action(1)
        wait_for_step(jobset, run_dir, 100)
        for pod in jobset.pods:  # as when a node is taken away
            pod.send_signal(signal.SIGTERM)
        assert jobset.wait(600) == "Completed", (tmp_path / "pods.log").read_text()
    assert jobset.actions == ["RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]
    assert_same_training(result(run_dir), on_one_machine)


def test_a_pod_with_two_ranks_saves_and_goes_on(on_one_machine: dict[str, Any], tmp_path: Path) -> None:
    manifest, run_dir = rendered(tmp_path, CONFIG, ranks_per_pod=2)
    with running(manifest, tmp_path) as jobset:
        (pod,) = jobset.pods
        wait_for_step(jobset, run_dir, 8)
        pod.send_signal(signal.SIGTERM)
        assert jobset.wait(600) == "Completed", (tmp_path / "pods.log").read_text()
    assert jobset.actions == ["RestartJobSetAndIgnoreMaxRestarts"]
    assert_same_training(result(run_dir), on_one_machine)


def test_a_wrong_setting_fails_the_jobset_at_once(tmp_path: Path) -> None:
    manifest, _ = rendered(tmp_path, settings(**{**CONFIG, "data": {"global_batch_size": 1}}))
    with running(manifest, tmp_path) as jobset:
        assert jobset.wait() == "Failed"
    assert jobset.actions == ["FailJobSet"]
    assert "data.global_batch_size = 1" in (tmp_path / "pods.log").read_text()
