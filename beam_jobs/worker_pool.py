"""The command ``python -m shardmill.beam_jobs.worker_pool``: Python workers for the TaskManager beside it.

Runs until SIGTERM or Ctrl-C; its workers end with it, also when it is killed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence

from shardmill.infra.errors import Cancelled
from shardmill.infra.processes.process import exit_at_once, run_main

DEFAULT_ADDRESS = "localhost:50000"


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "python -m shardmill.beam_jobs.worker_pool",
        description="Start Python workers for the Flink TaskManager on this machine or in this pod.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen", default=DEFAULT_ADDRESS, metavar="HOST:PORT", help=f"default: {DEFAULT_ADDRESS}"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(level=logging.ERROR)
    from shardmill.beam_jobs.execution.workers import serve_workers

    try:
        serve_workers(arguments.listen, _say)
    except Cancelled:
        _say("stopped")
    return 0


def _say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    exit_at_once(run_main(main))
