"""The interface of every ``tf.data`` pipeline, and how its errors are raised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from shardmill.infra.errors import ShardmillError
from shardmill.training.arrays import Floats
from shardmill.training.reading import RecordReader
from shardmill.training.reading.budget import RamBudget
from shardmill.training.tensorflow.data.preprocess import to_grey


class Steps(Protocol):
    """The steps of an epoch, the examples of a step, and the seed of the run."""

    @property
    def seed(self) -> int:
        """The seed of order and augmentation."""

    @property
    def global_batch_size(self) -> int:
        """Examples a step, over all ranks."""

    @property
    def steps_per_epoch(self) -> int:
        """The steps of an epoch, the same for every rank."""


class Pipeline(Protocol):
    """Gives the batches of one split, from any step on."""

    @property
    def reader(self) -> RecordReader:
        """The records of the split."""

    @property
    def order(self) -> Steps:
        """The steps of the pipeline."""

    @property
    def image_size(self) -> int | None:
        """Height and width of the images (pixels); None: whole images, padded to the largest of a batch."""

    @property
    def rows(self) -> slice:
        """The rows of each global batch that this process reads."""

    @property
    def class_weights(self) -> Floats | None:
        """The weights of the classes in the loss: float64 [C]; None: all examples weigh the same."""

    @property
    def is_tuned(self) -> bool:
        """Whether ``tf.data`` finds out by measuring how many calls run in parallel."""

    def prepare(self, start: int, stop: int) -> None:
        """Prepare to read the steps ``start`` to ``stop``: begin to fetch what they need."""

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """Return a ``tf.data.Dataset`` of the run's steps ``start`` to ``stop``, counted over all epochs.

        Both are numbers, or int64 scalar tensors where the dataset is one of several passes.
        """

    def explain(self, error: Exception) -> ShardmillError | None:
        """Return the error of this project that caused one of TensorFlow's; None if there is none."""


def in_channels(batches: Any, image_channels: int) -> Any:
    """Return a dataset of batches whose images have so many channels, 3 or 1."""
    if image_channels == 3:
        return batches
    return batches.map(lambda batch: {**batch, "images": to_grey(batch["images"])})


def in_order(budget: RamBudget | None) -> Any:
    """Return the ``tf.data.Options`` of all pipelines: elements in order, not sharded, within the budget."""
    options = tf.data.Options()
    options.deterministic = True
    # The order already divides the examples among the readers; TensorFlow must not shard them again.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    if budget is not None:
        options.autotune.ram_budget = budget.tuned
    return options


def reraise(pipelines: Sequence[Pipeline], work: Callable[[], Any]) -> Any:
    """Run ``work``. If TensorFlow wraps an error of this project, raise the original one.

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
