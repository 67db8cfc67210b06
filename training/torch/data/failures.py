"""Pass errors of this project out of a worker process.

A ``DataLoader`` raises a worker's error again with the worker's traceback in place of the message, and loses
the remedy. So an error travels as an element, and the loader raises it as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from shardmill.infra.errors import ChildDied, ShardmillError, from_event
from shardmill.training.torch.data.batch import Example, TorchBatch, pad_collate
from shardmill.training.torch.data.examples import Examples, Place
from shardmill.training.torch.data.steps import StepBatches
from shardmill.training.torch.data.transforms.records import RecordTransform

Event = dict[str, Any]


class GuardedSteps(IterableDataset):  # type: ignore[misc]
    """``StepBatches``, transformed, whose last element may be an error."""

    def __init__(self, batches: StepBatches, transform: RecordTransform | None = None) -> None:
        super().__init__()
        self._batches = batches
        self._transform = transform

    def __iter__(self) -> Iterator[TorchBatch | Event]:
        try:
            for batch in self._batches:
                yield batch if self._transform is None else self._transform.batch(batch)
        except ShardmillError as error:
            yield error.to_event()


class GuardedExamples(Dataset):  # type: ignore[misc]
    """``Examples``, transformed, or an error in place of a batch; use it with ``guarded_collate``."""

    def __init__(self, examples: Examples, transform: RecordTransform | None = None) -> None:
        super().__init__()
        self._examples = examples
        self._transform = transform

    def __len__(self) -> int:
        return len(self._examples)

    def __getitems__(self, keys: Sequence[int | Place]) -> list[Example] | Event:
        try:
            examples = self._examples.__getitems__(keys)
            return examples if self._transform is None else self._transform.examples(examples)
        except ShardmillError as error:
            return error.to_event()


def guarded_collate(examples: list[Example] | Event) -> TorchBatch | Event:
    """Collate like ``pad_collate``, but pass an error on."""
    return examples if isinstance(examples, dict) else pad_collate(examples)


def next_batch(batches: Iterator[TorchBatch | Event]) -> TorchBatch:
    """Return the next batch, or raise the error that came in its place.

    Raises:
        ShardmillError: the one that happened in the worker. ChildDied: the worker was killed.
    """
    try:
        batch = next(batches)
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ChildDied(
            f"a worker that reads records died: {error}",
            "it may have run out of memory; check shared memory too (df -h /dev/shm; in Docker --shm-size), "
            "or read with num_workers=0",
        ) from error
    if isinstance(batch, dict):
        raise from_event(batch)
    return batch
