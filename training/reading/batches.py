"""Batches of an order's steps as numpy arrays: fetch, decode, crop, resize and vary, in a pool of threads.

The one way from a step to pixels: ``tf.data``, PyTorch and plain Python read through it, so all of them see
the same. Each row is a function of the step's plan alone; threads only divide the rows among themselves.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.errors import CorruptDataError
from infra.process import num_cpus
from training import augment as augmentation
from training.config.augment import AugmentSettings
from training.order import StepPlan
from training.reading.buffers import BufferPool
from training.reading.damage import without_rows
from training.reading.records import RecordReader
from training.reading.windows import Pixels, decode_window

# Rows that a thread takes at a time: many, so that handing them over costs little; and so few that the
# threads end together, each with several turns.
_MOST_ROWS, _LEAST_ROWS, _TURNS = 16, 4, 4


@dataclass(frozen=True, slots=True)
class Batch:
    """The examples of one step, or of one rank's slice of it.

    Attributes:
        images: uint8 [b, S, S, 3].
        labels: int32 [b].
        weights: float32 [b] (``StepPlan.weights``): 0 for padding.
        ordinals, positions: int64 [b], which records, and where in the epoch.
        epoch, step: where the run is.
    """

    images: Pixels
    labels: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    ordinals: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    epoch: int
    step: int


class BatchMaker:
    """Makes batches of one split's records. Safe for many threads; pickles without its threads."""

    def __init__(
        self,
        records: RecordReader,
        *,
        image_size: int,
        augment: AugmentSettings | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """Args:
        records: of the split.
        image_size: height and width of the images (pixels).
        augment: how examples are varied; None: the central square of each.
        seed: of the augmentation.
        threads: that decode; default: one for each CPU of this process. With 1, the caller's own.
        """
        self.records = records
        self.image_size = image_size
        self.augment = augment
        self.seed = seed
        self.threads = threads or num_cpus()
        self._start()

    def _start(self) -> None:
        self._buffers = BufferPool()
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def make(self, plan: StepPlan) -> Batch:
        """The batch of a step.

        Raises:
            CorruptDataError: names the record and its shard, of a damaged record that may not be left out.
        """
        self.records.reached(plan.epoch, plan.step)
        rows = plan.ordinals.size
        images = self._buffers.take((rows, self.image_size, self.image_size, 3))
        draws = self.draws(plan)

        at_a_time = min(max(rows // (_TURNS * self.threads), _LEAST_ROWS), _MOST_ROWS)

        def fill(start: int) -> list[int]:
            return self._fill(plan.ordinals[start : start + at_a_time], start, draws, images)

        starts = range(0, rows, at_a_time)
        if self.threads == 1:
            bad = [row for start in starts for row in fill(start)]
        else:
            bad = _finish([self._threads().submit(fill, start) for start in starts])
        if bad:
            plan, donor = without_rows(plan, bad)
            images[bad] = 0 if donor is None else images[donor]
        labels = self.records.table.label[plan.ordinals]
        return Batch(images, labels, plan.weights, plan.ordinals, plan.positions, plan.epoch, plan.step)

    def draws(self, plan: StepPlan) -> augmentation.Draws:
        table = self.records.table
        heights, widths = table.height[plan.ordinals], table.width[plan.ordinals]
        return augmentation.draw(
            self.augment, self.seed, plan.epoch, plan.positions, heights, widths, self.image_size
        )

    def _fill(
        self, ordinals: npt.NDArray[np.int64], start: int, draws: augmentation.Draws, images: Pixels
    ) -> list[int]:
        """Rows ``start`` … of ``images``; returns those whose records are damaged, and left out."""
        try:
            self._fill_whole(ordinals, start, draws, images)
        except CorruptDataError:
            if not self.records.bad.limit:
                raise
        else:
            return []
        bad = []
        for row, ordinal in enumerate(ordinals, start):
            try:
                self._fill_whole(ordinals[row - start : row - start + 1], row, draws, images)
            except CorruptDataError as error:
                self.records.leave_out(int(ordinal), error)
                bad.append(row)
        return bad

    def _fill_whole(
        self, ordinals: npt.NDArray[np.int64], start: int, draws: augmentation.Draws, images: Pixels
    ) -> None:
        encoding = self.records.image_encoding
        windows = draws.windows[start : start + ordinals.size].tolist()
        for row, stored in enumerate(self.records.read_images(ordinals), start):
            try:
                decode_window(stored.image, encoding, stored.shape, windows[row - start], images[row])
            except CorruptDataError as error:
                raise self.records.named(int(ordinals[row - start]), error) from error
            augmentation.vary(images[row], draws, row)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, "shardmill-batch")
            return self._pool

    def __getstate__(self) -> dict[str, Any]:
        kept = ("records", "image_size", "augment", "seed", "threads")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(cancel_futures=True)
                self._pool = None


def _finish(tasks: list[Future[list[int]]]) -> list[int]:
    """All that the tasks return; on an error give up those that have not begun, and raise it."""
    try:
        return [row for task in tasks for row in task.result()]
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
