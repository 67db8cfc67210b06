"""Start worker processes of a ``DataLoader``, and prepare readers and makers for one."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext, SpawnContext, SpawnProcess

import cv2

from shardmill.infra.processes.process import die_with_process
from shardmill.training.reading.batch_maker import BatchMaker
from shardmill.training.reading.records.record_reader import RecordReader

_SAFE_PATH = "PYTHONSAFEPATH"  # the same as the interpreter's option -P


@contextlib.contextmanager
def _without_working_folder() -> Iterator[None]:
    """Let interpreters that are started in the block begin without the working folder on their path."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


class _SpawnedWorker(SpawnProcess):
    def start(self) -> None:
        """Start the process, which soon takes the path of this one."""
        with _without_working_folder():
            super().start()


class _Spawning(SpawnContext):
    Process = _SpawnedWorker


def context_of(method: str | None) -> BaseContext | str | None:
    """Return what a ``DataLoader`` takes for a way to start workers.

    A spawned worker is a new interpreter. Under a program that was started without ``-P``, a ``types.py`` of
    the user in the working folder would end it.
    """
    if method != "spawn":
        return method
    with _without_working_folder():
        resource_tracker.ensure_running()  # otherwise the first queue starts this interpreter
    return _Spawning()


def follow_loader(_worker_id: int) -> None:
    """End this worker with the process of its loader: the ``worker_init_fn`` of a ``DataLoader``.

    PyTorch's own check waits for the worker's parent to change after the worker is ready. So it misses a
    loader that was killed earlier, and every loader whose workers are children of a fork server.
    """
    loader = multiprocessing.parent_process()
    if loader is not None and loader.pid is not None:
        die_with_process(loader.pid)


def in_worker(maker: BatchMaker) -> BatchMaker:
    """Return ``maker`` for this worker process, with one thread, and locks, buffers and files of its own."""
    in_worker = copy.copy(maker)
    in_worker.threads = 1
    in_worker.records = records_in_worker(maker.records)
    return in_worker


def records_in_worker(records: RecordReader) -> RecordReader:
    """Return ``records`` for this worker process.

    A fork copies locks in their state, and no threads. So objects with either are made anew; the tables stay
    in memory that all processes share.
    """
    # Not 1: OpenCV would wait for its threads to end, and a fork does not have them.
    cv2.setNumThreads(0)
    return records.reopened()
