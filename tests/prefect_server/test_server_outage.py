"""A server that restarts or is away does not end the runs in progress."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.prefect_server.server import RunningServer
from tests.samples.sources.image_folders import write_image_folder
from tests.samples.waiting import eventually

# Prefect renews the lease of a run's place every 225 s; it runs out after 300 s.
_RENEWAL_SECONDS = 225
_LEASE_SECONDS = 300
_RETRIES_SECONDS = 120


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_survives_a_restart_of_the_server_and_a_long_outage(
    shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=8)
    prepared = shardmill_up.deployment_run("prepare/prepare", source=str(source), dataset="outage")
    assert shardmill_up.wait(prepared)["state_type"] == "COMPLETED"
    run = shardmill_up.deployment_run(
        "train/train",
        dataset="outage",
        config={"data": {"image_size": 32, "global_batch_size": 8}, "run": {"epochs": 1_000_000}},
    )
    shardmill_up.wait(run, "RUNNING")
    started = time.monotonic()

    (killed,) = _servers(shardmill_up)
    killed.kill()
    assert eventually(lambda: any(server != killed for server in _servers(shardmill_up)), seconds=120)

    # Away from before the renewal until after the lease has run out: longer than 75 s. `shardmill up` would
    # start another server meanwhile, and stands still too.
    _sleep_until(started + _RENEWAL_SECONDS - 10)
    (server,) = _servers(shardmill_up)
    standing_still = (psutil.Process(shardmill_up.pid), server)
    for process in standing_still:
        process.suspend()
    try:
        _sleep_until(started + _LEASE_SECONDS + 15)
    finally:
        for process in reversed(standing_still):
            process.resume()

    _sleep_until(started + _LEASE_SECONDS + 15 + _RETRIES_SECONDS)
    assert shardmill_up.get(f"/flow_runs/{run}")["state_type"] == "RUNNING", shardmill_up.logs(run)
    assert _trainings(), "the training goes on"
    assert shardmill_up.prefect("flow-run", "cancel", run).returncode == 0
    assert shardmill_up.wait(run)["state_type"] == "CANCELLED"
    assert eventually(lambda: not _trainings())


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _servers(up: RunningServer) -> list[psutil.Process]:
    """The process of Prefect's server under `shardmill up`; none while it is started again."""
    services = psutil.Process(up.pid).children()
    return [
        service
        for service in services
        if service.status() != psutil.STATUS_ZOMBIE and "server" in service.cmdline()
    ]


def _trainings() -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "shardmill.training.train" in (process.info["cmdline"] or [])
        and "outage" in process.info["cmdline"]
    ]
