"""Beam's job servers: their errors, cancelling, and the local one of Prism.

The program of Prism is started for a pipeline, on ports of this machine, and ended then. Beam would download
it. Here its path is given, so nothing comes from the network.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shardmill.beam_jobs.execution.task import recover_fault
from shardmill.infra.errors import GO_ON, ConfigError, EnvironmentFault
from shardmill.infra.processes.ports import free_port
from shardmill.infra.processes.process import die_at_once_with_parent

_SAID_CHARACTERS = 600
_CANCEL_SECONDS = 3.0
_READER = "wait_until_finish_read"  # Beam's thread for the messages of a pipeline


@contextlib.contextmanager
def job_server_faults() -> Iterator[None]:
    """Raise the error of ours that a job server's error carries, or else ``EnvironmentFault``."""
    import grpc

    try:
        with _lost_streams_unsaid():
            yield
    except (RuntimeError, grpc.RpcError, grpc.FutureTimeoutError) as error:
        fault = recover_fault(error)
        if fault is not None:
            raise fault from error
        if isinstance(error, grpc.RpcError):
            message = f"the job server does not answer: {_words(error.details())}"
        else:
            message = f"the job server ended the pipeline: {_words(str(error)) or type(error).__name__}"
        raise EnvironmentFault(message, f"see its logs and those of the workers, then {GO_ON}") from error


def _words(text: str | None) -> str:
    return " ".join((text or "").split())[:_SAID_CHARACTERS]


@contextlib.contextmanager
def _lost_streams_unsaid() -> Iterator[None]:
    """Keep Beam's message thread from printing that the job server is gone: the caller gets the error too."""
    import grpc

    before = threading.excepthook

    def print_others(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, grpc.RpcError):
            before(arguments)

    threading.excepthook = print_others
    try:
        yield
    finally:
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            if thread.name == _READER:
                thread.join(_CANCEL_SECONDS)
        threading.excepthook = before


def cancel(result: Any) -> None:
    """Ask the job server to cancel a pipeline. Wait only briefly, because the server may be what failed."""

    def ask() -> None:
        with contextlib.suppress(Exception):
            result.cancel()

    asking = threading.Thread(target=ask, name="cancel", daemon=True)
    asking.start()
    asking.join(_CANCEL_SECONDS)


_START_SECONDS = 60.0


_END_SECONDS = 10.0


def check_prism(program: str | None) -> Path:
    """Return the path of the program.

    Raises:
        ConfigError: it is not given, or is no program.
    """
    if program is None:
        raise ConfigError(
            'runner.name = "prism" needs runner.prism_program, the path of the program',
            "build it with: go install github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0",
        )
    path = Path(program).expanduser()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise ConfigError(
            f"runner.prism_program = {program!r} is no program", "give the path of Beam's prism"
        )
    return path


@contextmanager
def running_prism(program: str | None, given: Collection[str]) -> Iterator[list[str]]:
    """Start Prism for the block, and give it the options of Beam that lead there.

    Args:
        program: path of the program.
        given: names of the options that the user gives.

    Raises:
        ConfigError: there is no such program. EnvironmentFault: it does not start.
    """
    path, port = check_prism(program), free_port()
    command = [str(path), f"-job_port={port}", "-serve_http=false", "-log_level=error"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=quiet, stdout=quiet, stderr=quiet, preexec_fn=die_at_once_with_parent
    ) as process:
        try:
            _wait_until_it_listens(process, port)
            # Workers in this process: the pool of processes does the work, as with the embedded runner.
            workers = [] if "environment_type" in given else ["--environment_type=LOOPBACK"]
            yield [f"--job_endpoint=localhost:{port}", *workers]
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("localhost", port), timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise EnvironmentFault(f"Prism does not listen at port {port}", f"see whether it starts, then {GO_ON}")
