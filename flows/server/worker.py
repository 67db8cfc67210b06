"""The worker of `shardmill up`: runs each flow run of a work pool in a process that ends with the worker."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import Any

from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

from shardmill.flows.flow_runs import worker_process
from shardmill.flows.flow_runs.worker_process import FOLDER_VARIABLE, WORKER_VARIABLE
from shardmill.flows.server import services
from shardmill.flows.server.tidying.stale_runs import worker_name
from shardmill.infra.processes.job_command import python_module

_BEAT_SECONDS = 2.0


class FlowProcess(ProcessJobConfiguration):
    """The process of a flow run: shardmill.flows.flow_runs.worker_process, or the command of a deployment.

    Without a command, Prefect starts a process in a session of its own that first asks the server about the
    run. That process would outlive a killed worker by a minute. With a command, the process is in the process
    group of the worker, which the lifeline of the worker kills as a whole.
    """

    def prepare_for_flow_run(self, *args: Any, **kwargs: Any) -> None:
        """Set the command, then let Prefect set the rest for the flow run."""
        self.command = self.command or shlex.join(python_module(worker_process.__name__))
        super().prepare_for_flow_run(*args, **kwargs)


def work(pool: str) -> None:
    """Run the flow runs of ``pool`` that are due."""
    os.environ[WORKER_VARIABLE] = str(os.getpid())
    os.environ[FOLDER_VARIABLE] = str(Path.cwd())
    worker = ProcessWorker(work_pool_name=pool, name=worker_name(), create_pool_if_not_found=False)
    worker.job_configuration = FlowProcess
    asyncio.run(_work(worker))


async def _work(worker: ProcessWorker) -> None:
    """Run the worker, and show `shardmill up` that its loop goes on."""
    beating = asyncio.create_task(_beat())
    try:
        await worker.start()
    finally:
        beating.cancel()


async def _beat() -> None:
    while True:
        services.beat(services.WORKER)
        await asyncio.sleep(_BEAT_SECONDS)
