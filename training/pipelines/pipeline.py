"""What every ``tf.data`` pipeline is to those who use it, and how its errors come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from infra.errors import ShardmillError
from training.arrays import Floats
from training.reading import RecordReader
from training.reading.budget import RamBudget


class Steps(Protocol):
    """How many steps an epoch has, and how many examples a step."""

    @property
    def global_batch_size(self) -> int:
        """Examples a step, over all ranks."""

    @property
    def steps_per_epoch(self) -> int:
        """The same for every rank."""


class Pipeline(Protocol):
    """Batches of one split, from any step on."""

    @property
    def reader(self) -> RecordReader:
        """Of the split."""

    @property
    def order(self) -> Steps:
        """How the batches are counted."""

    @property
    def image_size(self) -> int | None:
        """Of the batches (pixels); None: images keep their sizes, padded to the largest of a batch."""

    @property
    def class_weights(self) -> Floats | None:
        """float64 [C], of the classes in the loss; None: all examples weigh alike."""

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """A ``tf.data.Dataset`` of the run's steps ``start`` to ``stop``, counted over all epochs."""

    def explain(self, error: Exception) -> ShardmillError | None:
        """The error of ours behind one of TensorFlow's, which only passes on its text; None: it has none."""


def in_order(budget: RamBudget | None) -> Any:
    """``tf.data.Options`` of all pipelines: elements in their order, divided by nobody, within the budget."""
    options = tf.data.Options()
    options.deterministic = True
    # Who reads what is decided here; TensorFlow may not divide it once more.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    if budget is not None:
        options.autotune.enabled = True
        options.autotune.ram_budget = budget.tuned
    return options


def reraise(pipelines: Sequence[Pipeline], work: Callable[[], Any]) -> Any:
    """Run ``work``; where TensorFlow reports an error of ours as its own, raise the real one.

    Raises:
        ShardmillError: the error that happened in a pipeline.
    """
    try:
        return work()
    except tf.errors.OpError as error:
        for pipeline in pipelines:
            if (found := pipeline.explain(error)) is not None:
                raise found from error
        raise
