"""The processes of a platform, by kind."""

from __future__ import annotations

import contextlib

import psutil

DATABASE = "database"
KINDS = ("flow", "job", "image worker", "trainer", "rank", "worker", "server", "up", DATABASE)

_FLOW_MODULE = "shardmill.flows.flow_runs.worker_process"
_JOB_MODULES = {
    "shardmill.beam_jobs.prepare": "job",
    "shardmill.training.train": "trainer",
    "shardmill.training.train_rank": "rank",
}


def by_kind(processes: list[psutil.Process]) -> dict[str, list[psutil.Process]]:
    """The processes of a platform that may be killed, by kind."""
    kinds: dict[str, list[psutil.Process]] = {kind: [] for kind in KINDS}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            kind = kind_of(process)
            if kind is not None:
                kinds[kind].append(process)
    return kinds


def kind_of(process: psutil.Process) -> str | None:
    """The kind of a process of a platform; None for one that is not killed."""
    words = process.cmdline()
    if _FLOW_MODULE in words:
        return "flow"
    if "shardmill.flows.server.service_process" in words:
        return next((kind for kind in ("worker", "server") if kind in words), None)
    if "shardmill.flows.cli" in words:
        return "up" if "up" in words and "--detach" not in words else None
    for module, kind in _JOB_MODULES.items():
        if module in words:
            return kind
    return "image worker" if _is_image_worker(process) else None


def _is_image_worker(process: psutil.Process) -> bool:
    """Tell whether a process was forked, by the fork server of a job, to work on images."""
    above = process.parent()
    if above is None or "multiprocessing.forkserver" not in " ".join(above.cmdline()):
        return False
    job = above.parent()
    return job is not None and "shardmill.beam_jobs.prepare" in job.cmdline()
