"""The pipeline as Dataflow's client translates it. The service itself is not there, and is not asked."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

GCP_PYTHON = os.environ.get("SHARDMILL_GCP_PYTHON")
IMAGE = "registry.example.org/shardmill:1"

pytestmark = pytest.mark.skipif(
    GCP_PYTHON is None,
    reason="Dataflow's client is not there: install apache-beam[gcp]==2.77.0 in an environment of its own, "
    "and set SHARDMILL_GCP_PYTHON to its python",
)

_TRANSLATE = """
import json, sys
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.internal import apiclient

pipeline = beam_runner_api_pb2.Pipeline()
pipeline.ParseFromString(open(sys.argv[1], "rb").read())
options = PipelineOptions(json.loads(sys.argv[2]))
environment = apiclient.Environment(
    proto_pipeline_staged_url="gs://bucket/staging/pipeline.pb",
    packages=[],
    options=options,
    environment_version=apiclient._FNAPI_ENVIRONMENT_MAJOR_VERSION,
    proto_pipeline=pipeline,
).proto
job = apiclient.Job(options, pipeline).proto
print(json.dumps({
    "name": job.name,
    "type": int(job.type_),
    "images": [image.container_image for pool in environment.worker_pools
               for image in pool.sdk_harness_container_images],
}))
"""


def test_dataflows_client_translates_the_pipeline(tmp_path: Path) -> None:
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import DockerEnvironment

    from beam_jobs.execution.pipeline import RunTask
    from beam_jobs.plan_by_ranges.shards import OrderShards
    from beam_jobs.plan_by_ranges.tables import PlanTables
    from infra.storage.filesystem import Storage

    pipeline = beam.Pipeline(runner=FnApiRunner())
    task = OrderShards(PlanTables(Storage.at(tmp_path), "plan", 4), seed=0)
    _ = pipeline | RunTask(task, range(4), processes=1)
    proto = pipeline.to_runner_api(default_environment=DockerEnvironment.from_container_image(IMAGE))
    assert "OrderShards/RunTask" in {one.unique_name for one in proto.components.transforms.values()}
    (tmp_path / "pipeline.pb").write_bytes(proto.SerializeToString())
    options = [
        "--project=project", "--region=us-central1", "--job_name=shardmill",
        "--temp_location=gs://bucket/temp", "--staging_location=gs://bucket/staging",
        f"--sdk_container_image={IMAGE}", "--sdk_location=container",
    ]  # fmt: skip
    assert GCP_PYTHON is not None
    done = subprocess.run(
        [GCP_PYTHON, "-c", _TRANSLATE, str(tmp_path / "pipeline.pb"), json.dumps(options)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    translated = json.loads(done.stdout.splitlines()[-1])
    assert translated["images"] == [IMAGE]
    assert translated["name"].startswith("shardmill")
    assert translated["type"] == 1, "a batch job"
