"""``python -m tests.samples.clusters.flink_here``: run Flink with all that Beam needs, on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from shardmill.infra.errors import Cancelled, EnvironmentFault, UsageError
from shardmill.infra.processes.ports import free_port
from shardmill.infra.processes.process import num_cpus, run_main
from tests.samples.clusters.flink_here.cluster import run_cluster
from tests.samples.clusters.flink_here.configuration import LOOPBACK, Layout
from tests.samples.clusters.flink_here.jars import find_java, get_jars
from tests.samples.clusters.supervised import require_free

_MAX_TASK_MANAGERS = 200


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.samples.clusters.flink_here",
        description="Run Apache Flink with Beam's job server and Python workers, on this machine.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster; Ctrl-C stops it", allow_abbrev=False)
    up.add_argument("--folder", type=Path, required=True, metavar="DIR", help="receives logs and settings")
    up.add_argument("--task-managers", type=int, default=2, metavar="N", help="default: 2")
    up.add_argument(
        "--slots", type=int, metavar="N", help="tasks of each TaskManager (default: its share of the cores)"
    )
    up.add_argument("--rest-port", type=int, default=8081, metavar="PORT", help="of Flink (8081); 0: any")
    up.add_argument("--job-port", type=int, default=8099, metavar="PORT", help="of Beam (8099); 0: any")
    up.add_argument(
        "--worker-port", type=int, default=50000, metavar="PORT", help="of the workers (50000); 0: any"
    )
    up.add_argument("--no-restarts", action="store_true", help="let a job fail when a worker of it dies")
    get = commands.add_parser("get", help="only download the jars", allow_abbrev=False)
    for command in (up, get):
        command.add_argument(
            "--jars",
            type=Path,
            default=Path("~/.cache/shardmill/flink"),
            metavar="DIR",
            help="folder where the jars are kept (default: ~/.cache/shardmill/flink)",
        )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    arguments = build_parser().parse_args(argv)
    if sys.platform != "linux":
        raise EnvironmentFault("this command needs Linux", "run it there, or in a container")
    java = find_java()
    jars = get_jars(arguments.jars.expanduser().resolve(), _say)
    if arguments.command == "up":
        try:
            run_cluster(java, jars, layout_of(arguments), _say)
        except Cancelled:
            _say("stopped")
    return 0


def layout_of(arguments: argparse.Namespace) -> Layout:
    """The cluster that a command line asks for, with ports that are free now.

    Raises:
        UsageError: a number makes no sense. EnvironmentFault: a port is taken.
    """
    count: int = arguments.task_managers
    slots: int = max(1, num_cpus() // max(1, count)) if arguments.slots is None else arguments.slots
    if not 1 <= count <= _MAX_TASK_MANAGERS:
        raise UsageError(f"--task-managers {count}", f"give a number from 1 to {_MAX_TASK_MANAGERS}")
    if slots < 1:
        raise UsageError(f"--slots {slots}", "give a number of 1 or more")
    hosts = [f"127.0.0.{2 + number}" for number in range(count)]
    return Layout(
        arguments.folder.resolve(),
        count,
        slots,
        rest_port=_port([LOOPBACK], arguments.rest_port, "--rest-port"),
        rpc_port=free_port(LOOPBACK),
        job_port=_port([LOOPBACK], arguments.job_port, "--job-port"),
        worker_port=_port(hosts, arguments.worker_port, "--worker-port"),
        restarts_jobs=not arguments.no_restarts,
    )


def _port(hosts: list[str], wanted: int, option: str) -> int:
    if wanted == 0:
        return free_port(*hosts)
    for host in hosts:
        require_free(host, wanted, option)
    return wanted


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")  # of the workers: their logs are read while they run
    sys.exit(run_main(main))
