"""The agent of a rank on another machine, here without Ray: what it tells, and when it gives up."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from shardmill.training.ranks.launchers.ray_agent import RankAgent
from tests.samples.waiting import eventually

LONG_START = """
import json, sys, time
import psutil
from shardmill.training.ranks.launchers.ray_agent import RankAgent

agent = RankAgent(answer_seconds=0.5)
time.sleep(2.0)
deeds = [{"rank": 0, "attempt": 0, "step": "start", "deed": "hang"}]
command = ["python", "-m", "tests.samples.ranks.fake_rank", sys.argv[1], "1", json.dumps(deeds)]
agent.start(0, command, {"TF_CONFIG": ""})
print(psutil.Process().children()[0].pid, flush=True)
time.sleep(600)
"""


def test_an_agent_waits_for_slow_machines_and_ends_when_its_parent_no_longer_looks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG_START, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert eventually(lambda: has_ended(int(done.stdout))), "the rank outlives its agent"


def test_each_event_is_told_once_and_in_order(tmp_path: Path) -> None:
    agent = RankAgent()
    try:
        command = ["python", "-m", "tests.samples.ranks.fake_rank", str(tmp_path), "40", "[]"]
        agent.start(0, command, {"TF_CONFIG": ""})
        steps, status, until = [], None, time.monotonic() + 60
        while status is None and time.monotonic() < until:
            look = agent.look()
            status = look.state.status
            steps += [event["step"] for event in look.events if event["event"] == "metrics"]
        assert (status, steps) == (0, list(range(1, 41)))
    finally:
        agent.close()


def has_ended(pid: int) -> bool:
    """Tell whether a process is gone, or only waits to be reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
