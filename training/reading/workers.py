"""Prepare readers and makers for a worker process of a ``DataLoader``."""

from __future__ import annotations

import copy
import multiprocessing

import cv2

from shardmill.infra.processes.process import die_with_process
from shardmill.training.reading.batches.maker import BatchMaker
from shardmill.training.reading.records.record_reader import RecordReader


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
