"""One measurement of a reader: a process that makes its first batch, warms up, and is then measured."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from tests.benchmarks.measuring.process_tree import memory_of_tree

REPOSITORY = Path(__file__).parents[3]
_SAMPLE_SECONDS = 0.5
_END_SECONDS = 5
_START_SECONDS = 240  # imports, compilation and the first batch, on a busy machine
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": str(REPOSITORY),
    "PYTHONWARNINGS": "ignore",
}


class ReaderFailed(Exception):
    """A reader ended before it was measured; says what it said last."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One measurement.

    Attributes:
        images_per_second: while it was measured.
        cpu_micros: processor time an image (µs), of the process and its workers.
        first_seconds: from after the imports to the first batch.
        peak_pss_bytes: of the process and its workers.
        seen: what it said of the images that it read, if it was asked.
    """

    images_per_second: float
    cpu_micros: float
    first_seconds: float
    peak_pss_bytes: int
    seen: dict[str, Any]


def measure(argv: Sequence[str], env: Mapping[str, str]) -> Rate:
    """Run a reader once.

    Raises:
        ReaderFailed: it ended early.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv,
            cwd=REPOSITORY,
            env={**os.environ, **QUIET, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # so that its workers end with it
        )
        watchdog = threading.Timer(_START_SECONDS, process.kill)
        watchdog.start()
        try:
            return _measured(process)
        except ReaderFailed:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()
            raise ReaderFailed(said[-1] if said else "it said nothing") from None
        finally:
            watchdog.cancel()
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let it end by itself, which it does when its input ends; then end its workers.

    Gently at first: Python's resource tracker heeds no SIGTERM, and clears away what the others shared.
    """
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    deadline = time.monotonic() + _END_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)  # raises when nobody is left
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _measured(process: subprocess.Popen[bytes]) -> Rate:
    assert process.stdout is not None
    first, seen = _event(process.stdout, "first"), {}
    while (event := _event(process.stdout))["event"] != "begin":
        seen = event
    cpu = cpu_of_tree(process.pid)
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(_SAMPLE_SECONDS):
            peak = max(peak, memory_of_tree(process.pid)["Pss:"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        end = _event(process.stdout, "end")
        cpu = cpu_of_tree(process.pid) - cpu
    finally:
        over.set()
        watcher.join()
    images = end["images"]
    return Rate(images / end["seconds"], cpu / images * 1e6, first["seconds"], peak, seen)


def _event(lines: IO[bytes], name: str = "") -> dict[str, Any]:
    """The next event, of that name if one is given; libraries may print other things between them."""
    for line in lines:
        if line.startswith(b'{"event": '):
            event: dict[str, Any] = json.loads(line)
            if name in ("", event["event"]):
                return event
    raise ReaderFailed


def cpu_of_tree(pid: int) -> float:
    """Processor time of a process and its living descendants (seconds)."""
    root = psutil.Process(pid)
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
