"""Beam's job server, as the command that gave it a pipeline sees it: its errors, and cancelling."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from shardmill.beam_jobs.execution.errors import recover_fault
from shardmill.infra.errors import GO_ON, EnvironmentFault

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
