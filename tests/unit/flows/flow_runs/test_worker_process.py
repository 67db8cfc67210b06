"""The process of a run ends with its worker, from its first moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from uuid import uuid4

import psutil
import pytest

from shardmill.flows.flow_runs import worker_process
from shardmill.flows.flow_runs.worker_process import WORKER_VARIABLE
from shardmill.infra.processes.trees import lives
from tests.samples.waiting import eventually


def environment(worker: object | None) -> dict[str, str]:
    """The environment of the process of a run whose server does not answer."""
    named = {} if worker is None else {WORKER_VARIABLE: str(worker)}
    api = {"PREFECT_API_URL": "http://127.0.0.1:9/api", "PREFECT__FLOW_RUN_ID": str(uuid4())}
    return {**os.environ, **api, **named}


def test_it_ends_at_once_if_its_worker_was_killed_before() -> None:
    command = [sys.executable, "-m", worker_process.__name__]
    done = subprocess.run(command, env=environment(worker=2**22 + 1), check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_it_ends_with_a_killed_worker_while_it_asks_the_server_for_its_run() -> None:
    worker = (
        "import os, subprocess, sys\n"
        f"os.environ[{WORKER_VARIABLE!r}] = str(os.getpid())\n"
        f"run = subprocess.Popen([sys.executable, '-m', {worker_process.__name__!r}])\n"
        "print(run.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", worker],
        env=environment(None),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        run = psutil.Process(int(process.stdout.readline()))
        process.kill()
    assert eventually(lambda: not lives(run), seconds=10)


@pytest.mark.skipif("python" in " ".join(psutil.Process(1).cmdline()), reason="process 1 may be a worker")
def test_a_run_of_another_worker_ends_if_the_system_has_adopted_it() -> None:
    program = (
        "import os, time; from shardmill.flows.flow_runs import worker_process\n"
        "worker = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    while os.getppid() == worker: time.sleep(0.02)\n"
        "    print(os.getpid(), os.getppid(), flush=True)\n"
        "    worker_process.follow_worker()\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment(None), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        run, parent = (psutil.Process(int(number)) for number in process.stdout.readline().split())
    try:
        if parent.pid != 1:
            pytest.skip("another process adopts those whose parent has ended")
        assert eventually(lambda: not lives(run), seconds=10)
    finally:
        run.kill()
