"""The indexed ``tf.data`` pipeline: reads any record at any time, in the exact order.

With the decoder ``turbo`` (the default), everything up to the batch happens in one function outside
TensorFlow's kernels, which is 1.4 times as fast (training.reading.batches.maker)::

    steps ─► batch (two at a time, by a pool of threads: pread, inflate, check, decode, crop, resize, vary)
          ─► prefetch

With ``tensorflow``, pixels are TensorFlow's work::

    steps ─► fetch (parallel: plan the step, pread, inflate, check, parse; draw windows and flips)
          ─► one example at a time ─► decode a window, resize, flip (parallel) ─► batch ─► vary ─► prefetch

The order in is the order out, however many calls run in parallel. A pipeline holds no state that matters: one
made from (epoch, step) goes on as the unbroken one would.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infra.errors import ShardmillError
from training.arrays import Floats
from training.augment import augment_image
from training.config.augment import AugmentSettings
from training.config.reading import Decoder
from training.order import Order, StepPlan
from training.reading import BatchMaker, RecordReader
from training.reading.budget import RamBudget
from training.tf_data.pipeline import in_channels, in_order
from training.tf_data.preprocess import decode_window

# Batches made at the same time: the next one begins while the last rows of one are decoded. Few, so that
# their memory stays in the processor's cache.
_BATCHES_AT_A_TIME = 2
_READY_BATCHES = 1


@dataclass
class IndexedPipeline:
    """Batches of one split in a given order.

    Attributes:
        reader: the records of the split.
        order: the order of the records.
        image_size: height and width of the images (pixels); None: whole images, padded to the largest of each
            batch, which TensorFlow does not decode.
        augment: how training examples are augmented; None for evaluation.
        decoder: the decoder of stored images.
        budget: the memory budget; None: that of ``tf.data``.
        image_channels: 3, or 1 for the luma of the images.
        own_rows: the rows of each global batch that this process reads; None: all.
        failure: the first error of this project inside TensorFlow, which passes on only its text.
    """

    reader: RecordReader
    order: Order
    image_size: int | None
    augment: AugmentSettings | None = None
    decoder: Decoder = "auto"
    budget: RamBudget | None = None
    image_channels: int = 3
    own_rows: slice | None = None
    failure: ShardmillError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # TensorFlow augments after it has decoded, and becomes grey after that.
        channels = 3 if self.decoder == "tensorflow" else self.image_channels
        self.batches = BatchMaker(
            self.reader, image_size=self.image_size, augment=self.augment, image_channels=channels
        )

    @property
    def rows(self) -> slice:
        """The rows of each global batch that this process reads."""
        return self.own_rows or slice(0, self.order.global_batch_size)

    @property
    def num_rows(self) -> int:
        """The number of rows of each global batch that this process reads."""
        return int(self.rows.stop - self.rows.start)

    @property
    def _label_type(self) -> Any:
        return tf.float32 if self.reader.table.label_shape else tf.int32

    @property
    def class_weights(self) -> Floats | None:
        """The weights of the classes in the loss."""
        return self.order.class_weights

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """Return a ``tf.data.Dataset`` of the run's steps ``start`` to ``stop``, counted over all epochs.

        Args:
            start: the first step (epoch * steps_per_epoch + step).
            stop: the step behind the last one.
            batch_size: rows of a batch; a divisor of the rows of this process, which are the default. With
                fewer, the replicas' slices come one after the other.

        Returns:
            Dataset of dicts: images uint8 [b, S, S, C], labels (``SplitTable.labels_of``), weights float32
            [b] (``StepPlan.weights``), ordinals int64 [b]. Without ``image_size``, images are
            [b, largest height, largest width, 3], zero beyond each one's own height and width, which are
            ``sizes`` int32 [b, 2].
        """
        self.reader.prefetch(self.order, start, stop)
        rows = batch_size or self.num_rows
        slices = self.num_rows // rows
        if self.decoder == "tensorflow" and self.image_size is not None:
            batches = in_channels(self._decoded_by_tensorflow(start, stop, rows, slices), self.image_channels)
        else:
            batches = self._decoded_outside(start, stop, rows, slices)
        return (
            batches.apply(tf.data.experimental.assert_cardinality((stop - start) * slices))
            .prefetch(_READY_BATCHES)
            .with_options(in_order(self.budget))
        )

    def explain(self, error: Exception) -> ShardmillError | None:
        """See ``Pipeline``."""
        return self.failure

    # -- decoded outside TensorFlow --------------------------------------------------------------------

    def _decoded_outside(self, start: int, stop: int, rows: int, slices: int) -> Any:
        def batch(run_slice: Any) -> dict[str, Any]:
            kinds = {
                "images": tf.uint8,
                "labels": self._label_type,
                "weights": tf.float32,
                "ordinals": tf.int64,
            }
            if self.image_size is None:
                kinds["sizes"] = tf.int32
            made = tf.numpy_function(
                lambda number: self._make(int(number), slices), [run_slice], list(kinds.values())
            )
            made[0].set_shape([rows, self.image_size, self.image_size, self.image_channels])
            made[1].set_shape([rows, *self.reader.table.label_shape])
            for column in made[2:4]:
                column.set_shape([rows])
            if self.image_size is None:
                made[4].set_shape([rows, 2])
            return dict(zip(kinds, made, strict=True))

        numbers = tf.data.Dataset.range(start * slices, stop * slices)
        return numbers.map(batch, num_parallel_calls=_BATCHES_AT_A_TIME)

    def _make(self, run_slice: int, slices: int) -> tuple[npt.NDArray[Any], ...]:
        """Make the batch of one slice of a step. Slices are counted over the whole run."""
        try:
            run_step, number = divmod(run_slice, slices)
            made = self.batches.make(self._plan(run_step).of_rank(number, slices))
        except ShardmillError as error:
            self.failure = self.failure or error
            raise
        columns = made.images, made.labels, made.weights, made.ordinals
        return (*columns, made.sizes) if self.image_size is None else columns

    def _plan(self, run_step: int) -> StepPlan:
        return self.order.step(*divmod(run_step, self.order.steps_per_epoch)).of_rows(self.rows)

    # -- decoded by TensorFlow -------------------------------------------------------------------------

    def _decoded_by_tensorflow(self, start: int, stop: int, rows: int, slices: int) -> Any:
        dataset = tf.data.Dataset.range(start, stop)
        dataset = dataset.map(self._fetch, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
        dataset = dataset.map(self._example, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.batch(rows, drop_remainder=True)
        if self.augment is None or not self.augment.needs_more_than_flips:
            return dataset
        numbers = tf.data.Dataset.range(start * slices, stop * slices)

        def varied(batch: dict[str, Any], run_slice: Any) -> dict[str, Any]:
            images = tf.numpy_function(
                lambda made, number: self._augment_rows(made, int(number), slices),
                [batch["images"], run_slice],
                tf.uint8,
            )
            return batch | {"images": tf.ensure_shape(images, batch["images"].shape)}

        pairs = tf.data.Dataset.zip((dataset, numbers))
        return pairs.map(varied, num_parallel_calls=_BATCHES_AT_A_TIME)

    def _augment_rows(
        self, images: npt.NDArray[np.uint8], run_slice: int, slices: int
    ) -> npt.NDArray[np.uint8]:
        """Augment a batch, except for windows and flips from left to right, which TensorFlow has done."""
        run_step, number = divmod(run_slice, slices)
        parameters = self.batches.parameters(self._plan(run_step).of_rank(number, slices))
        rest = replace(parameters, flip_left_right=np.zeros_like(parameters.flip_left_right))
        images = images.copy()  # TensorFlow owns the array that it passes in
        for row, image in enumerate(images):
            augment_image(image, rest, row)
        return images

    def _fetch(self, run_step: Any) -> dict[str, Any]:
        """Fetch the encoded images of one step and the parameters of their augmentation."""
        kinds = (tf.string, tf.int32, tf.int32, tf.bool, self._label_type, tf.float32, tf.int64)
        fetched = tf.numpy_function(self._read_step, [run_step], kinds, stateful=False)
        names = ("images", "shapes", "windows", "flips", "labels", "weights", "ordinals")
        rows = self.num_rows
        columns = {"shapes": [3], "windows": [4], "labels": list(self.reader.table.label_shape)}
        for tensor, name in zip(fetched, names, strict=True):
            tensor.set_shape([rows, *columns.get(name, [])])
        return dict(zip(names, fetched, strict=True))

    def _read_step(self, run_step: int) -> tuple[npt.NDArray[Any], ...]:
        try:
            plan = self._plan(int(run_step))
            self.reader.advance(plan.epoch, plan.step)
            records, plan = self.reader.read_plan(plan)
        except ShardmillError as error:
            self.failure = self.failure or error
            raise
        parameters = self.batches.parameters(plan)
        return (
            np.array([record.image for record in records], dtype=object),
            np.array([record.shape for record in records], dtype=np.int32),
            parameters.windows,
            parameters.flip_left_right,
            self.reader.table.labels_of(plan.ordinals),
            plan.weights,
            plan.ordinals,
        )

    def _example(self, fetched: dict[str, Any]) -> dict[str, Any]:
        assert self.image_size is not None, "TensorFlow decodes images of one size"
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
