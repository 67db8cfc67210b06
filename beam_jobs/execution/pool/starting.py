"""Processes that are forked from a server process that has the libraries loaded, and what they do.

A process forked from the server starts in milliseconds, shares the memory of the libraries, and inherits
no threads of this one. It dies with the server, and the server with this process. A process of the pool
does one item after the other until the pool closes the connection (``serve``). The server starts one process
at a time, so those of a pool are started ahead, while this process still finds out what they will do.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from shardmill.beam_jobs.execution.pool.limits import MemoryRanOut
from shardmill.beam_jobs.execution.pool.notes import open_own_note
from shardmill.beam_jobs.execution.pool.shares import MemoryBudget, open_budget
from shardmill.beam_jobs.execution.task import CarriedFault, Task, carry_faults
from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.process import die_at_once_with_parent

# Loaded by the server, so that no forked process loads them again. Names, as these folders stand above this
# one.
_LOADED_AHEAD = [
    "shardmill.beam_jobs.execution.pool.fork_server",
    "shardmill.beam_jobs.encode.block_task",
    "shardmill.beam_jobs.assemble.shard_task",
    "shardmill.beam_jobs.report.gallery",
    # What the main module of prepare loads, which each process executes again.
    "shardmill.infra.lineage",
    "shardmill.infra.processes.job_command",
    "shardmill.infra.whole_job",
    "numpy.ma",  # loaded by the first array that becomes one of Arrow
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one item.

    Attributes:
        cpu_seconds: processor time that it took.
        error: the error that ended it, as text; None if the item is done.
        out_of_memory: the file for which a library got no memory.
    """

    cpu_seconds: float
    error: str | None = None
    out_of_memory: FileRef | None = None


def _serve(connection: Connection) -> None:
    """Receive a task, do the items that arrive, and answer each, until the connection closes."""
    detach_process()
    try:
        os.environ.update(connection.recv())  # with credentials of stores, which the server may lack
        task, note_path, budget = connection.recv()
    except EOFError:
        return
    note = open_own_note(note_path)
    open_budget(budget)
    is_open = False
    while True:
        try:
            item: int = connection.recv()
        except EOFError:
            return
        note.begin_item(item)
        started = time.process_time()
        error = out_of_memory = None
        try:
            with carry_faults():
                if not is_open:
                    task.open()
                    is_open = True
                task.do(item)
        except CarriedFault as fault:
            error = str(fault)
        except MemoryRanOut as short:
            out_of_memory = short.file
        except Exception:  # noqa: BLE001  (a defect: it is raised where the pool is)
            error = traceback.format_exc()
        connection.send(Answer(time.process_time() - started, error, out_of_memory))


_Serving = tuple[ForkedProcess, Connection]

# Processes that wait for a task, or will. One thread orders them, as each order waits for the server.
_ahead: deque[Future[_Serving]] = deque()
_orders = ThreadPoolExecutor(1, "start-ahead")


def start_ahead(processes: int) -> None:
    """Start so many processes for the next pools, while this process goes on."""
    _ahead.extend(_orders.submit(_start_serving) for _ in range(processes - len(_ahead)))


def end_ahead() -> None:
    """End the processes that were started ahead, and that no pool has taken."""
    while _ahead:
        order = _ahead.popleft()
        with contextlib.suppress(EnvironmentFault):
            if not order.cancel():
                process, connection = order.result()
                connection.close()
                process.end()


def serve(task: Task, note_path: Path, budget: MemoryBudget) -> _Serving:
    """Return a process that does the items of a task, and the connection that takes them.

    Raises:
        EnvironmentFault: it cannot be started.
    """

    def send(connection: Connection) -> None:
        connection.send(dict(os.environ))
        connection.send((task, note_path, budget))

    with contextlib.suppress(IndexError):
        while True:
            process, connection = _ahead.popleft().result()
            with contextlib.suppress(OSError):
                send(connection)
                return process, connection
            connection.close()
            process.end()  # it died while it waited
    process, connection = _start_serving()
    with contextlib.suppress(OSError):  # that it died at once shows at its first item
        send(connection)
    return process, connection


def _start_serving() -> _Serving:
    ours, theirs = pipe()
    process = ForkedProcess(_serve, (theirs,), "pool")
    theirs.close()
    return process, ours


def detach_process() -> None:
    """Let this process die with its server, ignore stop signals, and print nothing.

    Stop signals go to the whole process group, and the process that owns the pool decides what they mean.
    What libraries in C print about a damaged image is neither progress nor a result.
    """
    die_at_once_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
