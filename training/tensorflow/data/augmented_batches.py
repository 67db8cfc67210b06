"""Add the parameters of augmentations of whole batches to the batches of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.errors import ShardmillError
from shardmill.training.arrays import Floats
from shardmill.training.augment.kind import Arrays
from shardmill.training.augment.parameters import draw_batch_parameters, own_share
from shardmill.training.config import AugmentSettings
from shardmill.training.reading import RecordReader
from shardmill.training.tensorflow.augment_batches import BatchAugment, soft_labels
from shardmill.training.tensorflow.data.pipeline import Pipeline, Steps

_READY_BATCHES = 2


@dataclass(frozen=True)
class WithBatchParameters:
    """The batches of a pipeline, each with what ``draw_batch_parameters`` draws, under the key "parameters".

    The draws are those of the global batch, cut like the batches, so the result does not depend on the number
    of replicas.
    """

    pipeline: Pipeline
    settings: AugmentSettings

    @property
    def reader(self) -> RecordReader:
        """The records of the split."""
        return self.pipeline.reader

    @property
    def image_size(self) -> int | None:
        """Height and width of the images (pixels)."""
        return self.pipeline.image_size

    @property
    def order(self) -> Steps:
        """The steps of the pipeline."""
        return self.pipeline.order

    @property
    def rows(self) -> slice:
        """The rows of each global batch that this process reads."""
        return self.pipeline.rows

    @property
    def class_weights(self) -> Floats | None:
        """The weights of the classes in the loss."""
        return self.pipeline.class_weights

    def explain(self, error: Exception) -> ShardmillError | None:
        """See ``Pipeline``."""
        return self.pipeline.explain(error)

    @property
    def is_tuned(self) -> bool:
        """See ``Pipeline``."""
        return self.pipeline.is_tuned

    def prepare(self, start: int, stop: int) -> None:
        """See ``Pipeline``."""
        self.pipeline.prepare(start, stop)

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """Return what ``IndexedPipeline.dataset`` does, with "parameters" in each batch.

        Raises:
            ConfigError: examples are mixed in pairs, and the rows of a batch are odd in number.
        """
        own = self.rows.stop - self.rows.start
        rows = own if batch_size is None else batch_size
        self.settings.check_pairs(rows)
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
        assert self.image_size is not None, "whole images are not for training"
        return draw_batch_parameters(self.settings, self.order.seed, epoch, positions, self.image_size)


def augmented_on_host(pipeline: Pipeline, settings: AugmentSettings | None, num_classes: int) -> Pipeline:
    """Augment whole batches of a pipeline on the host, if the settings ask for it."""
    if settings is None or not settings.of_batches:
        return pipeline
    return AugmentedBatches(pipeline, settings, num_classes)


@dataclass(frozen=True)
class AugmentedBatches(WithBatchParameters):
    """The batches of a pipeline, augmented on the host, for a training loop outside this project.

    If examples are mixed, "labels" are distributions over the classes, float32 [b, C].
    """

    num_classes: int = 0

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """Return what ``IndexedPipeline.dataset`` does, augmented.

        Raises:
            ConfigError: examples are mixed in pairs, and the rows of a batch are odd in number.
        """
        augment = BatchAugment(self.settings)

        def augmented(batch: dict[str, Any]) -> dict[str, Any]:
            draws, labels = batch.pop("parameters"), batch["labels"]
            if self.settings.mixes:
                labels = soft_labels(labels, own_share(draws), self.num_classes)
            return {**batch, "images": augment(batch["images"], draws), "labels": labels}

        batches = super().dataset(start, stop, batch_size).map(augmented)
        return batches.prefetch(tf.data.AUTOTUNE)
