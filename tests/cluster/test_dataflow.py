"""The pipeline as Dataflow's client translates it. The service itself is not there, and is not asked."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.samples.clusters.flink import REPOSITORY

GCP_PYTHON = os.environ.get("SHARDMILL_GCP_PYTHON")
IMAGE = "registry.example.org/shardmill:1"

pytestmark = pytest.mark.skipif(
    GCP_PYTHON is None,
    reason="Dataflow's client is not there: install shardmill and apache-beam[gcp]==2.77.0 in an environment "
    "of its own, and set SHARDMILL_GCP_PYTHON to its python",
)

# Everything up to the request to the service: its client ends there with the option --dry_run.
_TRANSLATE = """
import json, sys
from apache_beam.portability.api import beam_runner_api_pb2
from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.execution.dataflow import dataflow_faults, dataflow_options, dataflow_pipeline
from shardmill.beam_jobs.execution.pipeline import RunTask
from shardmill.beam_jobs.execution.runners import check_runner, num_processes
from shardmill.beam_jobs.execution.task import job_name
from shardmill.beam_jobs.plan_by_ranges.shards import OrderShards
from shardmill.beam_jobs.plan_by_ranges.tables import PlanTables
from shardmill.infra.storage.filesystem import Storage

runner = RunnerConfig.model_validate_json(sys.argv[1])
check_runner(runner, ["gs://bucket/photos", "gs://bucket/datasets"])
task = OrderShards(PlanTables(Storage.at(sys.argv[2]), "plan", 4), seed=0)
with dataflow_faults():
    pipeline = dataflow_pipeline([*dataflow_options(runner.dataflow, job_name(task), ()), "--dry_run=true"])
    pipeline | RunTask(task, range(4), num_processes(runner))
    result = pipeline.run()
job, components = result.job.proto, result.job.proto_pipeline.components
print(json.dumps({
    "name": job.name,
    "type": int(job.type_),
    "project": result.job.google_cloud_options.project,
    "region": result.job.google_cloud_options.region,
    "images": [
        beam_runner_api_pb2.DockerPayload.FromString(one.payload).container_image
        for one in components.environments.values()
    ],
    "transforms": sorted(one.unique_name for one in components.transforms.values()),
}))
"""


def test_dataflows_client_translates_the_pipeline(tmp_path: Path) -> None:
    runner = {
        "name": "dataflow",
        "dataflow": {
            "project": "project",
            "region": "europe-west4",
            "temp_location": "gs://bucket/temporary",
            "image": IMAGE,
        },
    }
    assert GCP_PYTHON is not None
    done = subprocess.run(
        [GCP_PYTHON, "-c", _TRANSLATE, json.dumps(runner), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    translated = json.loads(done.stdout.splitlines()[-1])
    assert translated["images"] == [IMAGE]
    assert (translated["project"], translated["region"]) == ("project", "europe-west4")
    assert translated["name"].startswith("shardmill-")
    assert translated["name"] == translated["name"].lower()
    assert translated["type"] == 1, "a batch job"
    assert "OrderShards/RunTask" in translated["transforms"]
