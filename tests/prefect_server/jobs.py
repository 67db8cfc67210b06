"""The job of a flow run seen from outside: its processes, held where a test wants them; and a fake job."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

import psutil

_SECONDS = 300.0


def job_processes(source: Path) -> list[psutil.Process]:
    """The processes of the job that prepares ``source``, itself first, once it has others below it."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        job = _job(source)
        with contextlib.suppress(psutil.NoSuchProcess):
            if job is not None and (children := job.children(recursive=True)):
                return [job, *children]
        time.sleep(0.1)
    raise AssertionError("the run's job did not start")


def held_after_a_block(source: Path, dataset: Path) -> list[psutil.Process]:
    """The processes of the job, all stopped (SIGSTOP) after a first block and before the last.

    Args:
        source: what is prepared, by a job that takes seconds from the first block to the last.
        dataset: the folder of the dataset.
    """
    deadline = time.monotonic() + _SECONDS
    while not list(dataset.glob("spool/*/blocks/*.arrow")):
        assert time.monotonic() < deadline, "no block was finished"
        time.sleep(0.02)
    job = _job(source)
    assert job is not None, "the job had ended before it was stopped"
    job.suspend()
    tree = [job, *job.children(recursive=True)]
    for process in tree[1:]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
    assert not list(dataset.glob("manifests/*.json")), "the job had published before it was stopped"
    return tree


def _job(source: Path) -> psutil.Process | None:
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "beam_jobs.prepare" in command and str(source) in command:
            return process
    return None


def resume(tree: list[psutil.Process]) -> None:
    """Let the processes that ``held_after_a_block`` stopped go on."""
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def fake_prepare(behaviour: str, source: Path, dataset: str) -> list[str]:
    """`shardmill prepare`, with tests/unit/flows/flow_runs/fake_job.py in the place of the real job."""
    fake = Path(__file__).parents[1] / "unit" / "flows" / "flow_runs" / "fake_job.py"
    program = (
        "import sys; from flows import cli; from flows.flow_runs import children\n"
        f"children.PREPARE = (sys.executable, {str(fake)!r}, {behaviour!r})\n"
        "cli.main(sys.argv[1:])"
    )
    return [sys.executable, "-c", program, "prepare", str(source), "--dataset", dataset, "--json"]


def wait_for_text(path: Path) -> str:
    """What ``path`` says, once it says something."""
    deadline = time.monotonic() + _SECONDS
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return path.read_text()
