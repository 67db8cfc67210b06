"""`shardmill up --database`: Prefect's history on PostgreSQL, also while PostgreSQL restarts or is away."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from shardmill.flows.flow_runs import api_requests
from tests.prefect_server.jobs import held_after_a_block, resume
from tests.prefect_server.postgresql import running_postgresql
from tests.prefect_server.server import started_up
from tests.samples.sources.image_folders import write_many_large_images
from tests.samples.waiting import eventually


@pytest.mark.slow
def test_a_run_survives_a_restart_of_postgresql(tmp_path: Path) -> None:
    source = write_many_large_images(tmp_path / "large", 60)
    with (
        running_postgresql() as database,
        started_up(tmp_path / "platform", "--database", database.url) as up,
    ):
        assert not (tmp_path / "platform" / "home" / "prefect" / "prefect.db").exists()
        run = up.deployment_run(
            "prepare/prepare", source=str(source), dataset="large", config={"runner": {"block_images": 16}}
        )
        tree = held_after_a_block(source, up.root / "large", lambda: up.has_ended(run))
        database.control("restart", "--mode=immediate")
        resume(tree)
        assert up.wait(run)["state_type"] == "COMPLETED", up.logs(run)
        assert up.logged(run, "large@1")
        family = [psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)]
        assert all(database.url not in " ".join(process.cmdline()) for process in family)


@pytest.mark.slow
def test_up_waits_until_postgresql_is_back(tmp_path: Path) -> None:
    with (
        running_postgresql() as database,
        started_up(tmp_path / "platform", "--database", database.url) as up,
    ):
        log = tmp_path / "platform" / "home" / "logs" / "up.log"
        database.control("stop", "--mode=immediate")
        try:
            services_of_up = psutil.Process(up.pid).children()
            next(service for service in services_of_up if "server" in service.cmdline()).kill()
            waits = "Prefect's server starts later: --database"
            assert eventually(lambda: waits in log.read_text(), seconds=120), log.read_text()
        finally:
            database.control("start")
        assert eventually(lambda: api_requests.answers(up.api_url), seconds=600), log.read_text()
        assert psutil.pid_exists(up.pid)
