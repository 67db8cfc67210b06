"""Make the batches of an order's steps as numpy arrays: fetch, decode, crop, resize and augment, in threads.

``tf.data``, PyTorch and plain Python all read through this module, so they see the same pixels. Each row is a
function of the step's plan alone; the threads only divide the rows among themselves.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.processes.process import num_cpus
from shardmill.training.augment.parameters import AugmentParameters, augment_image, draw_parameters
from shardmill.training.augment.windows import whole_windows
from shardmill.training.order import Order, Passes, Shares, StepPlan
from shardmill.training.reading.batch import Batch, BufferPool
from shardmill.training.reading.decode import Pixels, Window, decode_window, luma
from shardmill.training.reading.example_spec import BatchOptions, ExampleSpec
from shardmill.training.reading.records.annotations import FOLLOWING, Masks, Objects, batch_dtype, fill_mask
from shardmill.training.reading.records.columns import Padded
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.reading.records.shapes import Views
from shardmill.training.reading.records.split_records import without_rows

T = TypeVar("T")

# Rows that a thread takes at a time: many, so that handing them over costs little, but few enough that each
# thread gets several turns and all end together.
_MOST_ROWS, _LEAST_ROWS, _TURNS = 16, 4, 4
_AHEAD = 2  # batches that are made while the caller works on one


@checked
class BatchMaker:
    """Makes batches of one split's records. Safe for many threads; pickles without its threads."""

    def __init__(
        self,
        records: RecordReader,
        spec: ExampleSpec | None = None,
        *,
        threads: int | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        """Make a maker that has no threads yet.

        Args:
            records: the records of the split.
            spec: what batches hold; None: as ``options`` say.
            threads: the number of threads that decode; default: one for each CPU of this process. With 1 the
                calling thread decodes.
            **options: what batches hold; see ``BatchOptions``.

        Raises:
            UsageError: whole images cannot be augmented.
            ConfigError: boxes or masks cannot follow the augmentation of their images, or it or the wanted
                channels do not fit the images.
        """
        at_least(1, threads=threads)
        self.records = records
        self.spec = ExampleSpec.of_options(spec, **options).of_version(records.split.version)
        self._check_follow()
        self.threads = num_cpus() if threads is None else threads
        self._start()

    def _check_follow(self) -> None:
        """Check that objects and masks can follow the augmentation of their images."""
        augment, objects, size = self.spec.augment, self.spec.objects, self.spec.image_size
        if augment is None or size is None:
            return
        if objects is not None:
            objects.check_follow(augment, size)
        elif self.records.table.mask is not None:
            augment.check_objects_follow()

    def _start(self) -> None:
        self._buffers = BufferPool()
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def make(self, plan: StepPlan, parameters: AugmentParameters | None = None) -> Batch:
        """Make the batch of a step.

        Args:
            plan: the examples.
            parameters: those of their augmentation; None: they are drawn.

        Raises:
            CorruptDataError: a record is damaged and may not be left out; names the record and its shard.
        """
        self.records.advance(plan.epoch, plan.step)
        rows = plan.ordinals.size
        drawn = self.parameters(plan) if parameters is None else parameters
        sizes = self._sizes(drawn)
        height, width = sizes.max(axis=0, initial=0).tolist()
        decoded = self.spec.samples.decoded
        images = self._buffers.take((rows, height, width, decoded.channels), decoded.dtype)
        stored = self.records.table.mask
        masks = None if stored is None else np.empty((rows, height, width), batch_dtype(stored))

        at_a_time = min(max(rows // (_TURNS * self.threads), _LEAST_ROWS), _MOST_ROWS)

        def fill(start: int) -> list[int]:
            return self._fill(plan.ordinals[start : start + at_a_time], start, drawn, images, masks)

        starts = range(0, rows, at_a_time)
        if self.threads == 1:
            bad = [row for start in starts for row in fill(start)]
        else:
            bad = _finish([self._threads().submit(fill, start) for start in starts])
        if bad:
            plan, donor = without_rows(plan, bad)
            images[bad] = 0 if donor is None else images[donor]
            if masks is not None and stored is not None:
                masks[bad] = stored.ignore if donor is None else masks[donor]
            if donor is not None:
                sources = np.arange(rows)
                sources[bad] = donor
                drawn, sizes = drawn.of_rows(sources), sizes[sources]
        objects, following = self.objects_of(plan, drawn)
        if self.spec.samples.channels < decoded.channels:
            images = luma(images)
        ordinals = plan.ordinals
        labels = self.records.table.labels_of(ordinals) if masks is None else masks
        _, others = self.spec.features.divided(following)
        features = {**following, **(others.rows(ordinals) if others.features else {})}
        features = {one.name: features[one.name] for one in self.spec.features.features}
        return Batch(
            images,
            sizes,
            labels,
            plan.weights,
            ordinals,
            plan.positions,
            plan.epoch,
            plan.step,
            features,
            objects,
        )

    def objects_of(
        self, plan: StepPlan, parameters: AugmentParameters
    ) -> tuple[Objects | None, dict[str, Padded]]:
        """Return the objects to be seen in a step's images, None if they were not asked for; and features."""
        objects = self.spec.objects
        if objects is None:
            return None, {}
        table, names = self.records.table, [one.name for one in self.spec.features.features]
        views = Views(parameters, table.height[plan.ordinals], table.width[plan.ordinals])
        shown = objects.shown(plan.ordinals, views)
        return objects.padded(shown), objects.features(shown, [one for one in names if one in FOLLOWING])

    def _sizes(self, parameters: AugmentParameters) -> npt.NDArray[np.int32]:
        """Return height and width of each image of a batch: int32 [b, 2]."""
        sizes, size = parameters.windows[:, 2:], self.spec.image_size
        return sizes.copy() if size is None else np.full_like(sizes, size)

    def parameters(self, plan: StepPlan) -> AugmentParameters:
        """Draw the parameters of augmentation of a step's examples."""
        table, spec = self.records.table, self.spec
        heights, widths = table.height[plan.ordinals], table.width[plan.ordinals]
        if spec.image_size is None:
            return AugmentParameters(whole_windows(heights, widths))
        return draw_parameters(
            spec.augment, plan.seed, plan.epoch, plan.positions, heights, widths, spec.image_size, spec.fit
        )

    def _fill(
        self,
        ordinals: npt.NDArray[np.int64],
        start: int,
        parameters: AugmentParameters,
        images: Pixels,
        masks: Masks | None,
    ) -> list[int]:
        """Fill the rows from ``start`` on. Return the rows whose records are damaged and left out.

        Each record is read when it is decoded: other threads would wait while many are parsed in a row.
        """
        bad = []
        for row, ordinal in enumerate(ordinals.tolist(), start):
            try:
                self._fill_row(ordinal, row, parameters, images, masks)
            except CorruptDataError as error:
                self.records.split.leave_out(ordinal, error)
                bad.append(row)
        return bad

    def _fill_row(
        self, ordinal: int, row: int, parameters: AugmentParameters, images: Pixels, masks: Masks | None
    ) -> None:
        (stored,) = self.records.read_images(np.array([ordinal]))
        size, window, out = self.spec.image_size, tuple(parameters.windows[row].tolist()), images[row]
        if size is None:
            out = _without_padding(out, window)
        encoding, decoding = self.records.encoding_of(ordinal), self.spec.data.decoding
        mirrored = parameters.mirrors(row)
        try:
            decode_window(stored.image, encoding, stored.shape, window, out, mirrored, decoding)
            if masks is not None and (form := self.records.table.mask) is not None:
                fill_mask(stored, parameters, row, size, form.ignore, masks[row])
        except CorruptDataError as error:
            raise self.records.split.named(ordinal, error) from error
        augment_image(images[row], parameters, row, mirrored)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, "shardmill-batch")
            return self._pool

    def __getstate__(self) -> dict[str, Any]:
        made = ("_buffers", "_pool", "_lock")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        """End the threads, once the batches that they have begun are made."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


def _without_padding(out: Pixels, window: Window) -> Pixels:
    """Fill the padding of a row with zeros. Return the view of the image in it."""
    _, _, height, width = window
    out[height:] = 0
    out[:height, width:] = 0
    return out[:height, :width]


def _finish(tasks: list[Future[list[int]]]) -> list[int]:
    """Return the rows of all tasks. On an error cancel the tasks that have not begun, and raise it."""
    try:
        wait(tasks, return_when=FIRST_EXCEPTION)  # waiting for each by itself would wake this thread for each
        return [row for task in tasks for row in task.result()]
    except BaseException:
        for task in tasks:
            task.cancel()
        raise


def made_ahead(steps: Iterable[int], make: Callable[[int], T]) -> Iterator[T]:
    """Yield what ``make`` returns for each step. It is called in threads, two steps ahead of use."""
    with ThreadPoolExecutor(2, "shardmill-ahead") as ahead:
        made: deque[Future[T]] = deque()
        try:
            for step in steps:
                made.append(ahead.submit(make, step))
                if len(made) > _AHEAD:
                    yield made.popleft().result()
            while made:
                yield made.popleft().result()
        finally:
            for batch in made:
                batch.cancel()


@dataclass(frozen=True, slots=True)
class NumpyBatches:
    """Batches of one split. Each iteration is the next pass; its length is that of the pass to come.

    Attributes:
        maker: maker of the batches.
        order: the order of the records.
        passes: the steps of each iteration.
        rank, num_ranks, shares: whose slice of each step.
        cut_padding: leave the padding of a last step out; the batch is smaller then.
        is_weighted: batches unpack to images, labels and weights.
    """

    maker: BatchMaker
    order: Order
    passes: Passes
    rank: int = 0
    num_ranks: int = 1
    shares: Shares | None = None
    cut_padding: bool = False
    is_weighted: bool = False

    def __len__(self) -> int:
        return len(self.passes.upcoming)

    def __repr__(self) -> str:
        records = self.maker.records
        ranks = "" if self.num_ranks == 1 else f", rank {self.rank} of {self.num_ranks}"
        epoch = self.passes.upcoming.start // self.order.steps_per_epoch
        return (
            f"<{len(self)} batches of {self.order.global_batch_size}{ranks}: {records.split.version.ref} "
            f"{records.table.split}, epoch {epoch}>"
        )

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the next pass.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        return self.through(lambda batch: batch)

    def through(self, function: Callable[[Batch], T]) -> Iterator[T]:
        """Return what a function makes of the batches of the next pass, in the threads that made them."""
        steps = self.passes.begin()
        self.maker.records.prefetch(self.order, steps.start, steps.stop)
        yield from made_ahead(steps, lambda step: function(self._make(step)))

    def _make(self, run_step: int) -> Batch:
        made = self.maker.make(self.plan(run_step))
        return replace(made, is_weighted=True) if self.is_weighted else made

    def plan(self, run_step: int) -> StepPlan:
        """Return the rank's rows of a step.

        Args:
            run_step: counted over all epochs.
        """
        plan = self.order.step(*divmod(run_step, self.order.steps_per_epoch))
        if self.cut_padding:
            plan = _real_part(plan)
        return plan.of_rank(self.rank, self.num_ranks, self.shares)


def _real_part(plan: StepPlan) -> StepPlan:
    """Return the plan without its padding, which comes last."""
    real = slice(plan.num_real)
    return replace(
        plan, positions=plan.positions[real], ordinals=plan.ordinals[real], weights=plan.weights[real]
    )
