"""Python workers of a cluster, and the pool beside each TaskManager that starts and ends them.

The pool serves Beam's environment type EXTERNAL; ``python -m shardmill.beam_jobs.execution.workers`` is a
worker. Beam has such a pool too (``worker_pool_main``). It listens on all interfaces without authentication,
starts whatever ``python`` is first on PATH, reads nobody's output until a worker blocks on it, leaves its
workers behind when it is killed, and forgets a worker when another one of the same name is asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import queue
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2 as fn_api
from apache_beam.portability.api import beam_fn_api_pb2_grpc as fn_api_grpc

from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.infra.processes.job_command import python_module
from shardmill.infra.processes.ports import is_loopback
from shardmill.infra.processes.process import DEFECT, die_at_once_with_parent, exit_at_once
from shardmill.infra.processes.trees import kill_tree, wait_for_end

if TYPE_CHECKING:
    _Servicer = object
else:
    _Servicer = fn_api_grpc.BeamFnExternalWorkerPoolServicer

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 2.0
_CALLS_AT_A_TIME = 4


def serve_workers(address: str, say: Callable[[str], None]) -> None:
    """Start and end workers as asked, until an exception (``Cancelled`` of a signal) ends it and them.

    Call it on the main thread: the kernel ends a worker with the thread that started it.

    Args:
        address: HOST:PORT to listen at; a loopback address, since anyone who reaches it can start processes.
        say: called with a line for each change.

    Raises:
        ConfigError: the address is not one of loopback. EnvironmentFault: it is taken.
    """
    check_loopback(address)
    pool = _WorkerPool(say)
    # Without so_reuseport=0 a second pool at the same address would start, and get half of the calls.
    server = grpc.server(ThreadPoolExecutor(_CALLS_AT_A_TIME), options=[("grpc.so_reuseport", 0)])
    fn_api_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise EnvironmentFault(f"cannot listen at {address}: {error}", "choose another port") from error
    server.start()
    say(f"listening at {address} for a TaskManager")
    try:
        while True:
            pool.take_turn(_LOOK_SECONDS)
    finally:
        server.stop(0)
        pool.close()


def check_loopback(address: str) -> None:
    """Check that an address is HOST:PORT with a loopback host.

    Raises:
        ConfigError: it is not.
    """
    host, _, port = address.rpartition(":")
    if not is_loopback(host) or not port.isdigit():
        raise ConfigError(
            f"{address}: the pool listens on loopback only, as anyone who reaches it can start processes",
            "give for example localhost:50000, and run the pool where its TaskManager runs",
        )


class _WorkerPool(_Servicer):
    """Workers by their id. All of them start on the thread that takes turns."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], Future[None]]] = queue.SimpleQueue()
        self._workers: dict[str, subprocess.Popen[bytes]] = {}

    def StartWorker(self, request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: N802  (of Beam)
        """Start a worker, and answer when it is ready.

        One of the same id is ended first, as the TaskManager that asked for it is gone. A worker that dies
        before it is ready is an error; without it the TaskManager would wait for ever.
        """
        worker_id, control = request.worker_id, request.control_endpoint.url
        is_ready, ready = os.pipe()
        try:
            error = self._in_turn(lambda: self._start(worker_id, control, ready))
        finally:
            os.close(ready)
        with os.fdopen(is_ready, "rb") as stream:
            if not error and not stream.read(1):
                error = f"worker {worker_id} died while it was starting; see the log of the worker pool"
        return fn_api.StartWorkerResponse(error=error)

    def StopWorker(self, request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: N802  (Beam's name)
        """End a worker."""
        worker_id = request.worker_id
        return fn_api.StopWorkerResponse(error=self._in_turn(lambda: self._end(worker_id)))

    def _in_turn(self, call: Callable[[], None]) -> str:
        """Let ``take_turn`` make a call; return its error, or nothing."""
        done: Future[None] = Future()
        self._calls.put((call, done))
        error = done.exception()
        return "" if error is None else f"{type(error).__name__}: {error}"

    def take_turn(self, seconds: float) -> None:
        """Wait for a call for so long at most, and make it; notice workers that died."""
        with contextlib.suppress(queue.Empty):
            call, done = self._calls.get(timeout=seconds)
            try:
                call()
            except OSError as error:
                done.set_exception(error)
            else:
                done.set_result(None)
        for worker_id, process in list(self._workers.items()):
            if wait_for_end(process, 0):
                self._say(f"worker {worker_id} (process {process.pid}) ended with {process.returncode}")
                del self._workers[worker_id]

    def _start(self, worker_id: str, control: str, ready: int) -> None:
        self._end(worker_id)
        program = python_module("shardmill.beam_jobs.execution.workers")
        arguments = {"--id": worker_id, "--control": control, "--pool": os.getpid(), "--ready": ready}
        # Its output goes where this process's goes, so nobody has to read a pipe.
        process = subprocess.Popen(
            [*program, *(str(word) for pair in arguments.items() for word in pair)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
            pass_fds=[ready],
        )
        self._workers[worker_id] = process
        self._say(f"worker {worker_id} started as process {process.pid}, controlled by {control}")

    def _end(self, worker_id: str) -> None:
        process = self._workers.pop(worker_id, None)
        if process is not None:
            kill_tree(process, _GRACE_SECONDS)
            self._say(f"worker {worker_id} (process {process.pid}) was ended")

    def close(self) -> None:
        """End all workers."""
        for worker_id in list(self._workers):
            self._end(worker_id)


def main() -> int:
    """Run a worker until its TaskManager closes the connection; returns its exit status."""
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
