"""The process of a run that a worker started: it ends with its worker, and others see that it lives."""

from __future__ import annotations

import os
import signal
import threading
import time
from uuid import UUID

import psutil

from shardmill.flows import home
from shardmill.flows.flow_runs.lost_runs import hold_until_exit

# Set by the worker of `shardmill up`. Other workers do not, and are known as the parent of this process.
WORKER_VARIABLE = "SHARDMILL_WORKER"

_watcher: threading.Thread | None = None


def is_started_by_worker() -> bool:
    """Tell whether a worker started this process for a run."""
    return "PREFECT__FLOW_RUN_ID" in os.environ


def begin_workers_run() -> None:
    """Tie this process to its worker, and hold the lock of its run; nothing in a process without a worker."""
    if not is_started_by_worker():
        return
    follow_worker()
    hold_until_exit(UUID(os.environ["PREFECT__FLOW_RUN_ID"]))
    home.take_turns()


def follow_worker() -> None:
    """End this process when the worker that started it is gone, at once if it is gone already.

    Such a run would outlive a killed worker: nobody could cancel it, and its job would continue.
    """
    global _watcher
    if _watcher is not None:
        return
    worker = _worker()
    if worker is None:
        os.kill(os.getpid(), signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == worker:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)

    _watcher = threading.Thread(target=watch, name="follow-worker", daemon=True)
    _watcher.start()


def _worker() -> int | None:
    """Process id of the worker that started this process; None if the worker is gone."""
    parent = os.getppid()
    if WORKER_VARIABLE in os.environ:
        return parent if os.environ[WORKER_VARIABLE] == str(parent) else None
    # The first process of the system adopts the processes of a killed worker. In a container it may be the
    # worker itself, a program in Python.
    is_adopted = parent == 1 and "python" not in " ".join(psutil.Process(1).cmdline())
    return None if is_adopted else parent
