"""The pool: gives items to processes, watches them, and replaces those that die, hang or grow too large."""

from __future__ import annotations

import queue
import sys
import tempfile
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import wait
from pathlib import Path

from shardmill.beam_jobs.execution.pool.limits import Watch
from shardmill.beam_jobs.execution.pool.notes import Note
from shardmill.beam_jobs.execution.pool.shares import MemoryBudget, open_budget
from shardmill.beam_jobs.execution.pool.starting import Answer, serve
from shardmill.beam_jobs.execution.task import Limits, Task
from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.errors import ChildDied, EnvironmentFault
from shardmill.infra.processes.process import describe_status
from shardmill.infra.progress import log

MAX_FAILURES = 3  # failures of one item without a file to blame

_LOOK_SECONDS = 0.2

# Pools of this process that are open.
_open_pools: list[Pool] = []

# Files are tried alone one at a time, also where several pools are in one process: memory may be short.
_trying = threading.Lock()


class ItemFailed(RuntimeError):
    """Error of a worker process, as text; a ShardmillError is packed in it (execution.errors)."""


class _PoolClosed(Exception):
    """The pool was closed while an item was being processed."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why an item was not finished.

    Attributes:
        how: in words, after "a worker process".
        file: processed at that time.
        out_of_memory: a library got no memory.
    """

    how: str
    file: FileRef | None
    out_of_memory: bool = False


def files_in_progress(task_name: str) -> dict[int, int]:
    """Return the items that pools of this process are doing, and how many files of each are done.

    An item that a process has done stays until the process begins another one. Pools on other machines, as
    those of the portable runner, are not seen.
    """
    pools = [pool for pool in list(_open_pools) if pool.task_name == task_name]
    return dict(found for pool in pools for lane in pool.lanes if (found := lane.note.files_done()))


# Number of an item, a number that no other entry has, and its future; None: there are no more items.
_Entry = tuple[int, int, Future[float] | None]


class Pool:
    """Processes that do the items of one task, of those that wait the lowest number first.

    Args:
        task: it is opened in each process.
        processes: how many items are processed at a time.
        budget: memory of the images that they decode; None: that of the machine.
    """

    def __init__(self, task: Task, processes: int, budget: MemoryBudget | None = None) -> None:
        budget = budget or MemoryBudget.of_machine()
        open_budget(budget)  # for files that are tried alone
        self._items: queue.PriorityQueue[_Entry] = queue.PriorityQueue()
        self._entries = count()
        self._folder = tempfile.TemporaryDirectory(prefix="shardmill-pool-")
        self.task_name = task.name
        self.lanes = [_Lane(task, Path(self._folder.name, str(lane)), budget) for lane in range(processes)]
        self._threads = [
            threading.Thread(target=lane.run, args=(self._items,), name="pool", daemon=True)
            for lane in self.lanes
        ]
        _open_pools.append(self)
        for thread in self._threads:
            thread.start()

    def submit(self, item: int) -> Future[float]:
        """Have an item done as soon as a process is free; the result is its processor time (seconds).

        The future raises ItemFailed, or a ShardmillError of the pool itself.
        """
        future: Future[float] = Future()
        self._items.put((item, next(self._entries), future))
        return future

    def close(self) -> None:
        """End all processes at once, and drop the items that have not begun."""
        _open_pools.remove(self)
        for lane in self.lanes:
            lane.close()
        for _ in self._threads:
            self._items.put((sys.maxsize, next(self._entries), None))
        for thread in self._threads:
            thread.join()
        self._folder.cleanup()


class _Lane:
    """One process at a time, with the items that it does."""

    def __init__(self, task: Task, note_path: Path, budget: MemoryBudget) -> None:
        self._task = task
        self._note_path = note_path
        self._budget = budget
        self.note = Note.create(note_path)
        self._process: _PoolProcess | None = None
        self._closing = threading.Event()

    def run(self, items: queue.PriorityQueue[_Entry]) -> None:
        """Do items until there are no more; runs on a thread of its own."""
        while True:
            item, _, future = items.get()
            if future is None:
                break
            if self._closing.is_set() or not future.set_running_or_notify_cancel():
                future.cancel()
                continue
            try:
                future.set_result(self._do(item))
            except Exception as error:  # noqa: BLE001  (raised where the result is asked for)
                future.set_exception(error)
        self._end_process()

    def close(self) -> None:
        """Have the thread end its process at once."""
        self._closing.set()

    def _do(self, item: int) -> float:
        """Do an item, in as many processes as it takes; return its processor time (seconds)."""
        failures = 0
        culprits = set()
        while True:
            outcome = self._attempt(item, patience=2**failures)
            if isinstance(outcome, Answer):
                if outcome.error is not None:
                    raise ItemFailed(outcome.error)
                return outcome.cpu_seconds
            self._end_process()
            if self._closing.is_set():
                raise _PoolClosed
            file = outcome.file
            if file is not None and file not in culprits and self._find_culprit(file, outcome):
                culprits.add(file)
                failures = 0
                continue
            failures += 1
            if failures == MAX_FAILURES:
                raise _giving_up(outcome)

    def _attempt(self, item: int, patience: int) -> Answer | _Failure:
        """Do an item once.

        Args:
            item: work item of the task.
            patience: how many times its limits a file may take.
        """
        if self._process is None:
            self.note.end()  # left by a process that died
            self._process = _PoolProcess(self._task, self.note, self._note_path, self._budget)
        return self._process.do(item, patience, self._closing)

    def _find_culprit(self, file: FileRef, failure: _Failure) -> bool:
        log(
            f"a worker process {failure.how} while processing {file.uri}; trying that file alone",
            level="warning",
        )
        with _trying:
            found = self._task.find_culprit(file)
        if not found:
            log(f"{file.uri} alone causes no failure; its block is done again", level="warning")
        return found

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _PoolProcess:
    """A process of the pool, as its lane sees it."""

    def __init__(self, task: Task, note: Note, note_path: Path, budget: MemoryBudget) -> None:
        self._task, self._limits = task, task.limits
        self._note = note
        self._process, self._connection = serve(task, note_path, budget)

    def do(self, item: int, patience: int, closing: threading.Event) -> Answer | _Failure:
        """Have it do an item, and end it if it takes too much or ``closing`` is set."""
        try:
            self._connection.send(item)
            failure = self._watch(patience, closing)
            if failure is not None:
                return failure
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            status = self._process.end()
            return _Failure(f"ended by {describe_status(status)}", self._file())
        if answer.out_of_memory is not None:
            return _Failure("ran out of memory", answer.out_of_memory, out_of_memory=True)
        return answer

    def _watch(self, patience: int, closing: threading.Event) -> _Failure | None:
        """Wait until the process answers or dies; return why we ended it, or None."""
        watch = None
        if self._limits is not None:
            limits = Limits(self._limits.seconds * patience, self._limits.memory_bytes * patience)
            watch = Watch(self._process.pid, limits)
        while not wait([self._connection, self._process.sentinel], _LOOK_SECONDS):
            if closing.is_set():
                return _Failure("was ended", None)
            excess = watch.excess(self._note.since()) if watch is not None else None
            if excess is not None:
                self._process.end()
                return _Failure(f"was ended because it took too much {excess}", self._file())
        return None

    def _file(self) -> FileRef | None:
        """Return the file that the process was processing when it ended."""
        place = self._note.in_progress()
        return None if place is None else self._task.file_of(*place)

    def end(self) -> None:
        """Kill the process if it still runs, and close the connection."""
        self._connection.close()
        self._process.end()


def _giving_up(failure: _Failure) -> ChildDied | EnvironmentFault:
    uri = failure.file.uri if failure.file else None
    last = f", last while processing {uri}; {uri} alone causes no failure" if uri else ""
    if failure.out_of_memory:
        return EnvironmentFault(
            f"memory ran out {MAX_FAILURES} times in a row{last}",
            "give the job more memory, or lower runner.processes",
        )
    return ChildDied(
        f"a worker process {failure.how} {MAX_FAILURES} times in a row{last}",
        "run again with runner.processes=1: a library may fail beside others, or memory may be bad",
    )
