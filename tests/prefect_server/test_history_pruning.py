"""The server of `shardmill up` deletes runs that ended more than 90 days ago, and keeps the others."""

from __future__ import annotations

import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shardmill.flows.server.services import Server
from shardmill.infra.processes.ports import free_port

_DELETED_SECONDS = 120.0


@pytest.mark.slow
def test_runs_that_ended_long_ago_are_deleted(tmp_path: Path) -> None:
    home = tmp_path / "prefect"
    home.mkdir()
    # By default the server looks once an hour.
    often = {"PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "1", "PREFECT_HOME": str(home)}
    with Server("127.0.0.1", free_port(), log_path=tmp_path / "server.log", env=often) as server:
        server.wait_until_healthy()
        recent, old = _ended_run(server), _ended_run(server)
        _date_back(home / "prefect.db", old, days=91)
        assert _is_gone(server, old), "the server deletes it"
        assert _known(server, recent), "a run that has just ended stays"


def _ended_run(server: Server) -> str:
    import httpx

    with httpx.Client(base_url=server.api_url, headers=_csrf(server), timeout=60) as client:
        flow = client.post("/flows/", json={"name": "prepare"}).raise_for_status().json()
        run = {"flow_id": flow["id"], "state": {"type": "COMPLETED"}}
        return str(client.post("/flow_runs/", json=run).raise_for_status().json()["id"])


def _csrf(server: Server) -> dict[str, str]:
    import httpx

    answer = httpx.get(f"{server.api_url}/csrf-token", params={"client": "test"}, timeout=60)
    return {"Prefect-Csrf-Token": answer.raise_for_status().json()["token"], "Prefect-Csrf-Client": "test"}


def _date_back(database: Path, run: str, days: int) -> None:
    """Change the end of a run in the database itself: the API takes no times of the past."""
    ended = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S.%f")
    connection = sqlite3.connect(database, timeout=60)
    try:
        with connection:
            changed = connection.execute("UPDATE flow_run SET end_time = ? WHERE id = ?", (ended, run))
            assert changed.rowcount == 1
    finally:
        connection.close()


def _known(server: Server, run: str) -> bool:
    import httpx

    return httpx.get(f"{server.api_url}/flow_runs/{run}", timeout=60).status_code == 200


def _is_gone(server: Server, run: str) -> bool:
    end = time.monotonic() + _DELETED_SECONDS
    while _known(server, run):
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True
