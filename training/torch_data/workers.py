"""Prepare readers and makers for a worker process of a ``DataLoader``."""

from __future__ import annotations

import copy

import cv2

from training.reading.batches.maker import BatchMaker
from training.reading.records.record_reader import RecordReader


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
