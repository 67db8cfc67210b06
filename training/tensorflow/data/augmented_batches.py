"""Add the parameters of augmentations of whole batches to the batches of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.errors import ShardmillError
from shardmill.training.augment.kind import Arrays
from shardmill.training.augment.parameters import draw_batch_parameters, own_share
from shardmill.training.tensorflow.augment_batches import BatchAugment, soft_labels
from shardmill.training.tensorflow.data.pipeline import Pipeline

_READY_BATCHES = 2


class WithBatchParameters(Pipeline):
    """The batches of a pipeline, each with what ``draw_batch_parameters`` draws, under the key "parameters".

    The draws are those of the global batch, cut like the batches, so the result does not depend on the number
    of replicas.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        """Draw the parameters of augmentation that the examples of a pipeline are to have."""
        assert pipeline.spec.augment is not None, "there is nothing to draw"
        self.pipeline, self._settings = pipeline, pipeline.spec.augment
        self.reader, self.order, self.spec = pipeline.reader, pipeline.order, pipeline.spec
        self.rows, self.class_weights = pipeline.rows, pipeline.class_weights
        self.is_tuned = pipeline.is_tuned

    def prepare(self, start: int, stop: int) -> None:
        """See ``Pipeline``."""
        self.pipeline.prepare(start, stop)

    def explain(self, error: Exception) -> ShardmillError | None:
        """See ``Pipeline``."""
        return self.pipeline.explain(error)

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """Return what the pipeline does, with "parameters" in each batch.

        Raises:
            ConfigError: examples are mixed in pairs, and the rows of a batch are odd in number.
        """
        own = self.rows.stop - self.rows.start
        rows = own if batch_size is None else batch_size
        self._settings.check_pairs(rows)
        options = tf.data.Options()
        options.deterministic = True
        slices = own // rows
        numbers = tf.data.Dataset.range(start * slices, stop * slices)
        draws = numbers.map(lambda number: self._draw(number, slices), num_parallel_calls=2)
        both = tf.data.Dataset.zip(self.pipeline.dataset(start, stop, batch_size), draws)
        batches = both.map(lambda batch, of_batch: {**batch, "parameters": of_batch})
        return batches.prefetch(_READY_BATCHES).with_options(options)

    def _draw(self, run_slice: Any, slices: int) -> Any:
        """Draw the parameters of one slice of a step; slices are counted over the whole run."""
        rows, one = (self.rows.stop - self.rows.start) // slices, self._parameters(0, np.zeros(1, np.int64))
        tensors = tf.numpy_function(
            lambda number: tf.nest.flatten(self._drawn(int(number), slices)),
            [run_slice],
            [array.dtype for array in tf.nest.flatten(one)],
            stateful=False,
        )
        for tensor, array in zip(tensors, tf.nest.flatten(one), strict=True):
            tensor.set_shape([rows, *array.shape[1:]])
        return tf.nest.pack_sequence_as(one, tensors)

    def _drawn(self, run_slice: int, slices: int) -> dict[str, Arrays]:
        run_step, number = divmod(run_slice, slices)
        epoch, step = divmod(run_step, self.order.steps_per_epoch)
        rows = (self.rows.stop - self.rows.start) // slices
        begin = step * self.order.global_batch_size + self.rows.start + number * rows
        positions = np.arange(begin, begin + rows, dtype=np.int64)
        return self._parameters(epoch, positions)

    def _parameters(self, epoch: int, positions: npt.NDArray[np.int64]) -> dict[str, Arrays]:
        size = self.spec.image_size
        assert size is not None, "whole images are not augmented"
        return draw_batch_parameters(self._settings, self.order.seed, epoch, positions, size)


class AugmentedBatches(WithBatchParameters):
    """The batches of a pipeline, augmented on the host, for a training loop outside this project.

    If examples are mixed, "labels" are distributions over the classes, float32 [b, C].
    """

    def __init__(self, pipeline: Pipeline, num_classes: int) -> None:
        """Augment the batches of a pipeline; ``num_classes``: C, the length of mixed labels."""
        super().__init__(pipeline)
        self._num_classes = num_classes

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """Return what the pipeline does, augmented.

        Raises:
            ConfigError: examples are mixed in pairs, and the rows of a batch are odd in number.
        """
        augment = BatchAugment(self._settings)

        def augmented(batch: dict[str, Any]) -> dict[str, Any]:
            draws, labels = batch.pop("parameters"), batch["labels"]
            if self._settings.mixes:
                labels = soft_labels(labels, own_share(draws), self._num_classes)
            return {**batch, "images": augment(batch["images"], draws), "labels": labels}

        batches = super().dataset(start, stop, batch_size).map(augmented)
        return batches.prefetch(tf.data.AUTOTUNE)
