"""A pipeline whose batches also say how they are augmented as a whole (``training.augment.batched``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from infra.errors import ShardmillError
from training.arrays import Floats
from training.augment.batch_draws import BatchDraws, check_pairs, draw_batch
from training.augment.batched import BatchAugment, soft_labels
from training.config import AugmentSettings
from training.pipelines.pipeline import Pipeline, Steps
from training.reading import RecordReader

_KINDS = (tf.int32, tf.float32, tf.float32, tf.float32, tf.int32, tf.float32)


@dataclass(frozen=True)
class WithBatchDraws:
    """The batches of a pipeline, each with the ``BatchDraws`` of its rows under "draws".

    The draws are those of the global batch, cut as the batches are: what comes out does not depend on the
    number of replicas.
    """

    pipeline: Pipeline
    settings: AugmentSettings
    seed: int

    @property
    def reader(self) -> RecordReader:
        """Of the split."""
        return self.pipeline.reader

    @property
    def image_size(self) -> int | None:
        """Of the batches (pixels)."""
        return self.pipeline.image_size

    @property
    def order(self) -> Steps:
        """How the batches are counted."""
        return self.pipeline.order

    @property
    def class_weights(self) -> Floats | None:
        """Of the classes in the loss."""
        return self.pipeline.class_weights

    def explain(self, error: Exception) -> ShardmillError | None:
        """See ``Pipeline``."""
        return self.pipeline.explain(error)

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """As ``IndexedPipeline.dataset``, with "draws" beside.

        Raises:
            ConfigError: examples are mixed in pairs, and the rows of a batch are odd in number.
        """
        rows = batch_size or self.order.global_batch_size
        check_pairs(self.settings, rows)
        options = tf.data.Options()
        options.deterministic = True
        draws = tf.data.Dataset.range(start, stop).map(self._draw, num_parallel_calls=2)
        if rows != self.order.global_batch_size:
            draws = draws.unbatch().batch(rows, drop_remainder=True)
        both = tf.data.Dataset.zip(self.pipeline.dataset(start, stop, batch_size), draws)
        batches = both.map(lambda batch, of_batch: {**batch, "draws": of_batch})
        return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

    def _draw(self, run_step: Any) -> BatchDraws:
        tensors = tf.numpy_function(self._drawn, [run_step], _KINDS, stateful=False)
        rows, num_ops = self.order.global_batch_size, self.settings.randaugment.num_ops
        shapes = {"ops": [num_ops], "amounts": [num_ops], "warps": [num_ops, 8], "boxes": [4]}
        for name, tensor in zip(BatchDraws._fields, tensors, strict=True):
            tensor.set_shape([rows, *shapes.get(name, [])])
        return BatchDraws(*tensors)

    def _drawn(self, run_step: int) -> tuple[np.ndarray[Any, Any], ...]:
        epoch, step = divmod(int(run_step), self.order.steps_per_epoch)
        begin = step * self.order.global_batch_size
        positions = np.arange(begin, begin + self.order.global_batch_size, dtype=np.int64)
        assert self.image_size is not None, "whole images are not for training"
        return tuple(draw_batch(self.settings, self.seed, epoch, positions, self.image_size))


def augmented_on_host(
    pipeline: Pipeline, settings: AugmentSettings | None, seed: int, num_classes: int
) -> Pipeline:
    """The pipeline, with whatever the settings want done to whole batches."""
    if settings is None or not settings.is_batched:
        return pipeline
    return AugmentedBatches(pipeline, settings, seed, num_classes)


@dataclass(frozen=True)
class AugmentedBatches(WithBatchDraws):
    """The batches of a pipeline, augmented on the host: for a training loop that is not ours.

    Where examples are mixed, "labels" are distributions over the classes, float32 [b, C].
    """

    num_classes: int = 0

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """As ``IndexedPipeline.dataset``.

        Raises:
            ConfigError: examples are mixed in pairs, and the rows of a batch are odd in number.
        """
        augment = BatchAugment(mixes=self.settings.mixes)

        def augmented(batch: dict[str, Any]) -> dict[str, Any]:
            draws, labels = batch.pop("draws"), batch["labels"]
            if self.settings.mixes:
                labels = soft_labels(labels, draws.own, self.num_classes)
            return {**batch, "images": augment(batch["images"], draws), "labels": labels}

        batches = super().dataset(start, stop, batch_size).map(augmented)
        return batches.prefetch(tf.data.AUTOTUNE)
