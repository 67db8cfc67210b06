"""Start a Flink cluster, and keep its processes running until told to stop."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.ports import open_url
from shardmill.infra.strict_json import dump_json
from tests.samples.clusters.flink_here.configuration import (
    LOOPBACK,
    Layout,
    job_manager_command,
    job_server_command,
    task_manager_command,
    worker_pool_command,
    write_configuration,
)
from tests.samples.clusters.flink_here.jars import Jars
from tests.samples.clusters.supervised import LOOK_SECONDS, Service, Supervisor

START_SECONDS = 300.0
CLUSTER_FILE = "cluster.json"
CONFIG_FILE = "prepare.toml"


def run_cluster(java: str, jars: Jars, layout: Layout, say: Callable[[str], None]) -> None:
    """Start a cluster, write CLUSTER_FILE and CONFIG_FILE once it is ready, and supervise it.

    Never returns: an exception (``Cancelled`` of a signal) ends it, and all processes of the cluster with it.

    Args:
        java: the program.
        jars: of Flink and the job server.
        layout: the cluster's.
        say: called with a line for each change.

    Raises:
        EnvironmentFault: a process keeps dying, or the cluster is not ready in START_SECONDS.
    """
    started = time.monotonic()
    write_configuration(layout)
    for name in (CLUSTER_FILE, CONFIG_FILE):
        (layout.folder / name).unlink(missing_ok=True)
    supervisor = Supervisor(layout.folder / "log", say)
    try:
        for service in services_of(java, jars, layout):
            supervisor.start(service)
        supervisor.wait_until_ready(START_SECONDS)
        _wait_for_task_managers(supervisor, layout, started + START_SECONDS)
        (layout.folder / CONFIG_FILE).write_text(prepare_settings(layout))
        _write_cluster_file(supervisor, layout)
        say(f"ready after {time.monotonic() - started:.0f} s")
        say(f"use it: shardmill prepare ... --config {layout.folder / CONFIG_FILE}")
        while True:
            if supervisor.look():
                _write_cluster_file(supervisor, layout)
            time.sleep(LOOK_SECONDS)
    finally:
        supervisor.close()


def services_of(java: str, jars: Jars, layout: Layout) -> list[Service]:
    """Return the processes of the cluster in starting order."""
    hosts = [layout.host(number) for number in range(layout.task_managers)]
    job_manager = (LOOPBACK, layout.rest_port)
    services = [Service("jobmanager", job_manager_command(java, jars, layout), job_manager)]
    for number, host in enumerate(hosts):
        pool = worker_pool_command(layout, number)
        services.append(Service(f"workers-{number + 1}", pool, (host, layout.worker_port)))
        task_manager = task_manager_command(java, jars, layout, number)
        services.append(Service(f"taskmanager-{number + 1}", task_manager))
    job_server = job_server_command(java, jars, layout)
    return [*services, Service("jobserver", job_server, (LOOPBACK, layout.job_port))]


def prepare_settings(layout: Layout) -> str:
    """The text of a file for ``--config`` that has ``prepare`` run on the cluster."""
    return f"""\
[prepare.runner]
name = "flink"

[prepare.runner.flink]
master = "{layout.flink_master}"
job_endpoint = "{layout.job_endpoint}"
pool_endpoint = "localhost:{layout.worker_port}"
"""


def _wait_for_task_managers(supervisor: Supervisor, layout: Layout, deadline: float) -> None:
    while (found := _num_task_managers(layout)) < layout.task_managers:
        supervisor.look()
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"{found} of {layout.task_managers} TaskManagers are there after {START_SECONDS:g} seconds",
                f"see {layout.folder / 'log'}",
            )
        time.sleep(LOOK_SECONDS)


def _num_task_managers(layout: Layout) -> int:
    try:
        request = urllib.request.Request(f"http://{layout.flink_master}/overview")
        with open_url(request, timeout_seconds=10) as answer:
            return int(json.load(answer)["taskmanagers"])
    except (OSError, ValueError, KeyError):
        return 0  # the page is there a moment after the port


def _write_cluster_file(supervisor: Supervisor, layout: Layout) -> None:
    described = {
        "flink_master": layout.flink_master,
        "job_endpoint": layout.job_endpoint,
        "pids": supervisor.pids,
    }
    path = layout.folder / CLUSTER_FILE
    part = Path(f"{path}.part")
    part.write_text(dump_json(described, indent=1))
    part.rename(path)
