"""A job under a flow: what it reports, how it fails, and that nothing of it is left."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from shardmill.flows.flow_runs import children
from shardmill.flows.flow_runs.showing.failed import JobEnd
from shardmill.flows.flow_runs.showing.page import Keys
from shardmill.infra import progress
from shardmill.infra.errors import ChildDied, FailureBudgetExceeded

FAKE = (sys.executable, str(Path(__file__).parent / "fake_job.py"))
LOG = logging.getLogger("test-jobs")


def run_job(behaviour: str, *arguments: str) -> children.JobReport:
    """Run the fake job without a flow run, so that nothing is shown."""
    return children.run_child_job([*FAKE, behaviour, *arguments], job="fake", keys=Keys("fake"), log=LOG)


@pytest.fixture
def heard() -> Iterator[list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    unsubscribe = progress.subscribe(lambda event: events.append(dict(event)))
    yield events
    unsubscribe()


def test_a_job_reports_its_result_and_its_figures(
    heard: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        report = run_job("works", "--root", "x")
    assert report.result["arguments"] == ["--root", "x"]
    assert [event["event"] for event in heard] == ["stage", "progress", "metrics", "result"]
    assert "a line of the fake job" in caplog.messages
    assert "0 %, encode: 0 of 10 images" in caplog.messages
    assert any(line.startswith("100 %, encode: 10 of 10 images") for line in caplog.messages)


def test_a_job_fails_with_its_own_error(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(FailureBudgetExceeded, match="9 of 10 inputs") as raised,
    ):
        run_job("over-budget")
    assert raised.value.exit_code == 3
    assert raised.value.remedy == "raise failure_budget"
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == ["9 of 10 inputs cannot be decoded", "what to do: raise failure_budget"]
    assert not any(line.startswith("error:") for line in caplog.messages)
    end = raised.value.__cause__
    assert isinstance(end, JobEnd)
    assert end.stage == "at 0 %, encode: 0 of 10 images"
    assert "a line of the fake job" in end.lines
    assert end.lost["reasons"] == {"truncated": 9}


def test_a_job_without_a_result_is_a_failure() -> None:
    with pytest.raises(ChildDied, match="without returning a result"):
        run_job("says-nothing")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_job_ends_with_the_process_that_runs_it(tmp_path: Path, how: signal.Signals) -> None:
    marker = tmp_path / "pids"
    flow = (
        "import logging, sys; from shardmill.flows.flow_runs import children\n"
        "from shardmill.flows.flow_runs.showing.page import Keys\n"
        "children.run_child_job(sys.argv[1:], job='fake', keys=Keys('fake'), log=logging.getLogger())\n"
    )
    environment = {**os.environ, "FAKE_JOB_MARKER": str(marker)}
    with subprocess.Popen(
        [sys.executable, "-c", flow, *FAKE, "waits"], env=environment, stderr=subprocess.DEVNULL
    ) as process:
        tree = [psutil.Process(int(pid)) for pid in _contents(marker).split()]
        assert len(tree) == 2
        process.send_signal(how)
    _, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive


def _contents(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text()
