"""Batches in memory, for benchmarks in which no reading counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class InMemory:
    """A pipeline that gives one batch again and again, and its own order.

    Attributes:
        batch: the rows of this process.
        steps_per_epoch: steps of an epoch.
        batch_size: rows of a replica; None: all.
        reader: the records whose classes the labels are; None: nobody asks for them.
    """

    batch: dict[str, Any]
    steps_per_epoch: int
    batch_size: int | None = None
    reader: Any = None

    seed = 0
    class_weights = None
    is_tuned = False

    def __post_init__(self) -> None:
        self.order = self
        self.global_batch_size = len(self.batch["labels"])
        self.num_records = self.steps_per_epoch * self.global_batch_size
        self.rows = slice(0, self.global_batch_size)
        self.image_size = self.batch["images"].shape[1]

    def prepare(self, start: int, stop: int) -> None:
        """Nothing: the batch is in memory."""

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """The steps ``start`` to ``stop``."""
        import tensorflow as tf

        whole = tf.data.Dataset.from_tensors(self.batch).repeat(stop - start)
        if self.batch_size is not None:
            whole = whole.unbatch().batch(self.batch_size, drop_remainder=True)
        return whole.prefetch(1)

    def explain(self, error: Exception) -> None:
        """No errors of its own."""


def random_batch(image_size: int, batch_size: int) -> dict[str, Any]:
    """A batch of noise with ten classes."""
    chance = np.random.default_rng(0)
    return {
        "images": chance.integers(0, 256, (batch_size, image_size, image_size, 3), dtype=np.uint8),
        "labels": chance.integers(0, 10, batch_size, dtype=np.int32),
        "weights": np.full(batch_size, 1 / batch_size, np.float32),
    }
