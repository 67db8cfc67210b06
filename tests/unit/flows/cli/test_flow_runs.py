"""Runs of flows by commands while the server of `shardmill up` does not answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shardmill.flows.cli.runs.flow_runs import FlowCall, Job, run_flow
from shardmill.flows.server.running_up import RunningUp, up_lock, write_running_up
from shardmill.infra.processes.ports import free_port
from tests.unit.flows.flow_runs import fake_job

WARNING = "does not answer; this run appears there only after it has ended"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMILL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def prepare() -> dict[str, object]:
    command = [sys.executable, str(Path(fake_job.__file__)), "works"]
    job = Job("prepare", lambda _: command, lambda _: "done")
    return run_flow(FlowCall("prepare", "prepare-photos", lambda: None, (job,), {}, {}))


def test_a_command_warns_when_the_running_server_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    up = RunningUp(os.getpid(), "127.0.0.1", free_port(), "/d", "/r")
    with up_lock(process_id=up.pid):
        write_running_up(up)
        assert prepare()["dataset"] == "fake"
    assert WARNING in capsys.readouterr().err


def test_a_command_without_a_running_server_does_not_warn(capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare()["dataset"] == "fake"
    assert "warning" not in capsys.readouterr().err
