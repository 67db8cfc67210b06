"""A ``DataLoader`` that tracks the position of the run: one rank's batches, resumable at any step.

A ``DataLoader`` raises a worker's error again with the worker's traceback in place of the message, and loses
the remedy. So an error of this project travels as an element, and the loader raises it as it was.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

from torch.utils.data import DataLoader, Dataset, IterableDataset

from shardmill.infra.arguments import checked
from shardmill.infra.errors import ChildDied, ConfigError, ShardmillError, UsageError, from_event
from shardmill.infra.readable import counted
from shardmill.infra.strict_json import dump_json
from shardmill.training.order.passes import passes_of
from shardmill.training.reading.batch_maker import BatchMaker
from shardmill.training.torch.data.batch import Example, TorchBatch, pad_collate
from shardmill.training.torch.data.datasets import Examples, OrderSampler, Place, StepBatches
from shardmill.training.torch.data.device_augment import AugmentedBatch, DeviceAugment, check_ranks
from shardmill.training.torch.data.options import LoaderOptions, complete
from shardmill.training.torch.data.ranks import RankOrder
from shardmill.training.torch.data.transform import RecordTransform

Event = dict[str, Any]


class GuardedSteps(IterableDataset):  # type: ignore[misc]
    """``StepBatches``, transformed, whose last element may be an error."""

    def __init__(self, batches: StepBatches, transform: RecordTransform | None = None) -> None:
        super().__init__()
        self._batches = batches
        self._transform = transform

    def __iter__(self) -> Iterator[TorchBatch | Event]:
        try:
            for batch in self._batches:
                yield batch if self._transform is None else self._transform.batch(batch)
        except ShardmillError as error:
            yield error.to_event()


class GuardedExamples(Dataset):  # type: ignore[misc]
    """``Examples``, transformed, or an error in place of a batch; use it with ``guarded_collate``."""

    def __init__(self, examples: Examples, transform: RecordTransform | None = None) -> None:
        super().__init__()
        self._examples = examples
        self._transform = transform

    def __len__(self) -> int:
        return len(self._examples)

    def __getitems__(self, keys: Sequence[int | Place]) -> list[Example] | Event:
        try:
            examples = self._examples.__getitems__(keys)
            return examples if self._transform is None else self._transform.examples(examples)
        except ShardmillError as error:
            return error.to_event()


def guarded_collate(examples: list[Example] | Event) -> TorchBatch | Event:
    """Collate like ``pad_collate``, but pass an error on."""
    return examples if isinstance(examples, dict) else pad_collate(examples)


def next_batch(batches: Iterator[TorchBatch | Event]) -> TorchBatch:
    """Return the next batch, or raise the error that came in its place.

    Raises:
        ShardmillError: the one that happened in the worker. ChildDied: the worker was killed.
    """
    try:
        batch = next(batches)
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ChildDied(
            f"a worker that reads records died: {error}",
            "it may have run out of memory; check shared memory too (df -h /dev/shm; in Docker --shm-size), "
            "or read with num_workers=0",
        ) from error
    if isinstance(batch, dict):
        raise from_event(batch)
    return batch


# The steps of an endless sampler: more than any run has.
_ENDLESS = 1 << 62


@checked
class TorchLoader:
    """Gives the batches of one rank. Each iteration is the next epoch, from its first step.

    A batch counts as consumed when the training loop gets it. Batches that workers have prepared do not
    count: ``state_dict`` names the next step, and a loader that loads it continues there, with any number of
    ranks and workers.
    """

    def __init__(
        self,
        source: BatchMaker | Examples,
        order: RankOrder,
        *,
        identity: Mapping[str, Any] | None = None,
        **loading: Unpack[LoaderOptions],
    ) -> None:
        """Make a loader whose workers start with the first iteration.

        Args:
            source: makes batches of one size, or gives examples that are padded to the largest of a batch.
            order: the steps, cut to the slice of one rank.
            identity: further values that a resumed run must share with this one, JSON-able.
            **loading: see ``LoaderOptions``.

        Raises:
            UsageError: an option is unknown, or a number out of range.
            ConfigError: examples are mixed in pairs, and a rank takes an odd number of rows.
        """
        options = complete(loading)
        augment = source.spec.augment
        check_ranks(augment, order)
        self.order = order
        self._transform = None
        if options.transform is not None:
            self._transform = RecordTransform(options.transform, source.records.split, order.order.seed)
        self._on_device = DeviceAugment(augment, order.order.seed)
        self._of_batches = [] if augment is None else [one.name for one in augment.of_batches]
        self._is_augmented = not self._of_batches
        self.num_workers = options.num_workers
        self._source = source
        self._identity = {} if identity is None else dict(identity)
        self._options = options
        steps, epochs = order.steps_per_epoch, options.num_epochs
        self._passes = passes_of(steps, epoch=options.epoch, first_epoch=options.first_epoch)
        self._next = self._passes.upcoming.start
        # The step before which all epochs end.
        self._limit = None if epochs is None or self._passes.is_fixed else self._next + epochs * steps
        # Workers that wait for the next iteration, and the step that comes next out of them.
        self._waiting: tuple[int, Iterator[Any]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._next // self.order.steps_per_epoch

    @property
    def step(self) -> int:
        """The step of the next batch within its epoch."""
        return self._next % self.order.steps_per_epoch

    def __repr__(self) -> str:
        own, size = self.order, self.order.order.global_batch_size
        ranks = "" if own.num_ranks == 1 else f", rank {own.rank} of {own.num_ranks}"
        records = self._source.records
        return (
            f"<{len(self)} batches of {size}{ranks}: {records.split.version.ref} {records.table.split}, "
            f"epoch {self.epoch}, step {self.step}; {counted(self.num_workers, 'worker')}>"
        )

    def __len__(self) -> int:
        """Return the steps of a whole epoch."""
        return self.order.steps_per_epoch

    def __iter__(self) -> Iterator[TorchBatch]:
        if self._limit is not None and self._passes.upcoming.start >= self._limit:
            return
        steps = self._passes.begin()
        self._next = steps.start
        waiting, self._waiting = self._waiting, None  # an iteration that is given up ends its workers
        batches = waiting[1] if waiting and waiting[0] == steps.start else self._opened(steps)
        del waiting
        for run_step in steps:
            batch = next_batch(batches)
            self._next = self._passes.upcoming.start if run_step + 1 == steps.stop else run_step + 1
            yield batch
        self._warn_unless_augmented()
        if self._options.persistent_workers:
            self._waiting = steps.stop, batches

    def augment_on_device(self, batch: TorchBatch) -> AugmentedBatch:
        """Apply RandAugment, MixUp and CutMix, as far as they are on, on the device of the batch's images.

        Args:
            batch: a batch of this loader; its images may have been moved to a device.

        Raises:
            EnvironmentFault: RandAugment is on, and torchvision is not installed.
        """
        self._is_augmented = True
        return self._on_device(batch)

    def _warn_unless_augmented(self) -> None:
        if self._is_augmented:
            return
        self._is_augmented = True  # one warning is enough
        warnings.warn(
            f"{' and '.join(self._of_batches)}: on, and without effect in this epoch: "
            "pass each batch to augment_on_device of its loader",
            stacklevel=3,
        )

    def _opened(self, steps: range) -> Iterator[Any]:
        """Start workers that begin with the first of these steps."""
        goes_on = self._options.persistent_workers and not self._passes.is_fixed
        start, stop = steps.start, self._limit if goes_on else steps.stop
        options = self._options.of_data_loader()
        if isinstance(self._source, BatchMaker):
            batches = StepBatches(self._source, self.order, start, stop)
            guarded = GuardedSteps(batches, self._transform)
            loader = DataLoader(guarded, batch_size=None, **options)
        else:
            sampler = OrderSampler(self.order, start, _ENDLESS if stop is None else stop)
            loader = DataLoader(
                GuardedExamples(self._source, self._transform),
                batch_sampler=sampler,
                collate_fn=guarded_collate,
                **options,
            )
        return iter(loader)

    def seek(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration go from a step of an epoch to its end.

        Raises:
            UsageError: there is no such step.
        """
        steps = self.order.steps_per_epoch
        if epoch < 0 or not 0 <= step < steps:
            raise UsageError(f"epoch {epoch}, step {step}: epochs count from 0 and have {steps} steps")
        self._next = epoch * steps + step
        self._passes.continue_with(range(self._next, (epoch + 1) * steps))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the run, JSON-able and the same for all ranks at the same step."""
        return {"epoch": self.epoch, "step": self.step, "identity": self._described()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where another loader of the same order stopped, with any number of ranks and workers.

        Raises:
            ConfigError: the state is of another order.
        """
        theirs, ours = dict(state["identity"]), self._described()
        for key in sorted({*theirs, *ours}):
            if theirs.get(key) != ours.get(key):
                raise ConfigError(
                    f"the state is of a run with {key} = {theirs.get(key)!r}, this one has {ours.get(key)!r}",
                    f"resume with the same {key}, or begin anew without the state",
                )
        self.seek(int(state["epoch"]), int(state["step"]))

    def _described(self) -> dict[str, Any]:
        order = self.order.order
        steps = {"global_batch_size": order.global_batch_size, "steps_per_epoch": order.steps_per_epoch}
        described: dict[str, Any] = json.loads(dump_json({**self._identity, **steps}))
        return described  # equal to a state that was written as JSON and read again

    def close(self) -> None:
        """Stop the workers that wait for the next iteration, which then starts new ones."""
        self._waiting = None
