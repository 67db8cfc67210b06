"""The program of a Python worker: serves one TaskManager, and ends with it or with its pool."""

from __future__ import annotations

import argparse
import logging
import os
import traceback

from shardmill.infra.processes.process import DEFECT, die_at_once_with_parent, exit_at_once


def main() -> int:
    """Run the worker until its TaskManager closes the connection; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m shardmill.beam_jobs.execution.workers", allow_abbrev=False
    )
    parser.add_argument("--id", required=True, metavar="ID", help="name of the worker")
    parser.add_argument("--control", required=True, metavar="HOST:PORT", help="where it gets its orders")
    parser.add_argument("--pool", required=True, type=int, metavar="PID", help="process of its pool")
    parser.add_argument("--ready", required=True, type=int, metavar="FD", help="gets a byte at the start")
    arguments = parser.parse_args()
    die_at_once_with_parent()
    if os.getppid() != arguments.pool:
        return 0  # the pool died before
    logging.basicConfig(level=logging.ERROR)
    from apache_beam.runners.worker.sdk_worker import SdkHarness

    os.write(arguments.ready, b".")
    os.close(arguments.ready)
    try:
        # No state is kept in memory, and each bundle sends its data when it ends, as in Beam's own pool.
        harness = SdkHarness(
            arguments.control, worker_id=arguments.id, state_cache_size=0, data_buffer_time_limit_ms=-1
        )
        harness.run()
    except Exception:  # noqa: BLE001  (its end must not wait for threads of a bundle that nobody wants)
        traceback.print_exc()
        return DEFECT
    return 0


if __name__ == "__main__":
    exit_at_once(main())
