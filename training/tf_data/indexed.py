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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infra.errors import ConfigError, ShardmillError
from training.arrays import Floats
from training.augment import augment_image
from training.config.augment import AugmentSettings
from training.config.reading import Decoder
from training.models.spec import Fit
from training.order import Order, StepPlan
from training.reading import BatchMaker, RecordReader
from training.reading.budget import RamBudget
from training.reading.records.masks import batch_dtype
from training.reading.records.objects import Objects, SplitObjects
from training.tf_data.pipeline import in_channels, in_order
from training.tf_data.preprocess import decode_window

# Batches made at the same time: the next one begins while the last rows of one are decoded. Few, so that
# their memory stays in the processor's cache.
_BATCHES_AT_A_TIME = 2
_READY_BATCHES = 1


class Column(NamedTuple):
    """The type of a tensor of a batch, and its shape for one example."""

    kind: Any
    shape: tuple[int | None, ...]


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
        objects: the objects in the images, which are the labels then; None: ``SplitTable.labels_of``.
        fit: what is seen of an image without a random window.
        threads: threads that decode; None: one for each processor.
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
    objects: SplitObjects | None = None
    fit: Fit = "crop"
    threads: int | None = None
    failure: ShardmillError | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.decoder == "tensorflow" and self.reader.table.mask is not None:
            raise ConfigError("reading.decoder = 'tensorflow' reads no masks", "set reading.decoder to auto")
        # TensorFlow augments after it has decoded, and becomes grey after that.
        channels = 3 if self.decoder == "tensorflow" else self.image_channels
        self.batches = BatchMaker(
            self.reader,
            image_size=self.image_size,
            augment=self.augment,
            threads=self.threads,
            image_channels=channels,
            objects=self.objects,
            fit=self.fit,
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
    def _label_columns(self) -> list[Column]:
        """The tensors of the labels of an example."""
        if (mask := self.reader.table.mask) is not None:
            return [Column(tf.as_dtype(batch_dtype(mask)), (self.image_size, self.image_size))]
        if self.objects is None:
            shape = self.reader.table.label_shape
            return [Column(tf.float32 if shape else tf.int32, shape)]
        most = self.objects.most
        return [Column(tf.float32, (most, 4)), Column(tf.int32, (most,)), Column(tf.bool, (most,))]

    def _labels(self, parts: list[Any]) -> Any:
        """Return the labels of a batch: one tensor, or those of ``Objects`` by name."""
        return parts[0] if self.objects is None else Objects(*parts)._asdict()

    @property
    def class_weights(self) -> Floats | None:
        """The weights of the classes in the loss."""
        return self.order.class_weights

    @property
    def is_tuned(self) -> bool:
        """Whether TensorFlow decodes, with as many calls in parallel as it finds best."""
        return self.decoder == "tensorflow" and self.image_size is not None

    def dataset(self, start: int, stop: int, batch_size: int | None = None) -> Any:
        """Return a ``tf.data.Dataset`` of the run's steps ``start`` to ``stop``, counted over all epochs.

        Args:
            start: the first step (epoch * steps_per_epoch + step).
            stop: the step behind the last one.
            batch_size: rows of a batch; a divisor of the rows of this process, which are the default. With
                fewer, the replicas' slices come one after the other.

        Returns:
            Dataset of dicts: images uint8 [b, S, S, C], labels (as of ``Batch``, or ``Objects`` by
            name), weights float32 [b] (``StepPlan.weights``), ordinals int64 [b]. Without ``image_size``,
            images are [b, largest height, largest width, 3], zero beyond each one's own height and width,
            which are ``sizes`` int32 [b, 2].
        """
        self.reader.prefetch(self.order, start, stop)
        rows = batch_size or self.num_rows
        slices = self.num_rows // rows
        if self.is_tuned:
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
            sides = self.image_size, self.image_size
            columns = {
                "images": Column(tf.uint8, (*sides, self.image_channels)),
                "weights": Column(tf.float32, ()),
                "ordinals": Column(tf.int64, ()),
                "sizes": Column(tf.int32, (2,)),
            }
            every = [*columns.values(), *self._label_columns]
            made = tf.numpy_function(
                lambda number: self._make(int(number), slices), [run_slice], [one.kind for one in every]
            )
            for tensor, column in zip(made, every, strict=True):
                tensor.set_shape([rows, *column.shape])
            found = dict(zip(columns, made, strict=False))
            if self.image_size is not None:
                del found["sizes"]
            return found | {"labels": self._labels(made[len(columns) :])}

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
        labels = made.objects or (made.labels,)
        return made.images, made.weights, made.ordinals, made.sizes, *labels

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
        columns = {
            "images": Column(tf.string, ()),
            "shapes": Column(tf.int32, (3,)),
            "windows": Column(tf.int32, (4,)),
            "flips": Column(tf.bool, ()),
            "weights": Column(tf.float32, ()),
            "ordinals": Column(tf.int64, ()),
        }
        every = [*columns.values(), *self._label_columns]
        fetched = tf.numpy_function(self._read_step, [run_step], [one.kind for one in every], stateful=False)
        for tensor, column in zip(fetched, every, strict=True):
            tensor.set_shape([self.num_rows, *column.shape])
        found = dict(zip(columns, fetched, strict=False))
        return found | {"labels": self._labels(fetched[len(columns) :])}

    def _read_step(self, run_step: int) -> tuple[npt.NDArray[Any], ...]:
        try:
            plan = self._plan(int(run_step))
            self.reader.advance(plan.epoch, plan.step)
            records, plan = self.reader.read_plan(plan)
        except ShardmillError as error:
            self.failure = self.failure or error
            raise
        parameters = self.batches.parameters(plan)
        labels = self.batches.objects_of(plan, parameters) or (self.reader.table.labels_of(plan.ordinals),)
        return (
            np.array([record.image for record in records], dtype=object),
            np.array([record.shape for record in records], dtype=np.int32),
            parameters.windows,
            parameters.flip_left_right,
            plan.weights,
            plan.ordinals,
            *labels,
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
