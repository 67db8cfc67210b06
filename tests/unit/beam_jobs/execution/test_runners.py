"""Names of runners, and the number of processes of their pools."""

from __future__ import annotations

import pytest

from shardmill.beam_jobs.config import DataflowConfig, RunnerConfig
from shardmill.beam_jobs.execution.dataflow import dataflow_options
from shardmill.beam_jobs.execution.runners import check_runner, num_processes
from shardmill.infra.errors import ConfigError
from shardmill.infra.processes.process import num_cpus

DATAFLOW = {
    "project": "project",
    "region": "europe-west4",
    "temp_location": "gs://bucket/temporary",
    "image": "registry.example.org/shardmill:1",
}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("DaskRunner", "wrong results"),
        ("dask", "wrong results"),
        ("DirectRunner", "Prism, which downloads"),
        ("direct", "Prism, which downloads"),
        ("PrismRunner", "did you mean 'prism'"),
        ("prism", "runner.prism_program"),
        ("DataflowRunner", "did you mean 'dataflow'"),
        ("dataflow", "runner.dataflow.project"),
        ("embeded", "did you mean 'embedded'"),
        ("slurm", "there are: embedded"),
    ],
)
def test_runners_that_are_not_ours(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_runner(RunnerConfig(name=name))
    assert says in str(caught.value)


def test_processes() -> None:
    assert num_processes(RunnerConfig(processes=3)) == 3
    assert num_processes(RunnerConfig()) == num_cpus()
    assert num_processes(RunnerConfig(name="portable")) == 1


@pytest.mark.parametrize(
    ("changes", "places", "says"),
    [
        ({}, ["gs://bucket/photos", "s3://bucket/datasets"], None),
        ({"image": ""}, [], "runner.dataflow.image is missing"),
        ({"temp_location": "/tmp/jobs"}, [], "is not in Google Cloud Storage"),
        ({}, ["gs://bucket/photos", "datasets"], "datasets is on this machine"),
        ({}, ["file:///data/photos", "gs://bucket/datasets"], "file:///data/photos is on this machine"),
    ],
)
def test_dataflow_needs_its_settings_and_data_in_a_store(
    changes: dict[str, str], places: list[str], says: str | None
) -> None:
    runner = RunnerConfig(name="dataflow", dataflow=DataflowConfig(**{**DATAFLOW, **changes}))
    if says is None:
        check_runner(runner, places)
    else:
        with pytest.raises(ConfigError, match=says):
            check_runner(runner, places)


def test_options_of_dataflow_are_explicit_and_the_users_win() -> None:
    assert dataflow_options(DataflowConfig(**DATAFLOW), "shardmill-1f-Encode", {"region"}) == [
        "--project=project",
        "--job_name=shardmill-1f-encode",
        "--temp_location=gs://bucket/temporary",
        "--sdk_container_image=registry.example.org/shardmill:1",
        "--sdk_location=container",
    ]
