"""The indexed ``tf.data`` pipeline: reads any record at any time, in the exact order.

With the decoder ``turbo`` (the default), everything up to the batch happens in one function outside
TensorFlow's kernels, which is 1.4 times as fast (shardmill.training.reading.batches.maker)::

    steps ─► batch (two at a time, by a pool of threads: pread, inflate, check, decode, crop, resize, vary)
          ─► prefetch

With ``tensorflow``, pixels are TensorFlow's work
(``shardmill.training.tensorflow.data.decoding.by_tensorflow``).

The order in is the order out, however many calls run in parallel. A pipeline holds no state that matters: one
made from (epoch, step) goes on as the unbroken one would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf

from shardmill.infra.errors import ConfigError, ShardmillError
from shardmill.training.arrays import Floats
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config.reading import Decoder
from shardmill.training.models.spec import Fit
from shardmill.training.order import Order, StepPlan
from shardmill.training.reading import BatchMaker, RecordReader
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.records.objects import SplitObjects
from shardmill.training.tensorflow.data.decoding.by_tensorflow import TensorFlowDecoding
from shardmill.training.tensorflow.data.decoding.columns import Column, LabelColumns, call
from shardmill.training.tensorflow.data.image_augment import ImageAugment
from shardmill.training.tensorflow.data.pipeline import in_channels, in_order

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
    def _label_columns(self) -> LabelColumns:
        return LabelColumns.of(self.reader.table, self.objects, self.image_size)

    @property
    def class_weights(self) -> Floats | None:
        """The weights of the classes in the loss."""
        return self.order.class_weights

    @property
    def is_tuned(self) -> bool:
        """Whether TensorFlow decodes, with as many calls in parallel as it finds best."""
        return self.decoder == "tensorflow" and self.image_size is not None

    def prepare(self, start: int, stop: int) -> None:
        """See ``Pipeline``."""
        self.reader.prefetch(self.order, start, stop)

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
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
        rows = self.num_rows if batch_size is None else batch_size
        slices = self.num_rows // rows
        if self.is_tuned:
            batches = self._decoded_by_tensorflow(start, stop, rows, slices)
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

    def _decoded_outside(self, start: Any, stop: Any, rows: int, slices: int) -> Any:
        sides = self.image_size, self.image_size
        columns = {
            "images": Column(tf.uint8, (*sides, self.image_channels)),
            "weights": Column(tf.float32, ()),
            "ordinals": Column(tf.int64, ()),
            "sizes": Column(tf.int32, (2,)),
        }
        if self.image_size is not None:
            del columns["sizes"]
        labels = self._label_columns
        every = {**columns, **labels.columns}

        def batch(run_slice: Any) -> dict[str, Any]:
            return labels.gathered(call(partial(self._make, slices=slices), run_slice, every, rows))

        numbers = tf.data.Dataset.range(start * slices, stop * slices)
        return numbers.map(batch, num_parallel_calls=_BATCHES_AT_A_TIME)

    def _make(self, run_slice: int, slices: int) -> dict[str, Any]:
        """Make the batch of one slice of a step. Slices are counted over the whole run."""
        run_step, number = divmod(run_slice, slices)
        with self._failures():
            made = self.batches.make(self._plan(run_step).of_rank(number, slices))
        arrays = {"images": made.images, "weights": made.weights, "ordinals": made.ordinals}
        return {**arrays, "sizes": made.sizes, **self._label_columns.arrays(made.labels, made.objects)}

    # -- decoded by TensorFlow -------------------------------------------------------------------------

    def _decoded_by_tensorflow(self, start: Any, stop: Any, rows: int, slices: int) -> Any:
        assert self.image_size is not None, "TensorFlow decodes images of one size"
        decoding = TensorFlowDecoding(
            reader=self.reader,
            maker=self.batches,
            labels=self._label_columns,
            image_size=self.image_size,
            augment=ImageAugment(self.augment, self.image_size),
            rows_of_step=self.num_rows,
            plan=self._plan,
            failures=self._failures,
        )
        return in_channels(decoding.dataset(start, stop, rows, slices), self.image_channels)

    # -- of both ---------------------------------------------------------------------------------------

    def _plan(self, run_step: int) -> StepPlan:
        return self.order.step(*divmod(run_step, self.order.steps_per_epoch)).of_rows(self.rows)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Remember the first error of this project."""
        try:
            yield
        except ShardmillError as error:
            self.failure = self.failure or error
            raise
