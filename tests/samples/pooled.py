"""A job with a pool whose work writes down who did it, or fails as it is told to."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from beam_jobs.config import RunnerConfig
from beam_jobs.pool import pool_cpu_seconds, pool_processes
from beam_jobs.runners import run_pipeline
from infra.errors import StorageError
from infra.process import exit_at_once, run_main

ATTENDANCE = "pid-"


class Written:
    """Writes the process that worked on a number into a file of its name."""

    name = "Written"

    def __init__(self, told: argparse.Namespace) -> None:
        self._told = told

    def open(self) -> None:
        """Sign in."""
        Path(self._told.folder, f"{ATTENDANCE}{os.getpid()}").write_text(str(os.getpid()))

    def do(self, number: int) -> None:
        """Write, or fail."""
        told = self._told
        if told.signal and number == told.numbers - 1:
            os.kill(os.getpid(), told.signal)
        if told.exit and number == told.numbers - 1:
            sys.exit(told.exit)
        if number == told.fail:
            raise StorageError(f"number {number} cannot be written", "make room")
        if number == told.defect:
            raise KeyError(f"no such number: {number}")
        if told.sleep:
            time.sleep(600)
        sum(range(200_000))
        Path(told.folder, str(number)).write_text(str(os.getpid()))

    def close(self) -> None:
        """Nothing was opened."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name in ("numbers", "processes", "signal", "exit"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("fail", "defect"):
        parser.add_argument(f"--{name}", type=int, default=-1)
    parser.add_argument("--sleep", action="store_true")
    told = parser.parse_args()
    with pool_processes(told.processes):
        run_pipeline(Written(told), range(told.numbers), RunnerConfig(workers=max(1, told.processes)))
        print(os.getpid(), pool_cpu_seconds())
    return 0


if __name__ == "__main__":
    exit_at_once(run_main(main))
