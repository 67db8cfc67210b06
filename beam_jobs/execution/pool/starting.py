"""Starts processes by forking a server process that has the libraries loaded.

A process forked from the server starts in milliseconds, shares the memory of the libraries, and inherits
no threads of this one. It dies with the server, and the server with this process.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from typing import Any

from shardmill.infra.errors import EnvironmentFault

# Loaded by the server, so that no forked process loads them again. Names, as these folders stand above this
# one.
_LOADED_AHEAD = [
    "shardmill.beam_jobs.execution.pool.fork_server",
    "shardmill.beam_jobs.encode.block_task",
    "shardmill.beam_jobs.assemble.shard_task",
    "shardmill.beam_jobs.report.gallery",
]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_LOADED_AHEAD)

# All processes start on this thread. The kernel ends the server when the thread that started it ends
# (PR_SET_PDEATHSIG), so that must be one that stays; and multiprocessing is not safe to use from several.
_starter = ThreadPoolExecutor(1, "fork-server")


def start_server() -> None:
    """Start the fork server where none runs; it loads its modules while this process goes on."""
    _starter.submit(forkserver.ensure_running).result()


class ForkedProcess:
    """A process that was forked from the server.

    Args:
        target: function to call with ``arguments``; importable by name.
        arguments: can be pickled; ends of a ``pipe`` too.
        name: name of the process, see ``multiprocessing.current_process``.

    Raises:
        EnvironmentFault: it cannot be started.
    """

    def __init__(self, target: Callable[..., None], arguments: Sequence[Any], name: str) -> None:
        self._process: BaseProcess = _context.Process(target=target, args=arguments, name=name, daemon=True)
        self._status: int | None = None
        _starter.submit(self._start).result()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.sentinel = self._process.sentinel

    def _start(self) -> None:
        try:
            self._process.start()
        except (OSError, EOFError):
            # The server was ended just now, by the system for instance. It is started again, once.
            try:
                self._process.start()
            except (OSError, EOFError) as error:
                raise EnvironmentFault(
                    f"a process cannot be started: {str(error) or type(error).__name__}",
                    "raise the limits on processes and memory, or lower runner.processes",
                ) from error

    def end(self) -> int:
        """Kill the process where it still runs; returns its exit status, negative if a signal ended it."""
        if self._status is None:
            self._status = _starter.submit(self._kill).result()
        return self._status

    def _kill(self) -> int:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        status = self._process.exitcode
        self._process.close()
        assert status is not None
        return status


def pipe() -> Any:
    """Two ends of a pipe that can be given to a process."""
    return _context.Pipe()
