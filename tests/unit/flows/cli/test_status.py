"""What `shardmill status` says of runs that wait, and of a server that does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardmill.flows.problems import Problem, open_problem
from shardmill.flows.server.running_up import up_lock
from tests.samples.pages.prefect_answers import answering

# The command asks for 10 s. The rest is for a busy machine, which imports Prefect slowly.
_BOUND_SECONDS = 150
_RUN = {
    "id": "run-1", "flow_id": "flow-1", "name": "prepare-photos", "state_name": "Running",
    "state_type": "RUNNING", "state": {}, "start_time": None, "parameters": {"dataset": "photos"},
}  # fmt: skip


def status(api_url: str | None, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PREFECT_API_URL": api_url or "", "SHARDMILL_HOME": str(home)}
    command = [sys.executable, "-m", "shardmill.flows.cli", "status", "--json"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_BOUND_SECONDS, check=True
    )


def test_a_server_that_does_not_answer_is_named_soon(tmp_path: Path) -> None:
    with answering(None) as url:
        problems = json.loads(status(url, tmp_path).stdout)["problems"]
    assert len(problems) == 2
    assert all(f"the server at {url} did not answer" in problem for problem in problems)


def test_a_platform_whose_server_does_not_answer_is_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(status(None, tmp_path).stdout) == {"running": False}
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path))
    open_problem(Problem("source", "/photos", "/photos cannot be listed", "mount it", since=1000.0))
    with up_lock(process_id=os.getpid()):
        found = json.loads(status(None, tmp_path).stdout)
    problem = f"shardmill up (process {os.getpid()}) is there, but its Prefect server does not answer"
    assert (found["running"], found["pid"], found["problems"]) == (True, os.getpid(), [problem])
    assert [(one["subject"], one["since"]) for one in found["open_problems"]] == [("/photos", 1000.0)]


@pytest.mark.parametrize(
    ("description", "state"),
    [
        ("waiting until train photos@1 (process 7) has ended", "Waiting"),
        ("12 %, encode: 12 of 100 images", "Running"),
    ],
)
def test_a_run_that_waits_for_another_job_is_not_called_running(
    description: str, state: str, tmp_path: Path
) -> None:
    progress = {"flow_run_id": "run-1", "data": 0.0, "description": description}
    answers = {
        "/flow_runs/filter": [_RUN],
        "/flows/filter": [{"id": "flow-1", "name": "prepare"}],
        "/artifacts/filter": [progress],
    }
    with answering(answers) as url:
        (run,) = json.loads(status(url, tmp_path).stdout)["runs"]
    assert (run["state"], run["doing"]) == (state, description)
