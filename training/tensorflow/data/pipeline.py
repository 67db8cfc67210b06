"""The interface of every ``tf.data`` pipeline, and how its errors are raised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from shardmill.infra.errors import ShardmillError
from shardmill.training.arrays import Floats
from shardmill.training.order import Order
from shardmill.training.reading import RecordReader
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.streaming_plan import StreamPlan
from shardmill.training.tensorflow.data.preprocess import to_grey


class Pipeline(ABC):
    """Gives the batches of one split, from any step on.

    Attributes:
        reader: the records of the split.
        order: the steps.
        spec: what batches hold.
        rows: the rows of each global batch that this process reads.
        class_weights: the weights of the classes in the loss: float64 [C]; None: all weigh the same.
        is_tuned: whether ``tf.data`` finds out by measuring how many calls run in parallel.
    """

    reader: RecordReader
    order: Order | StreamPlan
    spec: ExampleSpec
    rows: slice
    class_weights: Floats | None
    is_tuned: bool

    @abstractmethod
    def prepare(self, start: int, stop: int) -> None:
        """Prepare to read the steps ``start`` to ``stop``: begin to fetch what they need."""

    @abstractmethod
    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """Return a ``tf.data.Dataset`` of the run's steps ``start`` to ``stop``, counted over all epochs.

        Args:
            start: the first step (epoch * steps_per_epoch + step): a number, or an int64 scalar tensor where
                the dataset is one of several passes.
            stop: the step behind the last one.
            batch_size: rows of a batch; a divisor of the rows of this process, which are the default. With
                fewer, the replicas' slices come one after the other.

        Returns:
            Dataset of dicts: images [b, S, S, C]; labels (as of ``Batch``, or ``Objects`` by name);
            weights float32 [b], 0 for padding; ordinals int64 [b]. Whole images are [b, largest height,
            largest width, C], zero beyond each one's own height and width.
        """

    @abstractmethod
    def explain(self, error: Exception) -> ShardmillError | None:
        """Return the error of this project that caused one of TensorFlow's; None if there is none."""


def in_channels(batches: Any, spec: ExampleSpec) -> Any:
    """Return a dataset of batches whose coloured images have become grey if ``spec`` says so."""
    if spec.image_shape[-1] == 3:
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
