"""What is different in a worker process of a ``DataLoader``."""

from __future__ import annotations

import copy

import cv2

from training.reading.batches import BatchMaker
from training.reading.records import RecordReader


def in_worker(maker: BatchMaker) -> BatchMaker:
    """``maker`` for this worker process: with one thread, and its own locks, buffers and open files."""
    own = copy.copy(maker)
    own.threads = 1
    own.records = records_in_worker(maker.records)
    return own


def records_in_worker(records: RecordReader) -> RecordReader:
    """``records`` for this worker process.

    A fork takes along locks as they were, and no threads. So what has either is made anew; the tables stay
    the parent's, in memory that all share.
    """
    # Not 1: that would have OpenCV wait for the end of its threads, which did not come along.
    cv2.setNumThreads(0)
    return records.reopened()
