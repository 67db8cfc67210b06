"""The job of a flow run seen from outside: its processes, held where a test wants them; and a fake job."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.samples.waiting import before_its_end

FAKE_JOB = Path(__file__).parents[1] / "unit" / "flows" / "flow_runs" / "fake_job.py"


def job_processes(source: Path, has_ended: Callable[[], bool]) -> list[psutil.Process]:
    """The processes of the job that prepares ``source``, itself first, once it has others below it.

    Args:
        source: what is prepared.
        has_ended: tells whether the flow run of the job has ended.
    """

    def with_children() -> list[psutil.Process] | None:
        job = _job(source)
        with contextlib.suppress(psutil.NoSuchProcess):
            if job is not None and (children := job.children(recursive=True)):
                return [job, *children]
        return None

    return before_its_end(with_children, has_ended)


def held_after_a_block(source: Path, dataset: Path, has_ended: Callable[[], bool]) -> list[psutil.Process]:
    """The processes of the job, all stopped (SIGSTOP) after a first block and before the last.

    Args:
        source: what is prepared, by a job that takes seconds from the first block to the last.
        dataset: the folder of the dataset.
        has_ended: tells whether the flow run or the command of the job has ended.
    """
    before_its_end(lambda: list(dataset.glob("spool/*/blocks/*.arrow")) or None, has_ended)
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
        if "shardmill.beam_jobs.prepare" in command and str(source) in command:
            return process
    return None


def resume(tree: list[psutil.Process]) -> None:
    """Let the processes that ``held_after_a_block`` stopped go on."""
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def fake_prepare(behaviour: str, source: Path, dataset: str) -> list[str]:
    """`shardmill prepare`, with tests/unit/flows/flow_runs/fake_job.py in the place of the real job."""
    program = (
        "import sys\nfrom shardmill.flows import cli\n"
        "from shardmill.beam_jobs import request\n"
        f"request.PREPARE = (sys.executable, {str(FAKE_JOB)!r}, {behaviour!r})\n"
        "cli.main(sys.argv[1:])"
    )
    return [sys.executable, "-c", program, "prepare", str(source), "--dataset", dataset, "--json"]


def wait_for_text(path: Path, process: subprocess.Popen[Any]) -> str:
    """Wait until the process has written to ``path``; return its content."""

    def text() -> str | None:
        return path.read_text() or None if path.exists() else None

    return before_its_end(text, lambda: process.poll() is not None)
