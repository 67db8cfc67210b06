"""The Kubernetes form of the Flink cluster is valid, and the same as what runs on one machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardmill.beam_jobs.config import FlinkConfig
from shardmill.beam_jobs.execution.flink import DEFAULT_JOB_PORT
from shardmill.beam_jobs.execution.workers import check_loopback
from tests.samples.clusters.flink_here.configuration import Layout, flink_configuration
from tests.samples.clusters.flink_here.jars import FLINK_VERSION
from tests.samples.clusters.kubernetes_schemas import check_by_definition

FOLDER = Path(__file__).parents[4] / "infra/deploy/flink"
KUBERNETES = "1.31"
DEFINITION = os.environ.get("SHARDMILL_FLINK_DEFINITION")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def cluster() -> dict[str, Any]:
    (found,) = documents("cluster.yaml")
    return found


def worker_pool() -> dict[str, Any]:
    containers = cluster()["spec"]["taskManager"]["podTemplate"]["spec"]["containers"]
    (found,) = [container for container in containers if container["name"] == "workers"]
    return found


def test_the_parts_are_valid_by_the_schemas_of_kubernetes() -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate", reason="no schemas of Kubernetes: pip install kubernetes-validate"
    )
    parts = [*documents("job-server.yaml"), cluster()["spec"]["taskManager"]["podTemplate"]]
    assert [part["kind"] for part in parts] == ["Deployment", "Service", "NetworkPolicy", "Pod"]
    for part in parts:
        schemas.validate(part, KUBERNETES, strict=True)


def test_the_cluster_is_a_resource_of_the_operator_for_the_version_that_is_tested() -> None:
    found = cluster()
    assert (found["apiVersion"], found["kind"]) == ("flink.apache.org/v1beta1", "FlinkDeployment")
    known = {
        "image",
        "flinkVersion",
        "mode",
        "serviceAccount",
        "flinkConfiguration",
        "jobManager",
        "taskManager",
    }
    assert set(found["spec"]) == known
    major, minor, _ = FLINK_VERSION.split(".")
    assert found["spec"]["flinkVersion"] == f"v{major}_{minor}"
    assert found["spec"]["image"].startswith(f"flink:{FLINK_VERSION}-")
    assert "job" not in found["spec"], "a session cluster: Beam's job server brings the jobs"


@pytest.mark.skipif(
    DEFINITION is None,
    reason="no schema of Flink's operator: download "
    "flinkdeployments.flink.apache.org-v1.yml of its chart, and set SHARDMILL_FLINK_DEFINITION to it",
)
def test_the_cluster_follows_the_operators_own_schema() -> None:
    assert DEFINITION is not None
    check_by_definition(cluster(), Path(DEFINITION))


def test_the_cluster_restarts_jobs_as_the_one_that_is_tested(tmp_path: Path) -> None:
    tested = yaml.safe_load(flink_configuration(Layout(tmp_path, 2, 1, *range(4))))
    settings = cluster()["spec"]["flinkConfiguration"]
    for key in ("restart-strategy.type", "cluster.evenly-spread-out-slots"):
        assert str(settings[key]).lower() == str(tested[key]).lower()
    assert all(isinstance(value, str) for value in settings.values())


def test_the_pool_beside_each_task_manager_is_where_prepare_says() -> None:
    command = worker_pool()["args"]
    assert command[:4] == ["python", "-P", "-m", "shardmill.beam_jobs.worker_pool"]
    assert command[-1] == FlinkConfig().pool_endpoint
    check_loopback(command[-1])


def test_the_job_server_is_where_prepare_looks_for_it_and_not_open_to_all() -> None:
    deployment, service, policy = documents("job-server.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"--job-port={DEFAULT_JOB_PORT}" in container["args"]
    assert f"--flink-master={cluster()['metadata']['name']}-rest:8081" in container["args"]
    assert {port["port"] for port in service["spec"]["ports"]} == {8098, DEFAULT_JOB_PORT}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    assert policy["spec"]["ingress"][0]["from"]
