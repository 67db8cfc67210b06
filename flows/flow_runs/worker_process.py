"""The process of a run that a worker started: it ends with its worker, and others see that it lives.

::

    python -m shardmill.flows.flow_runs.worker_process    with the environment that Prefect's worker gives

runs Prefect's engine, tied to the worker from its first moment. Importing the engine and asking the server
for the run takes seconds, or a minute while the server is away. The worker may be killed meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psutil

from shardmill.flows import home
from shardmill.flows.flow_runs.lost_runs import hold_until_exit
from shardmill.infra.errors import ConfigError
from shardmill.infra.processes.process import die_at_once_with_parent

# Set by the worker of `shardmill up`. Other workers do not, and are known as the parent of this process.
WORKER_VARIABLE = "SHARDMILL_WORKER"
# Set by the same worker: the folder in which it was started. Prefect starts each run in an empty folder.
FOLDER_VARIABLE = "SHARDMILL_WORKER_FOLDER"

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


@contextlib.contextmanager
def working_in(code: str | None) -> Iterator[None]:
    """Make the folder of the user's own modules the working directory within the block.

    Args:
        code: the folder; None: where the worker was started, or this folder in a process without a worker.

    Raises:
        ConfigError: this machine has no such folder.
    """
    folder = code or (os.environ.get(FOLDER_VARIABLE) if is_started_by_worker() else None)
    if code is not None and not Path(code).is_dir():
        raise ConfigError(
            f"code = {code!r}: {socket.gethostname()} has no such folder",
            "install your modules on each machine that has a worker, and leave code out",
        )
    with contextlib.nullcontext() if folder is None else contextlib.chdir(folder):
        yield


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


def run_engine() -> None:
    """Run the flow run that the environment names."""
    die_at_once_with_parent()
    follow_worker()
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    # By its name: the flow calls follow_worker of that module again, which must know of the thread.
    from shardmill.flows.flow_runs import worker_process

    worker_process.run_engine()
