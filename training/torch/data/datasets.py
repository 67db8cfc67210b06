"""The datasets for a ``DataLoader``: whole batches of steps; single examples, with the order as sampler."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.errors import UsageError
from shardmill.training.order import StepPlan
from shardmill.training.reading.batch_maker import BatchMaker, made_ahead
from shardmill.training.reading.decode import Pixels
from shardmill.training.reading.example_spec import BatchOptions, ExampleSpec
from shardmill.training.reading.records.annotations import FOLLOWING
from shardmill.training.reading.records.columns import NO_FEATURES
from shardmill.training.reading.records.record_reader import RecordReader
from shardmill.training.reading.workers import in_worker, records_in_worker
from shardmill.training.torch.data.batch import Example, TorchBatch, features_of_examples, to_torch
from shardmill.training.torch.data.ranks import RankOrder

# A step that no run reaches.
_ENDLESS = 1 << 62


@checked
class StepBatches(IterableDataset):  # type: ignore[misc]
    """The batches of the steps ``start`` to ``stop`` of the run, for ``DataLoader(..., batch_size=None)``.

    The elements are whole batches. With any number of workers they come in the order of the steps, because a
    ``DataLoader`` takes from its workers in turn. Without workers threads make them two steps ahead of use.
    """

    def __init__(self, maker: BatchMaker, order: RankOrder, start: int = 0, stop: int | None = None) -> None:
        """Make a dataset of the steps ``start`` to ``stop``.

        Args:
            maker: makes the batches. Each worker has a copy with one thread.
            order: the steps, cut to the slice of one rank.
            start: the first step (epoch * steps_per_epoch + step).
            stop: the step behind the last one; None: the epochs never end.

        Raises:
            UsageError: ``start`` is below 0, or ``stop`` below ``start``.
        """
        super().__init__()
        at_least(0, start=start)
        at_least(start, stop=stop)
        self.maker = maker
        self.order = order
        self.start = start
        self.stop = stop

    def __iter__(self) -> Iterator[TorchBatch]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        maker = self.maker if worker is None else in_worker(self.maker)
        begin = self.start + first
        maker.records.prefetch(self.order.order, begin, _ENDLESS if self.stop is None else self.stop)
        steps = itertools.count(begin, stride) if self.stop is None else range(begin, self.stop, stride)

        def made(run_step: int) -> TorchBatch:
            return to_torch(maker.make(self.order.plan(run_step)))

        yield from made_ahead(steps, made) if worker is None else map(made, steps)


class Place(NamedTuple):
    """The place of an example in the order, which decides its pixels. ``OrderSampler`` yields places."""

    ordinal: int
    position: int
    seed: int
    epoch: int
    step: int
    weight: float


@checked
class Examples(Dataset):  # type: ignore[misc]
    """The examples of a split by ordinal, or by ``Place``.

    An example that is asked for by ordinal is augmented by (seed, epoch, ordinal), with the epoch of
    ``set_epoch``. One that is asked for by ``Place`` is augmented as in every other pipeline, without
    ``set_epoch``.
    """

    def __init__(
        self,
        records: RecordReader,
        spec: ExampleSpec | None = None,
        *,
        seed: int | None = None,
        threads: int | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        """Make a dataset of all records of a split.

        Args:
            records: the records of the split.
            spec: what examples hold; None: as ``options`` say.
            seed: the seed of augmentation for examples requested by ordinal (default 0); a ``Place`` has its
                own.
            threads: the number of threads that decode in this process; default: one for each CPU. Worker
                processes have one.
            **options: what examples hold; see ``BatchOptions``. RandAugment, MixUp and CutMix are left to
                ``DeviceAugment``. Whole images have three channels.

        Raises:
            UsageError: whole images cannot be augmented, features of objects would not follow them, or the
                records have masks.
        """
        super().__init__()
        if records.table.mask is not None:
            raise UsageError(
                "the records have masks, and single examples have only labels of whole images",
                "read through open_dataset(...).torch, where masks follow their images",
            )
        self.spec = spec = ExampleSpec.of_options(spec, **options)
        moved = FOLLOWING.intersection(one.name for one in spec.features.features)
        if spec.image_size is not None and moved:
            raise UsageError(
                f"the feature {min(moved)} is of whole images, which are cut to image_size = "
                f"{spec.image_size}",
                "read through open_dataset(...).torch, where objects follow their images",
            )
        self.records = records
        self._variable = frozenset(one.name for one in spec.features.features if one.shape == "variable")
        self._seed = spec.data.seed if seed is None else seed
        self._maker = None
        if spec.image_size is not None:
            self._maker = BatchMaker(records, replace(spec, features=NO_FEATURES), threads=threads)
        self._in_worker: RecordReader | BatchMaker | None = None
        # In shared memory, so that it reaches workers that live through several epochs.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of examples that are requested by ordinal; from 0 on."""
        at_least(0, epoch=epoch)
        self._epoch[0] = epoch

    def __len__(self) -> int:
        return len(self.records.table)

    def __getitem__(self, key: int | Place) -> Example:
        """One example.

        Raises:
            IndexError: there is no such ordinal. CorruptDataError: names the record and its shard.
        """
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: Sequence[int | Place]) -> list[Example]:
        """Read several examples at once, which is faster. ``DataLoader`` calls this for whole batches."""
        places = [key if isinstance(key, Place) else self._numbered(int(key)) for key in keys]
        images: list[Pixels] = []
        for _, group in itertools.groupby(places, key=lambda place: (place.seed, place.epoch)):
            images += self._images(_plan_of(list(group)))
        ordinals = np.array([place.ordinal for place in places], np.int64)
        labels = self.records.table.labels_of(ordinals)
        beside = features_of_examples(self.spec.features.rows(ordinals), len(places))
        one_class = labels.ndim == 1
        return [
            Example(
                image=torch.from_numpy(image).permute(2, 0, 1),
                label=int(labels[row]) if one_class else torch.from_numpy(labels[row]),
                weight=place.weight,
                ordinal=place.ordinal,
                position=place.position,
                epoch=place.epoch,
                step=place.step,
                features=beside[row],
                variable=self._variable,
            )
            for row, (image, place) in enumerate(zip(images, places, strict=True))
        ]

    def _numbered(self, ordinal: int) -> Place:
        size = len(self)
        if not -size <= ordinal < size:
            raise IndexError(f"ordinal {ordinal} of a split of {size} records")
        ordinal %= size
        return Place(ordinal, ordinal, self._seed, int(self._epoch), -1, 1.0)

    def _images(self, plan: StepPlan) -> list[Pixels]:
        source = self._source()
        if isinstance(source, BatchMaker):
            return list(source.make(plan).images)
        source.advance(plan.epoch, plan.step)
        stored = zip(plan.ordinals.tolist(), source.read_images(plan.ordinals), strict=True)
        return [source.decoded(ordinal, image) for ordinal, image in stored]

    def _source(self) -> RecordReader | BatchMaker:
        if get_worker_info() is None:
            return self._maker or self.records
        if self._in_worker is None:
            self._in_worker = in_worker(self._maker) if self._maker else records_in_worker(self.records)
        return self._in_worker

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_in_worker": None}


def _plan_of(places: list[Place]) -> StepPlan:
    return StepPlan(
        seed=places[0].seed,
        epoch=places[0].epoch,
        step=places[0].step,
        positions=np.array([place.position for place in places], np.int64),
        ordinals=np.array([place.ordinal for place in places], np.int64),
        num_real=len(places),
        weights=np.array([place.weight for place in places], np.float32),
    )


@checked
class OrderSampler(Sampler):  # type: ignore[misc]
    """The order as a ``batch_sampler`` for ``Examples``: each element is a rank's part of one step."""

    def __init__(self, order: RankOrder, start: int = 0, stop: int | None = None) -> None:
        """Make a sampler of the steps ``start`` to ``stop``.

        Args:
            order: the steps, cut to the slice of one rank.
            start: the first step (epoch * steps_per_epoch + step).
            stop: the step behind the last one; default: the end of the epoch.

        Raises:
            UsageError: ``start`` is below 0, or ``stop`` below ``start``.
        """
        super().__init__()
        at_least(0, start=start)
        at_least(start, stop=stop)
        self.order = order
        self.start = start
        steps = order.steps_per_epoch
        self.stop = (start // steps + 1) * steps if stop is None else stop

    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Go to step ``step`` of an epoch.

        Raises:
            UsageError: there is no such step.
        """
        at_least(0, epoch=epoch, step=step)
        steps = self.order.steps_per_epoch
        self.start, self.stop = epoch * steps + step, (epoch + 1) * steps

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[Place]]:
        for run_step in range(self.start, self.stop):
            plan = self.order.plan(run_step)
            rows = zip(plan.ordinals.tolist(), plan.positions.tolist(), plan.weights.tolist(), strict=True)
            yield [
                Place(ordinal, position, plan.seed, plan.epoch, plan.step, weight)
                for ordinal, position, weight in rows
            ]
