"""The processes of a platform, by kind."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

DATABASE = "database"
KINDS = ("flow", "job", "image worker", "trainer", "rank", "worker", "server", "up", DATABASE)

_FLOW_MODULES = ("prefect.engine", "prefect.runner._workspace_supervisor")
_JOB_MODULES = {"beam_jobs.prepare": "job", "training.train": "trainer", "training.train_rank": "rank"}


def processes_of(home: Path) -> list[psutil.Process]:
    """All processes whose SHARDMILL_HOME is ``home``, but not this one and those above it."""
    own = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in own and process.environ().get("SHARDMILL_HOME") == str(home):
                found.append(process)
    return [process for process in found if lives(process)]


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
    if any(module in words for module in _FLOW_MODULES):
        return "flow"
    if "flows.server.service_process" in words:
        return next((kind for kind in ("worker", "server") if kind in words), None)
    if "flows.cli" in words:
        return "up" if "up" in words and "--detach" not in words else None
    for module, kind in _JOB_MODULES.items():
        if module in words:
            return kind
    return "image worker" if _is_image_worker(process) else None


def lives(process: psutil.Process) -> bool:
    """Tell whether a process runs: it may be gone, or wait for its parent to notice its end."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _is_image_worker(process: psutil.Process) -> bool:
    """Tell whether a process was forked, by the fork server of a job, to work on images."""
    above = process.parent()
    if above is None or "multiprocessing.forkserver" not in " ".join(above.cmdline()):
        return False
    job = above.parent()
    return job is not None and "beam_jobs.prepare" in job.cmdline()
