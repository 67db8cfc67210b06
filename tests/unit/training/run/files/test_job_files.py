"""The files of a job whose ranks an outer system starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.errors import ConfigError
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.summary import outer_job, write_job
from tests.samples.datasets.published import coloured, publish

RANKS = {"workers": "4", "launcher": "slurm", "max_restarts": 7, "slurm": {"ranks_per_node": 2}}
CHOSEN: dict[str, Any] = {
    "model": {"name": "small_cnn"},
    "optimizer": {"name": "sgd", "options": {"momentum": 0.8}},
    "run": {"epochs": 3, "devices": "cpu:4", "preemption_signal": "SIGUSR1"},
    "ranks": {**RANKS, "shares": [1, 1, 1, 2], "stop_timeout_seconds": 30},
}


def test_ranks_get_the_settings_of_the_run_but_not_those_of_the_job(tmp_path: Path) -> None:
    version = publish(tmp_path / "datasets", coloured({"train": {"a": 2}}), name="colours")
    config = TrainConfig.model_validate(CHOSEN)
    job = outer_job(config, version, "run", tmp_path / "datasets", "/runs")
    of_rank = TrainConfig.model_validate_json(job.config_json)
    left = {"shares": [1, 1, 1, 2], "stop_timeout_seconds": 30, "max_restarts": 7}
    assert of_rank == TrainConfig.model_validate({**CHOSEN, "ranks": left})
    assert (job.count.least, job.count.most, job.max_restarts, job.on_cpu) == (4, 4, 7, True)
    assert (job.preemption_signal, job.stop_timeout_seconds) == ("SIGUSR1", 30)


def test_folders_are_told_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = publish(tmp_path / "datasets", coloured({"train": {"a": 2}}), name="colours")
    monkeypatch.chdir(tmp_path)
    config = TrainConfig.model_validate(CHOSEN)
    assert outer_job(config, version, "run", "datasets", "/runs").root == str(tmp_path / "datasets")
    assert outer_job(config, version, "run", "s3://bucket/sets", "/runs").root == "s3://bucket/sets"


@pytest.mark.parametrize(
    ("launcher", "file", "submit"),
    [("slurm", "job.sbatch", "sbatch"), ("kubernetes", "jobset.yaml", "kubectl create -f")],
)
def test_each_launcher_writes_its_file_and_tells_how_it_is_handed_over(
    tmp_path: Path, launcher: str, file: str, submit: str
) -> None:
    version = publish(tmp_path / "datasets", coloured({"train": {"a": 2}}), name="colours")
    config = TrainConfig.model_validate({**CHOSEN, "ranks": {**RANKS, "launcher": launcher}})
    written = write_job(config, version, "run-1", tmp_path / "datasets", Storage.at(tmp_path / "runs"))
    path = tmp_path / "runs" / "jobs" / "run-1" / file
    assert written["files"] == [str(path)]
    assert written["submit"] == f"{submit} {path}"
    assert os.access(path, os.R_OK)
    assert "colours@1" in path.read_text()


def test_a_job_that_would_begin_anew_at_each_start_is_refused(tmp_path: Path) -> None:
    version = publish(tmp_path / "datasets", coloured({"train": {"a": 2}}), name="colours")
    config = TrainConfig.model_validate({**CHOSEN, "run": {"fresh": True}})
    with pytest.raises(ConfigError, match=r"run\.fresh"):
        outer_job(config, version, "run", tmp_path / "datasets", "/runs")
