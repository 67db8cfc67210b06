"""The job's side of the pool: forks the processes, lends them work, and dies as one of them died."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import FrameType
from typing import NoReturn

from beam_jobs.pool.serving import Answer, Request, serve
from beam_jobs.work import Work


class LentWorkFailed(RuntimeError):
    """What a process raised, as text; an error of ours is packed in it (beam_jobs.faults)."""


class _Worker:
    """One process of the pool."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self.connection = connection
        self.cpu_seconds = 0.0
        self._work_digest = ""
        self._status: int | None = None
        self._waiting = threading.Lock()

    def do(self, work: bytes, digest: str, number: int) -> None:
        """Have it do the work of a number.

        Args:
            work: the ``Work``, pickled.
            digest: of it.

        Raises:
            LentWorkFailed: the work could not be done. EOFError, OSError: the process is gone.
        """
        self.connection.send(Request(None if digest == self._work_digest else work, number))
        answer: Answer = self.connection.recv()
        self._work_digest = digest
        self.cpu_seconds += answer.cpu_seconds
        if answer.error is not None:
            self._work_digest = ""  # which may not have been opened
            raise LentWorkFailed(answer.error)

    def wait(self) -> int:
        """Wait for its end; returns its exit status, negative where a signal ended it."""
        with self._waiting:  # the system tells it once, and both who lent and who ends may ask
            if self._status is None:
                try:
                    self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                except ChildProcessError:  # whoever started the job ignores SIGCHLD: the system forgets
                    self._status = 1
            return self._status


class ProcessPool:
    """Forked processes, each of which does one piece of work at a time."""

    def __init__(self, count: int) -> None:
        gc.freeze()  # what is never looked at is never copied
        self._workers: list[_Worker] = []
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._closing = False
        self.threads = ThreadPoolExecutor(count, "pool")  # each waits for a process
        for _ in range(count):
            worker = self._fork()
            self._workers.append(worker)
            self._free.put(worker)

    def _fork(self) -> _Worker:
        ours, theirs = Pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            # Were another process to hold this end, none would notice that the job is gone.
            for worker in self._workers:
                worker.connection.close()
            ours.close()
            serve(theirs, parent)
        theirs.close()
        return _Worker(pid, ours)

    def do(self, work: bytes, digest: str, number: int) -> None:
        """Have the next free process do the work of a number.

        Args:
            work: the ``Work``, pickled.
            digest: of it.

        Raises:
            LentWorkFailed: the work could not be done.
        """
        worker = self._free.get()
        try:
            worker.do(work, digest, number)
        except (EOFError, OSError) as error:
            if self._closing:
                raise LentWorkFailed("the job ends") from error
            _die_as(worker.wait())
        finally:
            self._free.put(worker)

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the work took so far (seconds)."""
        return sum(worker.cpu_seconds for worker in self._workers)

    def end(self) -> None:
        """End all processes, whatever they are at, and wait until they are gone."""
        self._closing = True
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        for worker in self._workers:
            worker.wait()


def _die_as(code: int) -> NoReturn:
    """End this process as one of its own ended: who watches over the job need not know that it has a pool."""
    if code < 0:
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.raise_signal(-code)
    os._exit(code if code >= 0 else 128 - code)


class LentWork:
    """A work whose numbers are done in the pool, several at a time."""

    def __init__(self, work: Work, pool: ProcessPool) -> None:
        self._pickled = pickle.dumps(work)
        self._digest = hashlib.sha256(self._pickled).hexdigest()
        self._pool = pool
        self._begun: list[Future[None]] = []

    def begin(self, number: int) -> None:
        """Have the work of a number done as soon as a process is free."""
        self._begun.append(self._pool.threads.submit(self._pool.do, self._pickled, self._digest, number))

    def finish(self) -> None:
        """Wait for all that was begun.

        Raises:
            LentWorkFailed: one could not be done; what had not begun by then is left.
        """
        begun, self._begun = self._begun, []
        try:
            for done in as_completed(begun):
                done.result()
        finally:
            for left in begun:
                left.cancel()

    def close(self) -> None:
        """Nothing was opened here: the processes keep the work open for what comes next."""


_pool: ProcessPool | None = None


@contextlib.contextmanager
def pool_processes(count: int) -> Iterator[None]:
    """Have so many processes do the work of this one's pipelines.

    Call it on the main thread (it handles signals), before there are other busy ones.
    Without any process, and where a fork is not safe, the work is done where Beam calls for it.
    """
    global _pool
    if not count or sys.platform != "linux":
        yield
        return
    try:
        with _stops_held_back():
            _pool = ProcessPool(count)
        yield
    finally:
        pool, _pool = _pool, None
        if pool is not None:
            pool.end()


@contextlib.contextmanager
def _stops_held_back() -> Iterator[None]:
    """Heed SIGINT and SIGTERM only when the block ends.

    What their handlers raise would be lost where it meets a function that a library has called at each fork,
    and in a forked process it would unwind the job a second time. A mask does not help: the system then
    picks another thread of this process, and the handler runs in this one all the same.
    """
    arrived: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    handlers = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for held_back in arrived:
            signal.raise_signal(held_back)


def lend(work: Work) -> LentWork | None:
    """The work, to be done by the pool of this process; None where there is no pool."""
    return LentWork(work, _pool) if _pool is not None else None


def pool_cpu_seconds() -> float:
    """Processor time that the pool's work took so far (seconds)."""
    return _pool.cpu_seconds if _pool is not None else 0.0


def has_pool() -> bool:
    """Whether this process has a pool."""
    return _pool is not None
