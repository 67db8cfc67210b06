"""The deployments on work pools of Docker and Kubernetes, registered on a real server. No run is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from shardmill.flows.server.deployments import prefect_file
from tests.prefect_server.server import RunningServer


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_all_deployments_register_on_a_pool_made_from_our_template(
    shardmill_up: RunningServer, tmp_path: Path, kind: str
) -> None:
    pool = f"{kind}-pool"
    template = prefect_file().parent / "work_pools" / f"{kind}.json"
    created = shardmill_up.prefect(
        "work-pool", "create", pool, "--type", kind, "--base-job-template", str(template)
    )
    assert created.returncode == 0, created.stdout + created.stderr
    kept = shardmill_up.get(f"/work_pools/{pool}")
    assert (kept["type"], kept["base_job_template"]) == (kind, json.loads(template.read_text()))

    # The file itself, but for the names: the server is shared, and its own deployments must stay.
    described = yaml.safe_load(prefect_file().read_text())
    names = [deployment["name"] for deployment in described["deployments"]]
    for deployment in described["deployments"]:
        deployment["name"] += f"-{kind}"
        deployment["work_pool"] = {"name": pool}
    copy = tmp_path / "prefect.yaml"
    copy.write_text(yaml.safe_dump(described))
    done = shardmill_up.prefect("--no-prompt", "deploy", "--all", "--prefect-file", str(copy), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    registered = shardmill_up.post("/deployments/filter", work_pools={"name": {"any_": [pool]}}, limit=50)
    assert {found["name"] for found in registered} == {f"{name}-{kind}" for name in names}
    assert all(found["pull_steps"] == [] for found in registered), "the image has the code"

    one = ["--name", f"prepare-{kind}", "--job-variable", "image=shardmill-prepare:0.2.0"]
    changed = shardmill_up.prefect("--no-prompt", "deploy", "--prefect-file", str(copy), *one, timeout=300)
    assert changed.returncode == 0, changed.stdout + changed.stderr
    prepare = shardmill_up.get(f"/deployments/name/prepare/prepare-{kind}")
    assert prepare["job_variables"] == {"image": "shardmill-prepare:0.2.0"}
    run = shardmill_up.deployment_run(f"prepare/prepare-{kind}", source="/data/photos", dataset="photos")
    assert shardmill_up.get(f"/flow_runs/{run}")["state_type"] == "SCHEDULED", "nobody works on this pool"
    shardmill_up.delete(f"/flow_runs/{run}")
