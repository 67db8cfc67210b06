"""Measure the cost of a flow around its jobs: the same work as a module, a command, and a deployment's run.

The sources are so small that nearly all of the time is start-up. The columns are wall and CPU seconds; the
CPU seconds of a command under a server leave out the server. The rows of the pipeline say when each stage of
a run of the deployment was reached, in seconds from the request.

python -m tests.benchmarks.flows.start_up [--without-pipeline]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring.process_tree import run_measured
from tests.prefect_server.server import RunningServer, started_up, user_environment
from tests.samples.sources.image_folders import write_image_folder

_MODULE = [sys.executable, "-m", "shardmill.beam_jobs.prepare"]
_COMMAND = [sys.executable, "-m", "shardmill.flows.cli", "prepare"]
_TINY = {"data": {"image_size": 32, "global_batch_size": 16}, "run": {"epochs": 1}}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--without-pipeline", action="store_true", help="leave out the runs of the deployment"
    )
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="start-up-"))
    try:
        source = write_image_folder(folder / "photos")
        print(f"{'':44} {'wall':>6} {'CPU':>6}")
        alone = user_environment(folder / "alone")
        _row("module, new", _MODULE, source, folder / "module", alone)
        _row("module, unchanged", _MODULE, source, folder / "module", alone)
        _row("command without a server, new", _COMMAND, source, folder / "without", alone)
        _row("command without a server, unchanged", _COMMAND, source, folder / "without", alone)
        with started_up(folder / "up") as server:
            _row("command under a server, new", _COMMAND, source, folder / "under", server.env)
            _row("command under a server, unchanged", _COMMAND, source, folder / "under", server.env)
            if not arguments.without_pipeline:
                _pipeline(server, source, "first")
                _pipeline(server, source, "second")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _row(what: str, command: list[str], source: Path, root: Path, env: Mapping[str, str]) -> None:
    # The first run of a form would also pay for reading libraries from the disk.
    argv = [*command, str(source), "--dataset", "tiny", "--root", str(root), "--json"]
    cost = run_measured(argv, root.parent, env)
    print(f"{what:44} {cost.wall_seconds:6.1f} {cost.cpu_seconds:6.1f}", flush=True)


def _pipeline(server: RunningServer, source: Path, dataset: str) -> None:
    run = server.deployment_run("pipeline/pipeline", source=str(source), dataset=dataset, train_config=_TINY)
    ended = server.wait(run)
    asked = datetime.fromisoformat(ended["created"])

    def seconds(moment: str) -> float:
        return (datetime.fromisoformat(moment) - asked).total_seconds()

    print(f"\npipeline of the deployment, {dataset} run ({ended['state_type']}): seconds from the request")
    print(f"{'  its process runs the flow':44} {seconds(ended['start_time']):6.1f}")
    for task in sorted(_tasks(server, run), key=lambda task: str(task["start_time"])):
        label = f"  {task['name'].rsplit('-', 1)[0]}"
        print(f"{label:44} {seconds(task['start_time']):6.1f} to {seconds(task['end_time']):6.1f}")
    print(f"{'  ended':44} {seconds(ended['end_time']):6.1f}", flush=True)


def _tasks(server: RunningServer, run: str) -> list[dict[str, Any]]:
    """The task runs of a flow run and of the runs inside it that have ended."""
    inside = server.post("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [run]}}, limit=50)
    runs = [run, *(child["id"] for child in inside)]
    found = server.post("/task_runs/filter", flow_runs={"id": {"any_": runs}}, limit=50)
    return [task for task in found if task["start_time"] and task["end_time"]]


if __name__ == "__main__":
    main()
