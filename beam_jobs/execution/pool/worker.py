"""A process of the pool: does one item after the other until the pool closes the connection."""

from __future__ import annotations

import os
import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from shardmill.beam_jobs.execution.errors import CarriedFault, carry_faults
from shardmill.beam_jobs.execution.pool.limits import MemoryRanOut
from shardmill.beam_jobs.execution.pool.notes import open_own_note
from shardmill.beam_jobs.execution.task import Task
from shardmill.beam_jobs.schemas import FileRef
from shardmill.infra.processes.process import die_at_once_with_parent


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


def serve(connection: Connection, task: Task, note_path: Path) -> None:
    """Do the items that arrive, and answer each, until the connection closes."""
    detach_process()
    note = open_own_note(note_path)
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
