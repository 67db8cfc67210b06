"""Measure a command: wall and CPU seconds, and the largest memory, of its whole process tree."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from shardmill.infra.processes.trees import wait_for_end

_SAMPLE_SECONDS = 0.2
# Where time is measured: the system takes 20 ms to divide what five processes share, and holds them up.
RARELY_SECONDS = 1.0
_LAST_CHARACTERS = 2000
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one command.

    Attributes:
        wall_seconds: from its start to its end.
        cpu_seconds: user and system, of it and of all its descendants.
        peak_pss_bytes: largest memory of its processes together, as sampled; what several processes share is
            divided among them, strangers included.
        peak_rss_bytes: likewise, but what is shared counts for each process that has it.
        output: what it printed on standard output.
    """

    wall_seconds: float
    cpu_seconds: float
    peak_pss_bytes: int
    peak_rss_bytes: int
    output: str


def run_measured(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    sample_seconds: float = _SAMPLE_SECONDS,
) -> Cost:
    """Run a command to its end.

    Args:
        argv: the command.
        cwd: its working folder.
        env: variables on top of this process's own.
        sample_seconds: between two looks at its memory.

    Raises:
        RuntimeError: it failed; says what it said last on standard error.
    """
    _adopt_orphans()
    others = set(psutil.Process().children())
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        before, began = _cpu_seconds(), time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=cwd, env={**os.environ, **(env or {})}, stdout=output, stderr=errors
        )
        peaks = {"Pss:": 0, "Rss:": 0}
        while not wait_for_end(process, sample_seconds):
            for name, now in memory_of_tree(process.pid).items():
                peaks[name] = max(peaks[name], now)
        wall = time.perf_counter() - began
        _wait_for_orphans(others)
        cpu = _cpu_seconds() - before
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            said = errors.read().decode(errors="replace")[-_LAST_CHARACTERS:]
            raise RuntimeError(f"{' '.join(argv)} ended with status {process.returncode}:\n{said}")
        said = output.read().decode(errors="replace")
        return Cost(wall, cpu, peaks["Pss:"], peaks["Rss:"], said)


def _adopt_orphans() -> None:
    """Become the parent of descendants whose parent ended, such as the fork server of prepare (Linux).

    The system counts the processor time of a process only for the parent that waits for its end.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _wait_for_orphans(others: set[psutil.Process]) -> None:
    """Wait for the end of all children of this process but ``others``."""
    while orphans := set(psutil.Process().children()) - others:
        for orphan in orphans:
            os.waitpid(orphan.pid, 0)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_of_tree(pid: int) -> Counter[str]:
    """Name of a kind of memory in the kernel's words -> bytes."""
    memory: Counter[str] = Counter()
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return memory
    for process in processes:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss:", "Rss:")):
                    name, kibibytes, _ = line.split()
                    memory[name] += int(kibibytes) << 10
    return memory
