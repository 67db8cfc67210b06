"""What a command cost: wall and CPU seconds, and the largest memory, of its whole process tree."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_SAMPLE_SECONDS = 0.2
_LAST_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one command.

    Attributes:
        wall_seconds: from its start to its end.
        cpu_seconds: user and system, of it and of all its descendants that were waited for.
        peak_bytes: largest memory of its processes together, as sampled; what they share counts once (PSS).
        output: what it printed on standard output.
    """

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


def run_measured(argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end.

    Args:
        argv: the command.
        cwd: its working folder.
        env: variables on top of this process's own.

    Raises:
        RuntimeError: it failed; says what it said last on standard error.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        before, began = _cpu_seconds(), time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=cwd, env={**os.environ, **(env or {})}, stdout=output, stderr=errors
        )
        peak = 0
        while process.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SAMPLE_SECONDS)
            peak = max(peak, _memory_of_tree(process.pid))
        wall, cpu = time.perf_counter() - began, _cpu_seconds() - before
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            said = errors.read().decode(errors="replace")[-_LAST_CHARACTERS:]
            raise RuntimeError(f"{' '.join(argv)} ended with status {process.returncode}:\n{said}")
        return Cost(wall, cpu, peak, output.read().decode(errors="replace"))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory_of_tree(pid: int) -> int:
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    return sum(_memory_of(process.pid) for process in processes)


def _memory_of(pid: int) -> int:
    with contextlib.suppress(OSError):  # it ended meanwhile
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
