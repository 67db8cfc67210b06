"""The command that registers deployments ends with the process that started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from shardmill.infra.processes.trees import lives
from tests.samples.waiting import eventually


def test_registering_ends_with_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from shardmill.flows.server.deployments import Deploying\n"
        "env = {'PREFECT_API_URL': 'http://127.0.0.1:9/api'}  # nobody answers: it asks again for a minute\n"
        f"print(Deploying(env, Path({str(tmp_path / 'deploy.log')!r})).process.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        deploying = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert eventually(lambda: not lives(deploying), seconds=10)
