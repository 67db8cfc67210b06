"""The indexed ``tf.data`` pipeline: any order, exactly, from shards at rest.

::

    steps ─► fetch (parallel: plan the step, pread, inflate, check, parse; draw windows and flips)
          ─► one example at a time ─► decode a window, resize, flip (parallel) ─► batch ─► prefetch

The order in is the order out, however many calls run in parallel. A pipeline holds no state that matters: one
made from (epoch, step) goes on as the unbroken one would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infra.errors import ShardmillError
from training import augment as augmentation
from training.augment import Windows
from training.config import AugmentSettings
from training.order import Order, StepPlan
from training.pipelines.preprocess import decode_window
from training.reading import RecordReader


@dataclass
class IndexedPipeline:
    """Batches of one split in a given order.

    Attributes:
        reader: of the split.
        order: which records at which step.
        image_size: of the batches (pixels).
        augment: how training examples are varied, or None for evaluation.
        seed: of the augmentation.
        failure: the first error of ours that happened inside TensorFlow, which only passes on its text.
    """

    reader: RecordReader
    order: Order
    image_size: int
    augment: AugmentSettings | None = None
    seed: int = 0
    failure: ShardmillError | None = field(default=None, init=False)

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """A ``tf.data.Dataset`` of the run's steps ``start`` to ``stop``, counted over all epochs.

        Args:
            start, stop: epoch * steps_per_epoch + step.
            batch_size: rows of a batch; a divisor of the global batch size, which is the default. With
                B/R the replicas' slices come one after the other.

        Returns:
            Dataset of dicts: images uint8 [b, S, S, 3], labels int32 [b], weights float32 [b] (see
            ``StepPlan.weights``), ordinals int64 [b].
        """
        rows = batch_size or self.order.global_batch_size
        options = tf.data.Options()
        options.deterministic = True
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = tf.data.Dataset.range(start, stop)
        dataset = dataset.map(self._fetch, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        dataset = dataset.map(self._example, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.batch(rows, drop_remainder=True)
        batches = (stop - start) * (self.order.global_batch_size // rows)
        return (
            dataset.apply(tf.data.experimental.assert_cardinality(batches))
            .prefetch(tf.data.AUTOTUNE)
            .with_options(options)
        )

    def _fetch(self, run_step: Any) -> dict[str, Any]:
        """The encoded images of one step and all that is to be done with them."""
        kinds = (tf.string, tf.int32, tf.int32, tf.bool, tf.int32, tf.float32, tf.int64)
        fetched = tf.numpy_function(self._read_step, [run_step], kinds, stateful=False)
        names = ("images", "shapes", "windows", "flips", "labels", "weights", "ordinals")
        rows = self.order.global_batch_size
        columns = {"shapes": [3], "windows": [4]}
        for tensor, name in zip(fetched, names, strict=True):
            tensor.set_shape([rows, *columns.get(name, [])])
        return dict(zip(names, fetched, strict=True))

    def _read_step(self, run_step: int) -> tuple[npt.NDArray[Any], ...]:
        try:
            plan = self.order.step(*divmod(int(run_step), self.order.steps_per_epoch))
            records = self.reader.read_many(plan.ordinals)
        except ShardmillError as error:
            self.failure = self.failure or error
            raise
        windows, flips = self._draws(plan)
        return (
            np.array([record.image for record in records], dtype=object),
            np.array([(record.height, record.width, record.channels) for record in records], dtype=np.int32),
            windows,
            flips,
            np.array([record.label for record in records], dtype=np.int32),
            plan.weights,
            plan.ordinals,
        )

    def _draws(self, plan: StepPlan) -> tuple[Windows, npt.NDArray[np.bool_]]:
        heights = self.reader.table.height[plan.ordinals]
        widths = self.reader.table.width[plan.ordinals]
        if self.augment is None:
            return augmentation.central_windows(heights, widths), np.zeros(heights.shape, np.bool_)
        keys = augmentation.keys_at(self.seed, plan.epoch, plan.positions)
        return augmentation.windows(heights, widths, keys, self.augment), augmentation.flips(
            keys, self.augment
        )

    def _example(self, fetched: dict[str, Any]) -> dict[str, Any]:
        image = decode_window(
            fetched["images"],
            fetched["shapes"],
            fetched["windows"],
            self.image_size,
            self.reader.image_encoding,
        )
        image = tf.cond(fetched["flips"], lambda: tf.reverse(image, [1]), lambda: image)
        kept = {name: fetched[name] for name in ("labels", "weights", "ordinals")}
        return {"images": image, **kept}


def reraise(pipelines: list[IndexedPipeline], work: Callable[[], Any]) -> Any:
    """Run ``work``; where TensorFlow reports an error of ours as its own, raise the real one.

    Raises:
        ShardmillError: the error that happened in a pipeline.
    """
    try:
        return work()
    except tf.errors.OpError as error:
        for pipeline in pipelines:
            if pipeline.failure is not None:
                raise pipeline.failure from error
        raise
