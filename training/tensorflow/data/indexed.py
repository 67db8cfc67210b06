"""The indexed ``tf.data`` pipeline: reads any record at any time, in the exact order.

With the decoder ``turbo`` (the default), everything up to the batch happens in one function outside
TensorFlow's kernels, which is 1.4 times as fast (shardmill.training.reading.batch_maker)::

    steps ─► batch (two at a time, by a pool of threads: pread, inflate, check, decode, crop, resize, vary)
          ─► prefetch

With ``tensorflow``, pixels are TensorFlow's work
(``shardmill.training.tensorflow.data.by_tensorflow``).

The order in is the order out, however many calls run in parallel. A pipeline holds no state that matters: one
made from (epoch, step) goes on as the unbroken one would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import tensorflow as tf

from shardmill.infra.errors import ConfigError, ShardmillError
from shardmill.training.order import Order, StepPlan
from shardmill.training.reading import BatchMaker, RecordReader
from shardmill.training.reading.budget import RamBudget
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.annotations import FOLLOWING
from shardmill.training.tensorflow.data.by_tensorflow import TensorFlowDecoding
from shardmill.training.tensorflow.data.columns import Column, LabelColumns, call
from shardmill.training.tensorflow.data.pipeline import Pipeline, in_channels, in_order

# Batches made at the same time: the next one begins while the last rows of one are decoded. Few, so that
# their memory stays in the processor's cache.
_BATCHES_AT_A_TIME = 2
_READY_BATCHES = 1


class IndexedPipeline(Pipeline):
    """Batches of one split in a given order."""

    order: Order

    def __init__(
        self,
        reader: RecordReader,
        order: Order,
        spec: ExampleSpec,
        budget: RamBudget | None = None,
        rows: slice | None = None,
        threads: int | None = None,
    ) -> None:
        """Make a pipeline that has read nothing yet.

        Args:
            reader: the records of the split.
            order: the order of the records.
            spec: what batches hold. Without their features ``objects`` are the labels. TensorFlow does not
                decode whole images.
            budget: the memory budget; None: that of ``tf.data``.
            rows: the rows of each global batch that this process reads; None: all.
            threads: threads that decode; None: one for each processor.

        Raises:
            ConfigError: TensorFlow cannot decode the images or masks, or masks and boxes cannot follow the
                augmentation.
        """
        by_tensorflow = spec.reading.decoder == "tensorflow"
        if by_tensorflow:
            reader.split.check_one_encoding("reading.decoder = 'tensorflow'")
        if by_tensorflow and reader.table.mask is not None:
            raise ConfigError("reading.decoder = 'tensorflow' reads no masks", "set reading.decoder to auto")
        spec = spec.of_version(reader.split.version)
        if by_tensorflow and not spec.samples.is_common:
            raise ConfigError(
                f"reading.decoder = 'tensorflow' reads no {spec.samples}", "set reading.decoder to auto"
            )
        self.reader, self.order, self.spec, self.budget = reader, order, spec, budget
        self.rows = rows or slice(0, order.global_batch_size)
        self.class_weights = order.class_weights
        self.is_tuned = by_tensorflow and spec.image_size is not None
        # Other features become tensors elsewhere (``as_pairs``).
        following = spec.features.divided(FOLLOWING if spec.objects is not None else ())[0]
        self.batches = BatchMaker(reader, replace(spec, features=following), threads=threads)
        self._labels = LabelColumns.of(reader.table, self.batches.spec)
        # The first error of this project inside TensorFlow, which passes on only its text.
        self._failure: ShardmillError | None = None

    def prepare(self, start: int, stop: int) -> None:
        """See ``Pipeline``."""
        self.reader.prefetch(self.order, start, stop)

    def dataset(self, start: Any, stop: Any, batch_size: int | None = None) -> Any:
        """See ``Pipeline``. Whole images have their height and width in ``sizes``, int32 [b, 2]."""
        own = self.rows.stop - self.rows.start
        rows = own if batch_size is None else batch_size
        slices = own // rows
        decode = self._decoded_by_tensorflow if self.is_tuned else self._decoded_outside
        batches = decode(start, stop, rows, slices)
        return (
            batches.apply(tf.data.experimental.assert_cardinality((stop - start) * slices))
            .prefetch(_READY_BATCHES)
            .with_options(in_order(self.budget))
        )

    def explain(self, error: Exception) -> ShardmillError | None:
        """See ``Pipeline``."""
        return self._failure

    # -- decoded outside TensorFlow --------------------------------------------------------------------

    def _decoded_outside(self, start: Any, stop: Any, rows: int, slices: int) -> Any:
        columns = {
            "images": Column(tf.as_dtype(self.spec.samples.dtype), self.spec.image_shape),
            "weights": Column(tf.float32, ()),
            "ordinals": Column(tf.int64, ()),
        }
        if self.spec.image_size is None:
            columns["sizes"] = Column(tf.int32, (2,))
        labels = self._labels
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
        labels = self._labels.arrays(made.labels, made.objects, made.features)
        return {**arrays, "sizes": made.sizes, **labels}

    # -- decoded by TensorFlow -------------------------------------------------------------------------

    def _decoded_by_tensorflow(self, start: Any, stop: Any, rows: int, slices: int) -> Any:
        decoding = TensorFlowDecoding(self.batches, self._labels, self._plan, self._failures)
        return in_channels(decoding.dataset(start, stop, rows, slices), self.spec)

    # -- of both ---------------------------------------------------------------------------------------

    def _plan(self, run_step: int) -> StepPlan:
        return self.order.step(*divmod(run_step, self.order.steps_per_epoch)).of_rows(self.rows)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Remember the first error of this project."""
        try:
            yield
        except ShardmillError as error:
            self._failure = self._failure or error
            raise
