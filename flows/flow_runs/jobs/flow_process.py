"""The process of a flow run of `shardmill up`: Prefect's engine, from its first moment tied to the worker.

Usage::

    python -m shardmill.flows.flow_runs.jobs.flow_process    with the environment that Prefect's worker gives

Importing the engine and asking the server for the run takes seconds, or a minute while the server is away.
The worker may be killed meanwhile.
"""

from __future__ import annotations

import runpy

from shardmill.flows.flow_runs.jobs.worker_process import follow_worker
from shardmill.infra.processes.process import die_at_once_with_parent


def main() -> None:
    """Run the flow run that the environment names."""
    die_at_once_with_parent()
    follow_worker()
    runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
