"""The streaming ``tf.data`` pipeline: shards from front to back, shuffled through a buffer.

::

    shards ─► shard by worker ─► shuffle ─► interleave (parallel: read, check, parse) ─► shuffle buffer
           ─► skip to the step ─► rows of a step (parallel: draw windows and flips)
           ─► one example at a time ─► decode a window, resize, flip (parallel) ─► batch ─► vary ─► prefetch

For object stores without staging, and for disks that are slow at random reads: each shard is read in order.
Its limits: the order is shuffled only as far as the buffer reaches, depends on the number of workers and on
TensorFlow's shuffle, and each record comes once an epoch, whatever its class.

It is a function of (dataset version, seed, number of workers, shuffle buffer, parallel shards) nevertheless.
Epoch e goes through the worker's shards in an order shuffled by (seed, e), so a run resumes at any step: the
records before it are read and skipped, not decoded. Augmentation draws from (seed, epoch, position).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.errors import CorruptDataError, ShardmillError
from shardmill.training.arrays import Floats
from shardmill.training.augment.parameters import AugmentParameters, draw_parameters
from shardmill.training.draws import Purpose, key_of
from shardmill.training.reading import RecordReader
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.streaming_plan import StreamPlan
from shardmill.training.tensorflow.data.by_tensorflow import ImageAugment, augment_rows
from shardmill.training.tensorflow.data.pipeline import Pipeline, in_channels, in_order
from shardmill.training.tensorflow.data.preprocess import decode_image, decode_window
from shardmill.training.tensorflow.data.streaming_sources import RecordSource

_INTERLEAVED_RECORDS = 16
# TensorFlow's errors about records and images that it cannot read.
_OF_DATA = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)


class StreamingPipeline(Pipeline):
    """Gives the batches of one worker's shards."""

    order: StreamPlan

    def __init__(
        self,
        reader: RecordReader,
        order: StreamPlan,
        spec: ExampleSpec,
        shuffle_buffer: int = 10_000,
        budget: RamBudget | None = None,
        class_weights: Floats | None = None,
    ) -> None:
        """Make a pipeline, whose ``source`` of records is set afterwards, since it reports failures to it.

        Args:
            reader: the records of the split.
            order: the shards and the steps of an epoch.
            spec: what batches hold.
            shuffle_buffer: the examples in the shuffle buffer; 0: no shuffling at all.
            budget: the memory budget; None: that of ``tf.data``.
            class_weights: float64 [C], weights of the classes in the loss; only for one worker, which sees
                all of a step.
        """
        self.reader, self.order, self.spec = reader, order, spec.of_version(reader.split.version)
        self.rows, self.class_weights, self.is_tuned = order.rows, class_weights, True
        self.shuffle_buffer, self.budget = shuffle_buffer, budget
        self.source: RecordSource
        # The first error of this project inside TensorFlow, which passes on only its text.
        self.failure: ShardmillError | None = None
        self._image_augment = ImageAugment.of(spec)

    def prepare(self, start: int, stop: int) -> None:
        """See ``Pipeline``: shards are read from front to back, so there is nothing to do."""

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """See ``Pipeline``. Whole images have their height and width in ``shapes``, int32 [b, 2]."""
        steps = self._rows(start, stop).batch(self.order.num_rows, drop_remainder=True)
        steps = tf.data.Dataset.zip(tf.data.Dataset.range(start, stop), steps)
        examples = steps.map(self._planned, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        examples = examples.map(self._example, num_parallel_calls=tf.data.AUTOTUNE)
        rows = self.order.num_rows if batch_size is None else batch_size
        batches = self._batched(examples, rows)
        if self._image_augment.is_in_numpy:
            batches = batches.map(self._augmented, num_parallel_calls=tf.data.AUTOTUNE)
        kept = ("images", "labels", "weights", "ordinals", *(() if self.spec.image_size else ("shapes",)))
        batches = batches.map(lambda batch: {name: batch[name] for name in kept})
        batches = in_channels(batches, self.spec)
        count = (stop - start) * (self.order.num_rows // rows)
        return (
            batches.apply(tf.data.experimental.assert_cardinality(count))
            .prefetch(tf.data.AUTOTUNE)
            .with_options(in_order(self.budget))
        )

    def explain(self, error: Exception) -> ShardmillError | None:
        """See ``Pipeline``."""
        if self.failure is None and isinstance(error, _OF_DATA):
            self.failure = self._found_damage(error)
        return self.failure

    # -- reading of records ----------------------------------------------------------------------------

    def _rows(self, start: Any, stop: Any) -> Any:
        """Return the rows of the steps: (ordinal, image, channels) each."""
        steps = self.order.steps_per_epoch
        first = start // steps
        skipped = tf.cast(start % steps * self.order.num_rows, tf.int64)

        def rows_of(epoch: Any, seeds: Any) -> Any:
            passed_over = tf.where(epoch == first, skipped, tf.constant(0, tf.int64))
            return self._epoch(seeds).skip(passed_over)

        epochs = tf.data.Dataset.range(first, -(-stop // steps))
        return epochs.map(lambda epoch: (epoch, self._seeds(epoch))).flat_map(rows_of)

    def _seeds(self, epoch: Any) -> Any:
        """Return the seeds of the order of the shards and of the shuffle buffer: int64 [2]."""

        def seeds(epoch: int) -> npt.NDArray[np.int64]:
            purposes = (Purpose.STREAMED_SHARDS, Purpose.STREAMED_RECORDS)
            keys = [
                key_of(purpose, self.order.seed, int(epoch), self.order.worker)[0] for purpose in purposes
            ]
            return (np.array(keys) >> np.uint64(1)).astype(np.int64)

        made = tf.numpy_function(seeds, [epoch], tf.int64, stateful=False)
        made.set_shape([2])
        return made

    def _epoch(self, seeds: Any) -> Any:
        """Return the rows of one epoch, padding last."""
        plan, mixed = self.order, self.shuffle_buffer > 0
        shards = tf.data.Dataset.range(len(plan.shard_examples)).shard(plan.num_workers, plan.worker)
        if mixed:
            shards = _shuffled(shards, len(plan.shards), seeds[0])
        records = shards.interleave(
            self.source.records,
            cycle_length=min(self.spec.reading.parallel_shards, len(plan.shards)) if mixed else 1,
            block_length=_INTERLEAVED_RECORDS,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        if mixed:
            records = _shuffled(records, self.shuffle_buffer, seeds[1])
        missing = plan.own_rows_per_epoch - plan.own_records
        if missing > 0:
            # Padding of weight 0 repeats real images, since batch normalisation sees them.
            first = tf.constant(plan.shards[0], tf.int64)
            records = records.concatenate(self.source.records(first).repeat().take(missing))
        return records.take(plan.own_rows_per_epoch)

    # -- decoding and augmentation ---------------------------------------------------------------------

    def _planned(self, run_step: Any, records: Any) -> dict[str, Any]:
        """Add the parameters of their augmentation to the encoded images of a step."""
        ordinals, images, channels = records
        columns = {
            "shapes": (tf.int32, [3]),
            "windows": (tf.int32, [4]),
            "labels": (tf.int32, []),
            "weights": (tf.float32, []),
            "positions": (tf.int64, []),
            **self._image_augment.columns,
        }
        kinds = [kind for kind, _ in columns.values()]
        made = tf.numpy_function(self._plan_step, [run_step, ordinals, channels], kinds, stateful=False)
        for tensor, (_, shape) in zip(made, columns.values(), strict=True):
            tensor.set_shape([self.order.num_rows, *shape])
        epochs = tf.fill([self.order.num_rows], run_step // self.order.steps_per_epoch)
        return dict(zip(columns, made, strict=True)) | {
            "stored": images, "ordinals": ordinals, "epochs": epochs
        }  # fmt: skip

    def _plan_step(
        self, run_step: int, ordinals: npt.NDArray[np.int64], channels: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[Any], ...]:
        epoch, step = divmod(int(run_step), self.order.steps_per_epoch)
        positions = self.order.positions(step)
        parameters = self._parameters(epoch, positions, ordinals)
        table = self.reader.table
        shapes = np.stack([table.height[ordinals], table.width[ordinals], channels], axis=1)
        labels = table.label[ordinals]
        weights = self.order.weights(step)
        if self.class_weights is not None:
            weighed = self.class_weights[labels] * (weights > 0)
            weights = (weighed / weighed.sum()).astype(np.float32)
        drawn = self._image_augment.arrays(parameters)
        return shapes, parameters.windows, labels, weights, positions, *drawn.values()

    def _parameters(
        self, epoch: int, positions: npt.NDArray[np.int64], ordinals: npt.NDArray[np.int64]
    ) -> AugmentParameters:
        heights, widths = self.reader.table.height[ordinals], self.reader.table.width[ordinals]
        size = self.spec.image_size or 1
        return draw_parameters(
            self.spec.augment, self.order.seed, epoch, positions, heights, widths, size, self.spec.fit
        )

    def _example(self, planned: dict[str, Any]) -> dict[str, Any]:
        """Decode one example."""
        size = self.spec.image_size
        stored, shape, encoding = planned["stored"], planned["shapes"], self.reader.image_encoding
        if size is None:
            image = tf.ensure_shape(decode_image(stored, shape, encoding), [None, None, 3])
        else:
            image = decode_window(stored, shape, planned["windows"], size, encoding)
            image = self._image_augment.in_graph(image, planned)
        kept = ("labels", "weights", "ordinals", "positions", "epochs")
        return {"images": image, "shapes": shape[:2]} | {name: planned[name] for name in kept}

    def _batched(self, examples: Any, rows: int) -> Any:
        if self.spec.image_size is None:
            return examples.padded_batch(rows, drop_remainder=True)
        return examples.batch(rows, drop_remainder=True)

    def _augmented(self, batch: dict[str, Any]) -> dict[str, Any]:
        given = [batch[name] for name in ("images", "epochs", "positions", "ordinals")]
        images = tf.numpy_function(self._augment_rows, given, tf.uint8, stateful=False)
        images.set_shape(batch["images"].shape)
        return batch | {"images": images}

    def _augment_rows(
        self,
        images: npt.NDArray[np.uint8],
        epochs: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        ordinals: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8]:
        return augment_rows(images, self._parameters(int(epochs[0]), positions, ordinals))

    def _found_damage(self, error: Exception) -> ShardmillError:
        """Return the error of the first damaged record of this worker's shards."""
        shards = self.reader.table.shard
        for ordinal in np.flatnonzero(np.isin(shards, self.order.shards)).tolist():
            try:
                self.reader.read(ordinal)
            except ShardmillError as found:
                return found
        paths = ", ".join(self.reader.table.paths[shard] for shard in self.order.shards[:3])
        return CorruptDataError(f"TensorFlow cannot read an example of {paths} …: {error}")


def _shuffled(dataset: Any, buffer_size: int, seed: Any) -> Any:
    """Shuffle like ``Dataset.shuffle``, but by ``seed`` alone and not by TensorFlow's global seed too."""
    kinds, shapes = (
        [getattr(part, name) for part in tf.nest.flatten(dataset.element_spec)] for name in ("dtype", "shape")
    )
    mixed = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.constant(buffer_size, tf.int64),
        seed=seed,
        seed2=tf.constant(1, tf.int64),  # two zeros would be drawn anew each time
        output_types=kinds,
        output_shapes=shapes,
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(mixed, dataset.element_spec)
