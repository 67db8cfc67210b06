"""Prefect's server in several processes: runs go on while each of them is killed and started again."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.flows.server.deployments import prefect_file
from shardmill.infra.dataset.catalog import Catalog
from tests.cluster.production import Process, Production, production, working
from tests.prefect_server.jobs import held_after_a_block, resume
from tests.prefect_server.server import RunningServer, run_command
from tests.prefect_server.test_schedules import ended, scheduled
from tests.samples.sources.image_folders import write_image_folder, write_many_large_images
from tests.samples.waiting import eventually

_SMALL = {"data": {"image_size": 32, "global_batch_size": 8}}
_PLACE = "gpu=train,train-torch,evaluate,promote,pipeline"
_WAIT_SECONDS = 300.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    """The whole set with the deployments on two pools and a worker for each."""
    folder = tmp_path_factory.mktemp("production")
    with production(folder) as found:
        deployed = found.server.shardmill(
            "platform", "deploy", "--pool", "cpu", "--place", _PLACE, timeout=300
        )
        assert deployed.returncode == 0, deployed.stderr
        with working(found, folder, "cpu", "gpu"):
            yield found


def test_deployments_run_on_the_pool_that_they_were_placed_on(live: Production, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    prepared = live.server.deployment_run("prepare/prepare", source=str(source), dataset="placed")
    assert live.server.wait(prepared)["work_pool_name"] == "cpu"
    trained = live.server.deployment_run("train/train", dataset="placed", config=_training(epochs=1))
    run = live.server.wait(trained)
    assert (run["work_pool_name"], run["state_type"]) == ("gpu", "COMPLETED"), live.server.logs(trained)


def test_a_pipeline_goes_on_when_an_api_server_is_killed(live: Production, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    first, second = live.apis.values()
    (port, other_port) = live.apis
    run = live.server.deployment_run(
        "pipeline/pipeline", source=str(source), dataset="failover", train_config=_training(epochs=40)
    )
    live.server.wait(run, "RUNNING", timeout=_WAIT_SECONDS)
    killed = time.monotonic()
    first.kill()
    known = _num_logs(live.server, run)
    assert eventually(lambda: _num_logs(live.server, run) > known, _WAIT_SECONDS, every=0.5)
    print(f"API server killed: the run's next log came after {time.monotonic() - killed:.1f} s")

    # The other one, once the first is back: whoever talked to either has to move.
    first.start()
    assert eventually(lambda: live.healthy(port), _WAIT_SECONDS, every=0.5)
    print(f"API server healthy again {time.monotonic() - killed:.1f} s after the kill")
    second.kill()
    second.start()
    assert live.server.wait(run, timeout=2 * _WAIT_SECONDS)["state_type"] == "COMPLETED", _told(live, run)
    assert Catalog(live.server.root).open("failover@1").manifest.accounting.num_records == 16
    assert eventually(lambda: live.healthy(other_port), _WAIT_SECONDS, every=0.5)


def test_a_lease_outlives_redis_and_the_services(live: Production, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    prepared = live.server.deployment_run("prepare/prepare", source=str(source), dataset="leased")
    assert live.server.wait(prepared)["state_type"] == "COMPLETED", _told(live, prepared)
    run = live.server.deployment_run("train/train", dataset="leased", config=_training(epochs=1_000_000))
    state = live.server.wait(run, "RUNNING", timeout=_WAIT_SECONDS)["state"]
    lease = state["state_details"]["deployment_concurrency_lease_id"]
    assert lease
    _renew(live.server, lease)

    live.services.kill()
    killed = time.monotonic()
    live.redis.kill()
    live.redis.start()
    live.services.start()
    assert eventually(lambda: _renews(live.server, lease), _WAIT_SECONDS, every=0.5)
    print(f"Redis killed: the lease could be renewed after {time.monotonic() - killed:.1f} s")
    assert live.server.get(f"/flow_runs/{run}")["state_type"] == "RUNNING"
    second = live.server.deployment_run("train/train", dataset="leased", config=_training(epochs=1))
    assert eventually(
        lambda: live.server.get(f"/flow_runs/{second}")["state_name"] == "AwaitingConcurrencySlot",
        _WAIT_SECONDS,
        every=0.5,
    ), "the place is still taken"
    assert live.server.prefect("flow-run", "cancel", run).returncode == 0
    assert live.server.wait(run, timeout=_WAIT_SECONDS)["state_type"] == "CANCELLED", _told(live, run)
    assert live.server.wait(second, timeout=2 * _WAIT_SECONDS)["state_type"] == "COMPLETED", _told(
        live, second
    )


def test_schedules_go_on_after_the_services_were_killed(live: Production, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=4)
    with scheduled(live.server, source, "before", "--every", "10s"):
        assert eventually(lambda: len(ended(live.server, "before")) >= 1, _WAIT_SECONDS, every=0.5)
        live.services.kill()
        away = len(ended(live.server, "before"))
        assert eventually(lambda: len(ended(live.server, "before")) > away, _WAIT_SECONDS, every=0.5), (
            "runs that were scheduled ahead go on without the services"
        )
        with scheduled(live.server, source, "during", "--every", "10s"):
            live.services.start()
            started = time.monotonic()
            assert eventually(lambda: len(ended(live.server, "during")) >= 1, 2 * _WAIT_SECONDS, every=0.5)
            print(f"services back: a new schedule's run ended {time.monotonic() - started:.1f} s later")
    assert live.services.lives


def test_the_reaper_of_a_machine_marks_the_runs_of_its_own_killed_worker(
    live: Production, tmp_path: Path
) -> None:
    source = write_many_large_images(tmp_path / "large", 60)
    parameters = {"dataset": "reaped", "config": {"runner": {"block_images": 16}}}
    run = live.server.deployment_run("prepare/prepare", source=str(source), **parameters)
    tree = held_after_a_block(source, live.server.root / "reaped", lambda: live.server.has_ended(run))
    worker = live.workers["cpu"]
    worker.kill()
    resume(tree)
    assert not psutil.wait_procs(tree, timeout=60)[1], "the run ends with its worker"

    elsewhere = run_command(
        [sys.executable, "-m", "shardmill.flows.cli", "platform", "reap"], live.workers["gpu"].env, 120
    )
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert live.server.get(f"/flow_runs/{run}")["state_type"] == "RUNNING"
    reaper = Process(
        ["shardmill.flows.cli", "platform", "reap", "--every", "10s"], worker.env, tmp_path / "reaper.log"
    )
    reaper.start()
    started = time.monotonic()
    try:
        assert live.server.wait(run, timeout=_WAIT_SECONDS)["state_type"] == "CRASHED"
        print(f"worker killed: its run was marked {time.monotonic() - started:.1f} s after the reaper began")
    finally:
        reaper.kill(signal.SIGTERM)
    worker.start()
    again = live.server.deployment_run("prepare/prepare", source=str(source), **parameters)
    assert live.server.wait(again, timeout=_WAIT_SECONDS)["state_type"] == "COMPLETED", _told(live, again)


def test_pools_of_kubernetes_are_made_from_our_template(live: Production) -> None:
    done = live.server.shardmill("platform", "deploy", "--type", "kubernetes", "--pool", "pods", timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Created work pool pods (kubernetes)" in done.stdout
    pool = live.server.get("/work_pools/pods")
    template = json.loads((prefect_file().parent / "work_pools" / "kubernetes.json").read_text())
    assert (pool["type"], pool["base_job_template"]) == ("kubernetes", template)
    assert live.server.get("/deployments/name/train/train")["work_pool_name"] == "pods"
    back = live.server.shardmill("platform", "deploy", "--pool", "cpu", "--place", _PLACE, timeout=300)
    assert back.returncode == 0, back.stderr
    assert live.server.get("/deployments/name/train/train")["work_pool_name"] == "gpu"


def _training(epochs: int) -> dict[str, Any]:
    return {**_SMALL, "run": {"epochs": epochs}}


def _num_logs(server: RunningServer, run: str) -> int:
    """The number of logs of a run and of the runs inside it, as far as 200 are asked for."""
    inside = server.post("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run]}}, limit=50)
    return sum(len(server.logs(each)) for each in (run, *(child["id"] for child in inside)))


def _renew(server: RunningServer, lease: str) -> None:
    server.post(f"/v2/concurrency_limits/leases/{lease}/renew", lease_duration=300)


def _renews(server: RunningServer, lease: str) -> bool:
    try:
        _renew(server, lease)
    except OSError:
        return False
    return True


def _told(live: Production, run: str) -> str:
    """The logs of the run, the workers and the servers, for a failed test."""
    logs = [*live.server.logs(run)[-30:]]
    for process in (*live.workers.values(), live.services, *live.apis.values()):
        logs += [f"== {process.log.name}", *process.log.read_text("utf-8", "replace").splitlines()[-30:]]
    return "\n".join(logs)
