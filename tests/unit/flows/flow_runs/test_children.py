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

from flows.flow_runs import children
from infra import progress
from infra.errors import ChildDied, FailureBudgetExceeded

FAKE = (sys.executable, str(Path(__file__).parent / "fake_job.py"))
LOG = logging.getLogger("test-jobs")


class NoProgress:
    """Stands for the live artifact where there is no Prefect."""

    shown: list[tuple[float, str]]

    def __init__(self, _key: str) -> None:
        NoProgress.shown = []

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, percent: float, text: str) -> None:
        self.shown.append((percent, text))


@pytest.fixture(autouse=True)
def no_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "LiveProgress", NoProgress)


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
        report = children.run_child_job([*FAKE, "works", "--root", "x"], key="k", log=LOG)
    assert report.result["arguments"] == ["--root", "x"]
    assert report.metrics == [{"split": "train", "step": 1, "loss": 0.5}]
    assert [event["event"] for event in heard] == ["stage", "progress", "metrics", "result"]
    assert (100.0, "encode: 10 of 10 images") in [
        (percent, text.split(",")[0]) for percent, text in NoProgress.shown
    ]
    assert "a line of the fake job" in caplog.messages
    assert "encode: 0 of 10 images" in caplog.messages


def test_a_job_fails_with_its_own_error() -> None:
    with pytest.raises(FailureBudgetExceeded, match="9 of 10 inputs") as raised:
        children.run_child_job([*FAKE, "over-budget"], key="k", log=LOG)
    assert raised.value.exit_code == 3
    assert raised.value.remedy == "raise failure_budget"


def test_a_job_without_a_result_is_a_failure() -> None:
    with pytest.raises(ChildDied, match="without returning a result"):
        children.run_child_job([*FAKE, "says-nothing"], key="k", log=LOG)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_job_ends_with_the_process_that_runs_it(tmp_path: Path, how: signal.Signals) -> None:
    marker = tmp_path / "pids"
    flow = (
        "import logging, sys; from flows.flow_runs import children\n"
        "class Quiet:\n"
        "    def __init__(self, key): pass\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *_): pass\n"
        "    def show(self, *_): pass\n"
        "children.LiveProgress = Quiet\n"
        "children.run_child_job(sys.argv[1:], key='k', log=logging.getLogger())\n"
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
