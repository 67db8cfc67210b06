"""Assign shards to workers that stream, and count their steps. Pure functions, no TensorFlow.

Shard i belongs to worker i mod W for the whole run, so a worker can cache what it reads. Every worker makes
the same number of steps an epoch, as many as the worker with the most records needs (``pad``) or the one with
the fewest allows (``drop``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardmill.infra.errors import ConfigError, DataError
from shardmill.infra.readable import counted
from shardmill.training.order import LastBatch, rank_slice


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The shards and steps of one worker.

    Attributes:
        shard_examples: examples in each shard of the split, in the manifest's order.
        global_batch_size: examples a step, over all workers.
        last_batch: whether a last step that is not full is padded or dropped.
        worker: the number of this worker, from 0.
        num_workers: the number of workers.
        seed: the seed of order and augmentation.
    """

    shard_examples: tuple[int, ...]
    global_batch_size: int
    last_batch: LastBatch = "pad"
    worker: int = 0
    num_workers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.num_records:
            raise DataError("the split has no records to read", "prepare a dataset with such a split")
        shards = counted(len(self.shard_examples), "shard")
        if len(self.shard_examples) < self.num_workers:
            raise ConfigError(
                f"{shards} cannot be divided among {self.num_workers} workers that stream",
                f"prepare with {self.num_workers} shards or a multiple, or set reading.mode to indexed",
            )
        if self.global_batch_size < self.num_workers:
            raise ConfigError(
                f"a global batch of {self.global_batch_size} is too small for {self.num_workers} workers: "
                "each needs at least one example",
                f"set data.global_batch_size to at least {self.num_workers}",
            )
        if not self.steps_per_epoch:
            raise ConfigError(
                f"an epoch has no full batch of {self.global_batch_size} over {shards}",
                "lower data.global_batch_size, or set data.last_batch to pad",
            )

    @property
    def num_records(self) -> int:
        """The records of the split, over all workers."""
        return sum(self.shard_examples)

    @property
    def shards(self) -> range:
        """The numbers of this worker's shards."""
        return self._shards_of(self.worker)

    @property
    def rows(self) -> slice:
        """This worker's rows of a global batch."""
        return rank_slice(self.global_batch_size, self.worker, self.num_workers)

    @property
    def num_rows(self) -> int:
        """The number of this worker's rows of a global batch."""
        return int(self.rows.stop - self.rows.start)

    @property
    def steps_per_epoch(self) -> int:
        """The steps of an epoch, the same for all workers."""
        if self.last_batch == "drop":
            return min(records // rows for records, rows in self._workers())
        return max(-(-records // rows) for records, rows in self._workers())

    @property
    def own_records(self) -> int:
        """The records of this worker's shards."""
        return self._workers()[self.worker][0]

    @property
    def own_rows_per_epoch(self) -> int:
        """The rows that this worker makes in an epoch, with padding."""
        return self.steps_per_epoch * self.num_rows

    def weights(self, step: int) -> npt.NDArray[np.float32]:
        """Return 1 / (real examples of the step over all workers), and 0 for padding: float32 [num_rows]."""
        real = [min(max(records - step * rows, 0), rows) for records, rows in self._workers()]
        weights = np.zeros(self.num_rows, np.float32)
        weights[: real[self.worker]] = 1.0 / max(sum(real), 1)
        return weights

    def positions(self, step: int) -> npt.NDArray[np.int64]:
        """Return the positions of this worker's rows of a step in the epoch: int64 [num_rows]."""
        begin = step * self.global_batch_size
        return np.arange(begin + self.rows.start, begin + self.rows.stop, dtype=np.int64)

    def _shards_of(self, worker: int) -> range:
        return range(worker, len(self.shard_examples), self.num_workers)

    def _workers(self) -> list[tuple[int, int]]:
        """Return (records, rows of a step) of each worker."""
        found = []
        for worker in range(self.num_workers):
            rows = rank_slice(self.global_batch_size, worker, self.num_workers)
            records = sum(self.shard_examples[shard] for shard in self._shards_of(worker))
            found.append((records, rows.stop - rows.start))
        return found
