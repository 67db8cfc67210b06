"""The streaming ``tf.data`` pipeline: shards from front to back, shuffled through a buffer.

::

    shards ─► shard by worker ─► shuffle ─► interleave (parallel: read, check, parse) ─► shuffle buffer
           ─► skip to the step ─► rows of a step (parallel: draw windows and flips)
           ─► one example at a time ─► decode a window, resize, flip (parallel) ─► batch ─► vary ─► prefetch

For object stores without staging, and for disks that are slow at random reads: each shard is read in order.
What it gives up: the order is shuffled only as far as the buffer reaches, depends on the number of workers
and on TensorFlow's shuffle, and each record comes once an epoch, whatever its class.

It is a function of (dataset version, seed, number of workers, shuffle buffer, parallel shards) nevertheless.
Epoch e goes through the worker's shards in an order shuffled by (seed, e), so a run goes on anywhere: the
records before it are read and passed over, not decoded. Augmentation draws from (seed, epoch, position).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infra.errors import CorruptDataError, ShardmillError
from training import augment as augmentation
from training.arrays import Floats
from training.config.augment import AugmentSettings
from training.order.hashing import key_of
from training.pipelines.pipeline import in_order
from training.pipelines.preprocess import decode_image, decode_window
from training.pipelines.stream_plan import StreamPlan
from training.pipelines.stream_sources import RecordSource
from training.reading import RecordReader
from training.reading.budget import RamBudget

_FILES, _RECORDS = 61, 62  # keep these seeds apart from the keys of training.order and training.augment
_INTERLEAVED_RECORDS = 16
# What TensorFlow says of records and images that it cannot read.
_OF_DATA = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.InvalidArgumentError)


@dataclass
class StreamingPipeline:
    """Batches of one worker's shards.

    Attributes:
        reader: of the split.
        order: which shards, and how many steps an epoch.
        image_size: of the batches (pixels); None: whole images, padded to the largest of each batch.
        augment: how training examples are varied, or None for evaluation. Whole images are only flipped.
        seed: of order and augmentation.
        shuffle_buffer: examples; 0: no shuffling at all.
        parallel_shards: read alternately.
        budget: of memory; None: what ``tf.data`` takes by itself.
        class_weights: float64 [C], of the classes in the loss; only for one worker, which sees all of a step.
        source: of the records of a shard, set after the pipeline is made: it tells the pipeline of failures.
        failure: the first error of ours that happened inside TensorFlow, which only passes on its text.
    """

    reader: RecordReader
    order: StreamPlan
    image_size: int | None
    augment: AugmentSettings | None = None
    seed: int = 0
    shuffle_buffer: int = 10_000
    parallel_shards: int = 8
    budget: RamBudget | None = None
    class_weights: Floats | None = None
    source: RecordSource = field(init=False)
    failure: ShardmillError | None = field(default=None, init=False)

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """A ``tf.data.Dataset`` of the run's steps ``start`` to ``stop``, counted over all epochs.

        Args:
            start, stop: epoch * steps_per_epoch + step.
            batch_size: rows of a batch; a divisor of this worker's rows of a step, which are the default.
                With fewer, the replicas' slices come one after the other.

        Returns:
            Dataset of dicts: images uint8 [b, S, S, 3], labels int32 [b], weights float32 [b] (0 for padding;
            see ``StreamPlan.weights``), ordinals int64 [b]. Without ``image_size``, images are
            [b, largest height, largest width, 3], zero beyond each one's own height and width, which are
            ``shapes`` int32 [b, 2].
        """
        steps = self._rows(start, stop).batch(self.order.num_rows, drop_remainder=True)
        steps = tf.data.Dataset.zip(tf.data.Dataset.range(start, stop), steps)
        examples = steps.map(self._planned, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        examples = examples.map(self._example, num_parallel_calls=tf.data.AUTOTUNE)
        rows = batch_size or self.order.num_rows
        batches = self._batched(examples, rows)
        if self._varies_batches:
            batches = batches.map(self._varied, num_parallel_calls=tf.data.AUTOTUNE)
        kept = ("images", "labels", "weights", "ordinals", *(() if self.image_size else ("shapes",)))
        batches = batches.map(lambda batch: {name: batch[name] for name in kept})
        count = (stop - start) * (self.order.num_rows // rows)
        return (
            batches.apply(tf.data.experimental.assert_cardinality(count))
            .prefetch(tf.data.AUTOTUNE)
            .with_options(in_order(self.budget))
        )

    def explain(self, error: Exception) -> ShardmillError | None:
        """The error of ours behind one of TensorFlow's, which names no shard; None where it has none."""
        if self.failure is None and isinstance(error, _OF_DATA):
            self.failure = self._found_damage(error)
        return self.failure

    # -- which records ---------------------------------------------------------------------------------

    def _rows(self, start: int, stop: int) -> Any:
        """The rows of the steps: (ordinal, image, channels) each."""
        first, step = divmod(start, self.order.steps_per_epoch)
        skipped = step * self.order.num_rows

        def rows_of(epoch: Any, seeds: Any) -> Any:
            passed_over = tf.where(epoch == first, tf.constant(skipped, tf.int64), tf.constant(0, tf.int64))
            return self._epoch(seeds).skip(passed_over)

        epochs = tf.data.Dataset.range(first, -(-stop // self.order.steps_per_epoch))
        return epochs.map(lambda epoch: (epoch, self._seeds(epoch))).flat_map(rows_of)

    def _seeds(self, epoch: Any) -> Any:
        """int64 [2]: of the order of the shards, and of the shuffle buffer."""

        def seeds(epoch: int) -> npt.NDArray[np.int64]:
            keys = [key_of(use, self.seed, int(epoch), self.order.worker)[0] for use in (_FILES, _RECORDS)]
            return (np.array(keys) >> np.uint64(1)).astype(np.int64)

        made = tf.numpy_function(seeds, [epoch], tf.int64, stateful=False)
        made.set_shape([2])
        return made

    def _epoch(self, seeds: Any) -> Any:
        """The rows of one epoch, padding last."""
        plan, mixed = self.order, self.shuffle_buffer > 0
        shards = tf.data.Dataset.range(len(plan.shard_examples)).shard(plan.num_workers, plan.worker)
        if mixed:
            shards = _shuffled(shards, len(plan.shards), seeds[0])
        records = shards.interleave(
            self.source.records,
            cycle_length=min(self.parallel_shards, len(plan.shards)) if mixed else 1,
            block_length=_INTERLEAVED_RECORDS,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        if mixed:
            records = _shuffled(records, self.shuffle_buffer, seeds[1])
        missing = plan.own_rows_per_epoch - plan.own_records
        if missing > 0:
            # Real images, so that batch normalisation sees some; of weight zero.
            first = tf.constant(plan.shards[0], tf.int64)
            records = records.concatenate(self.source.records(first).repeat().take(missing))
        return records.take(plan.own_rows_per_epoch)

    # -- what becomes of them --------------------------------------------------------------------------

    def _planned(self, run_step: Any, records: Any) -> dict[str, Any]:
        """One step's encoded images and all that is to be done with them."""
        ordinals, images, channels = records
        columns = {
            "shapes": (tf.int32, [3]),
            "windows": (tf.int32, [4]),
            "flips": (tf.bool, []),
            "labels": (tf.int32, []),
            "weights": (tf.float32, []),
            "positions": (tf.int64, []),
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
        draws = self._draws(epoch, positions, ordinals)
        table = self.reader.table
        shapes = np.stack([table.height[ordinals], table.width[ordinals], channels], axis=1)
        labels = table.label[ordinals]
        weights = self.order.weights(step)
        if self.class_weights is not None:
            weighed = self.class_weights[labels] * (weights > 0)
            weights = (weighed / weighed.sum()).astype(np.float32)
        return shapes, draws.windows, draws.flip_left_right, labels, weights, positions

    def _draws(
        self, epoch: int, positions: npt.NDArray[np.int64], ordinals: npt.NDArray[np.int64]
    ) -> augmentation.Draws:
        heights, widths = self.reader.table.height[ordinals], self.reader.table.width[ordinals]
        size = self.image_size or 1
        return augmentation.draw(self.augment, self.seed, epoch, positions, heights, widths, size)

    def _example(self, planned: dict[str, Any]) -> dict[str, Any]:
        """One example's pixels."""
        stored, shape, encoding = planned["stored"], planned["shapes"], self.reader.image_encoding
        if self.image_size is None:
            image = tf.ensure_shape(decode_image(stored, shape, encoding), [None, None, 3])
        else:
            image = decode_window(stored, shape, planned["windows"], self.image_size, encoding)
        if not self._varies_batches:
            image = tf.cond(planned["flips"], lambda: tf.reverse(image, [1]), lambda: image)
        kept = ("labels", "weights", "ordinals", "positions", "epochs")
        return {"images": image, "shapes": shape[:2]} | {name: planned[name] for name in kept}

    def _batched(self, examples: Any, rows: int) -> Any:
        if self.image_size is None:
            return examples.padded_batch(rows, drop_remainder=True)
        return examples.batch(rows, drop_remainder=True)

    @property
    def _varies_batches(self) -> bool:
        """Whether more is asked for than TensorFlow does to each example: then numpy does it, to batches."""
        if self.augment is None or self.image_size is None:
            return False
        return self.augment.varies_more_than_flips

    def _varied(self, batch: dict[str, Any]) -> dict[str, Any]:
        given = [batch[name] for name in ("images", "epochs", "positions", "ordinals")]
        images = tf.numpy_function(self._vary, given, tf.uint8, stateful=False)
        images.set_shape(batch["images"].shape)
        return batch | {"images": images}

    def _vary(
        self,
        images: npt.NDArray[np.uint8],
        epochs: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        ordinals: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint8]:
        draws = self._draws(int(epochs[0]), positions, ordinals)
        images = images.copy()  # the memory that is given belongs to TensorFlow
        for row in range(len(images)):
            augmentation.vary(images[row], draws, row)
        return images

    def _found_damage(self, error: Exception) -> ShardmillError:
        """The first record of this worker's shards that the exact reader does not find whole."""
        shards = self.reader.table.shard
        for ordinal in np.flatnonzero(np.isin(shards, self.order.shards)).tolist():
            try:
                self.reader.read(ordinal)
            except ShardmillError as found:
                return found
        paths = ", ".join(self.reader.table.paths[shard] for shard in self.order.shards[:3])
        return CorruptDataError(f"TensorFlow cannot read an example of {paths} …: {error}")


def _shuffled(dataset: Any, buffer_size: int, seed: Any) -> Any:
    """As ``Dataset.shuffle``, which mixes the seed with the one that is set for the whole process."""
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
