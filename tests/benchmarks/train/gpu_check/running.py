"""Run a part of the GPU check in a process of its own, which may hang or die without harm to the others."""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from shardmill.infra.processes.process import describe_status
from shardmill.infra.processes.trees import kill_tree
from tests.benchmarks.train.gpu_check.rows import Row

_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 1.0
_MOST_CHARACTERS = 4000


def run_part(
    name: str, argv: Sequence[str], folder: Path, seconds: float, env: Mapping[str, str]
) -> Iterator[Row]:
    """Yield the rows that a process prints as they come, and a last row if it fails or takes too long.

    Args:
        name: of the part.
        argv: the command.
        folder: its working folder.
        seconds: its time; then it and all its descendants are killed.
        env: its environment variables.
    """
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        try:
            yield from _rows(process, end)
            status = process.poll()
        finally:
            kill_tree(process, _GRACE_SECONDS)
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    if status == 0:
        return
    last = (said.splitlines() or ["it said nothing"])[-1]
    print(said[-_MOST_CHARACTERS:])
    reason = f"stopped after {seconds:.0f} s" if status is None else describe_status(status)
    yield Row(name, note=f"FAILED: {reason}: {last}")


def _rows(process: subprocess.Popen[bytes], end: float) -> Iterator[Row]:
    """Yield rows until the process ends or the time is up."""
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    while time.monotonic() < end:
        # Its descendants may keep its output open: its own end counts.
        has_ended = process.poll() is not None
        if has_ended:
            reader.join(_LOOK_SECONDS)
        try:
            line = lines.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            if has_ended:
                return
            continue
        if (row := Row.from_line(line)) is not None:
            yield row


def _read(stream: IO[bytes], lines: queue.Queue[str]) -> None:
    with stream:
        for line in stream:
            lines.put(line.decode(errors="replace"))
