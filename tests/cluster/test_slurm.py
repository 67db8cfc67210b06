"""Train across two nodes of a real Slurm: to the end, through kills of ranks, and through a preemption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.training.ranks.launchers.settings import SlurmSettings
from shardmill.training.ranks.launchers.slurm import FILE, render
from shardmill.training.ranks.launchers.slurm_next_try import last_checkpoint
from tests.samples.clusters.slurm_cluster import ENDED, NODES, SlurmCluster, missing_programs, slurm_cluster
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.outer_jobs import outer_job
from tests.samples.ranks.supervised import assert_same_training
from tests.samples.training.trainer import settings, train
from tests.samples.waiting import before_its_end

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(missing_programs() is not None, reason=str(missing_programs())),
]

COUNTS = {"train": {"a": 60, "b": 31, "c": 14}, "validation": {"a": 6, "b": 4, "c": 2}}
EPOCHS, STEPS_PER_EPOCH = 16, 14
CONFIG = settings(
    model={"name": "tests.samples.models.linear_model"},
    data={"balance": "uniform"},
    run={
        "epochs": EPOCHS,
        "log_every_steps": 1,
        "checkpoint_every_steps": 4,
        "trace_records": True,
        "deterministic": True,
        "devices": "cpu:2",
    },
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same training with two ranks of the local launcher."""
    folder = tmp_path_factory.mktemp("local")
    publish(folder / "datasets", coloured(COUNTS), name="colours")
    return train(folder, "colours", {**CONFIG, "ranks": {"workers": "2"}})


class Job:
    """A training that was submitted to a cluster."""

    def __init__(self, cluster: SlurmCluster, folder: Path, config: dict[str, Any]) -> None:
        publish(folder / "datasets", coloured(COUNTS), name="colours")
        self._cluster, self.log = cluster, folder / "job.log"
        command = [
            sys.executable,
            "-m",
            "shardmill.training.train",
            "colours",
            "--launcher",
            "slurm",
            "--workers",
            "2",
        ]
        command += ["--root", str(folder / "datasets"), "--runs", str(folder / "runs"), "--json"]
        command += ["--config-json", json.dumps(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        written = json.loads(done.stdout.splitlines()[-1])
        self.run_dir = Path(written["run_dir"])
        self.id = cluster.submit(Path(written["files"][0]), self.log)

    def wait_for_step(self, step: int) -> None:
        """Wait until there is a checkpoint of a step."""
        folder = self.run_dir / "checkpoints"
        before_its_end(lambda: last_checkpoint(folder) >= step or None, self.has_ended)

    def has_ended(self) -> bool:
        return self._cluster.state(self.id)["JobState"] in ENDED

    def rank(self, number: int) -> psutil.Process:
        """Wait for the process of a rank that trains, and return it."""
        return before_its_end(lambda: self._find(number), self.has_ended)

    def _find(self, number: int) -> psutil.Process | None:
        for process, variables in self._cluster.processes():
            if variables.get("SLURM_PROCID") == str(number) and variables.get("SLURM_JOB_ID") == str(self.id):
                try:
                    if "shardmill.training.train_rank" in process.cmdline():
                        return process
                except psutil.Error:
                    continue
        return None

    def finish(self) -> dict[str, str]:
        """Wait for the end of the job, and return Slurm's record of it."""
        return self._cluster.wait(self.id, *ENDED, seconds=600)

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.run_dir / "result.json").read_text())
        return result


def test_two_nodes_train_like_one_machine(
    cluster: SlurmCluster, on_one_machine: dict[str, Any], tmp_path: Path
) -> None:
    job = Job(cluster, tmp_path, CONFIG)
    state = job.finish()
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "0"), job.log.read_text()
    assert state["NumNodes"] == str(len(NODES))
    assert_same_training(job.result(), on_one_machine)


def test_ranks_that_are_killed_cost_no_record(
    cluster: SlurmCluster, on_one_machine: dict[str, Any], tmp_path: Path
) -> None:
    job = Job(cluster, tmp_path, CONFIG)
    job.rank(1).send_signal(signal.SIGKILL)  # while it starts: no checkpoint, so other nodes may be better
    cluster.start_again_now(job.id)
    job.wait_for_step(STEPS_PER_EPOCH)
    job.rank(0).send_signal(signal.SIGKILL)  # after checkpoints: tried again on the same nodes
    state = job.finish()
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "1"), job.log.read_text()
    told = job.log.read_text()
    assert "without a new checkpoint (1 of 3): the job is queued again" in told
    assert "2 ranks start again from the last checkpoint" in told
    assert_same_training(job.result(), on_one_machine)


def test_a_preempted_job_saves_and_goes_on_when_it_is_started_again(
    cluster: SlurmCluster, on_one_machine: dict[str, Any], tmp_path: Path
) -> None:
    job = Job(cluster, tmp_path, CONFIG)
    job.wait_for_step(STEPS_PER_EPOCH)
    cluster.run("scancel", "--signal=TERM", str(job.id))
    cluster.start_again_now(job.id)
    state = job.finish()
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "1"), job.log.read_text()
    assert "the ranks saved and ended on a signal: the job is queued again" in job.log.read_text()
    assert_same_training(job.result(), on_one_machine)


def test_a_wrong_setting_ends_the_job_at_once(cluster: SlurmCluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path, settings(**{**CONFIG, "data": {"global_batch_size": 1}}))
    state = job.finish()
    assert (state["JobState"], state["Restarts"]) == ("FAILED", "0"), job.log.read_text()
    assert state["ExitCode"] == "2:0"


def test_sbatch_takes_odd_values_as_they_are(cluster: SlurmCluster, tmp_path: Path) -> None:
    odd = "a'b\"c$(touch x)`id`\\#;--nodes=9"
    options = SlurmSettings(options={"comment": odd, "begin": "now+1hour"})
    script = tmp_path / FILE
    script.write_text(render(outer_job(name=odd), options).files[FILE])
    job = cluster.submit(script, tmp_path / "log")
    told = [line.strip() for line in cluster.run("scontrol", "show", "job", str(job)).splitlines()]
    cluster.run("scancel", str(job))
    assert f"JobId={job} JobName={odd}" in told
    assert f"Comment={odd}" in told
    assert any(line.startswith("NumNodes=2") for line in told)
