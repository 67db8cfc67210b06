"""Data sources and a sampler for Grain, in the order of every other reader (``Dataset.grain``).

Grain asks a source for elements by number, in threads and in worker processes. Here the number is a place in
the order: element k is the k-th example that a rank reads, over all epochs. The place decides the pixels, as
everywhere (``shardmill.training.draws``). So a ``MapDataset`` over a source is shuffled already, and the
sampler of a ``DataLoader`` counts.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, SupportsIndex

import grain
import numpy as np

from shardmill.infra.errors import UsageError
from shardmill.infra.format.examples import ImageRecord
from shardmill.infra.strict_json import dump_json
from shardmill.training.augment.parameters import AugmentParameters
from shardmill.training.draws import Purpose, key_of
from shardmill.training.order import StepPlan
from shardmill.training.order.recent_values import RecentValues
from shardmill.training.reading.batch import Batch
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.records.columns import Padded

_KEPT_STEPS = 4  # threads of Grain read neighbouring places


class Places:
    """The places of a rank in the order, by number. Safe for many threads; picklable.

    Attributes:
        batches: the batches of the rank.
        batched: a place is a whole step, not an example.
        rows: the examples that the rank takes of each step; of the last one perhaps fewer, or one more.
    """

    def __init__(self, batches: NumpyBatches, *, batched: bool) -> None:
        """Number the places of the next pass of ``batches``."""
        self.batches, self.batched = batches, batched
        self._steps = batches.passes.upcoming
        self._plans = RecentValues(batches.plan, kept=_KEPT_STEPS)
        self._drawn = RecentValues(self._draw, kept=_KEPT_STEPS)
        self.rows = self._rows_of(0)
        self._length = len(self._steps)
        if not batched:
            self._length = self.rows * max(self._length - 1, 0) + self._rows_of(self._length - 1)

    def _rows_of(self, step: int) -> int:
        return len(self._plans(self._steps[step]).ordinals) if self._steps else 0

    def __len__(self) -> int:
        return self._length

    def _found(self, number: SupportsIndex) -> tuple[int, slice]:
        """Return the step of a place, and its rows among those of the rank.

        Raises:
            IndexError: there is no such place.
        """
        place = operator.index(number)
        if not 0 <= place < self._length:
            raise IndexError(f"place {place} of {self._length}")
        if self.batched:
            return self._steps[place], slice(None)
        last = len(self._steps) - 1
        step = min(place // self.rows, last) if self.rows else last
        row = place - step * self.rows
        return self._steps[step], slice(row, row + 1)

    def plan(self, number: SupportsIndex) -> StepPlan:
        """Return the plan of the examples of a place.

        Raises:
            IndexError: there is no such place.
        """
        step, rows = self._found(number)
        return self._plans(step).of_rows(rows)

    def parameters(self, number: SupportsIndex) -> AugmentParameters:
        """Return the parameters of the augmentation of the examples of a place.

        Those of a step are drawn together, which takes as long as those of a few examples.
        """
        step, rows = self._found(number)
        return self._drawn(step).of_rows(rows)

    def _draw(self, step: int) -> AugmentParameters:
        return self.batches.maker.parameters(self._plans(step))

    def __repr__(self) -> str:
        """Everything that decides what a number means: Grain compares it when it goes on from a state."""
        order, maker = self.batches.order, self.batches.maker
        steps = {"global_batch_size": order.global_batch_size, "steps_per_epoch": order.steps_per_epoch}
        places = {"first_step": self._steps.start, "rows": None if self.batched else self.rows}
        described = dump_json({**maker.spec.identity, **steps, **places})
        return f"{maker.records.split.version.ref} {maker.records.table.split}: {described}"


class _Source:
    """A ``grain.sources.RandomAccessDataSource`` of the examples at the places of a rank."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._began = False

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._places})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_began": False}  # each process reads ahead for itself

    def _plan(self, number: SupportsIndex) -> StepPlan:
        plan, batches = self._places.plan(number), self._places.batches
        if not self._began:
            self._began = True
            begin = plan.epoch * batches.order.steps_per_epoch + plan.step
            batches.maker.records.prefetch(batches.order, begin, batches.passes.upcoming.stop)
        return plan


class Examples(_Source):
    """Decoded and augmented examples.

    An element is a dict: "image" uint8 [S, S, C], "label" (int32, float32 [C] or [T], mask [S, S]), "weight"
    float32, "size" int32 [2] (height and width within the image, pixels), "ordinal", "position", "epoch",
    "step" int64, and "features", a dict by name of numbers and arrays, of objects for text and bytes.

    If a place is a step, all have a first axis [b], as Grain's ``Batch`` makes it, and a list of any length
    is ``Padded``. Else it has its own length, and a whole image its own size, which ``Batch`` refuses.
    """

    def __getitem__(self, number: SupportsIndex) -> dict[str, Any]:
        """Make an element.

        Raises:
            IndexError: there is no such place.
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        plan, places = self._plan(number), self._places
        whole = _element(places.batches.maker.make(plan, places.parameters(number)))
        if places.batched:
            return whole
        features = whole.pop("features")
        return {
            **{name: values[0] for name, values in whole.items()},
            "features": {name: _first(values) for name, values in features.items()},
        }


def _element(batch: Batch) -> dict[str, Any]:
    return {
        "image": batch.images,
        "label": batch.labels,
        "weight": batch.weights,
        "size": batch.sizes,
        "ordinal": batch.ordinals,
        "position": batch.positions,
        "epoch": np.full(len(batch), batch.epoch, np.int64),
        "step": np.full(len(batch), batch.step, np.int64),
        "features": batch.features,
    }


def _first(values: Any) -> Any:
    """Return the value of a feature for the only example of a batch."""
    if isinstance(values, Padded):
        return values.values[0, : values.lengths[0]]
    # A text or some bytes as an array, since numpy would take zeros off the end of bytes when it joins them.
    return values.reshape(values.shape[1:]) if values.dtype.hasobject else values[0]


class Records(_Source):
    """Records as they are stored, of any encoding; for steps lists of them."""

    def __getitem__(self, number: SupportsIndex) -> ImageRecord | list[ImageRecord]:
        """Read an element.

        Raises:
            IndexError: there is no such place.
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        plan = self._plan(number)
        reader = self._places.batches.maker.records
        reader.advance(plan.epoch, plan.step)
        records, _ = reader.read_plan(plan)
        return records if self._places.batched else records[0]


class OrderSampler:
    """A ``grain.samplers.Sampler``: the places of a rank, one after the other, with a generator for each.

    The generator, for a ``RandomMap`` of your own, depends on the seed, the epoch and the position alone.
    """

    def __init__(self, places: Places) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"OrderSampler({self._places})"

    def __getitem__(self, number: int) -> grain.RecordMetadata:
        """Return a place.

        Raises:
            IndexError: there is no such place.
        """
        plan = self._places.plan(number)
        position = int(plan.positions[0]) if plan.positions.size else 0
        key = int(key_of(Purpose.TRANSFORM, plan.seed, plan.epoch, position)[0])
        generator = np.random.Generator(np.random.Philox(key=key))
        return grain.RecordMetadata(index=number, record_key=number, rng=generator)


@dataclass(frozen=True, slots=True)
class GrainSplit:
    """What a loader of Grain needs to read a split: any source with the sampler.

    Attributes:
        source: the examples, decoded and augmented.
        records: the same ones as they are stored (``ImageRecord``).
        sampler: the places in the order.
        batch_size: the examples that this rank takes of each step.
    """

    source: Examples
    records: Records
    sampler: OrderSampler
    batch_size: int

    def __repr__(self) -> str:
        return f"<{len(self.source)} elements for Grain: {self.source}>"


def open_split(batches: NumpyBatches, *, batched: bool) -> GrainSplit:
    """Return sources and sampler for the next pass of ``batches``.

    Raises:
        UsageError: damaged records may be left out, and an element is a single example.
    """
    if not batched and batches.maker.records.split.bad.limit:
        raise UsageError(
            "max_bad_records needs whole steps, in which another record stands in for a damaged one",
            "give batched=True, or open the dataset without max_bad_records",
        )
    places = Places(batches, batched=batched)
    return GrainSplit(Examples(places), Records(places), OrderSampler(places), places.rows)
