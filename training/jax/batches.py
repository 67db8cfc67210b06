"""Batches as arrays on the devices of JAX, copied there ahead of use (``Dataset.jax``).

JAX compiles a function anew for each shape, and has no numbers of 64 bits unless it is told so
(``jax_enable_x64``). So such numbers, texts, bytes and lists of any length stay arrays of numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from shardmill.infra.errors import UsageError
from shardmill.training.order import Order, Shares, rank_slice
from shardmill.training.reading.batch import Batch, described_batch
from shardmill.training.reading.batch_maker import NumpyBatches
from shardmill.training.reading.example_spec import ExampleSpec
from shardmill.training.reading.records.annotations import Objects
from shardmill.training.reading.records.columns import Padded

# The axes of an array that are divided as those of images; of others only the first is.
_IMAGES, _MASKS, _OTHERS = 4, 3, 1


class JaxBatch(NamedTuple):
    """The examples of one step that a rank takes; with a sharding over several processes, those of all.

    ``images, labels, *_ = batch`` unpacks it.

    Attributes:
        images: uint8 [b, S, S, C], on devices; whole images as in ``Batch``.
        labels: int32 [b], float32 [b, C] or [b, T], or masks [b, S, S], on devices.
        weights: float32 [b], on devices (``StepPlan.weights``): 0 for padding.
        sizes: int32 [b, 2], on devices, height and width of each image within ``images`` (pixels).
        ordinals, positions: int64 [b] of numpy, the records of this rank, and their positions in the epoch.
        epoch, step: the step of the run.
        features: the features that were asked for, by name. float32 [b] or [b, length] is on devices; the
            rest stays as in ``Batch``, of this rank.
        objects: the objects in the images, on devices, if they were asked for.
    """

    images: Any
    labels: Any
    weights: Any
    sizes: Any
    ordinals: Any
    positions: Any
    epoch: int
    step: int
    features: dict[str, Any]
    objects: Objects | None = None

    def __repr__(self) -> str:
        return described_batch(self.epoch, self.step, self.images, self.labels, self.features)


@dataclass(frozen=True, slots=True)
class Placing:
    """Where the arrays of batches lie, and which part of each step this process reads.

    Attributes:
        sharding: how images are divided; None: they lie on ``device``, and computations may move them.
        device: the default device of the caller's thread.
        ranks: the rank, the number of ranks, and their shares.
        rows: the rows of arrays that belong to several processes; None: each process has arrays of its own.
    """

    sharding: Sharding | None
    device: Any
    ranks: tuple[int, int, Shares | None]
    rows: int | None = None

    @classmethod
    def of(
        cls,
        sharding: Any,
        order: Order,
        spec: ExampleSpec,
        ranks: tuple[int | None, int | None, Shares | None],
    ) -> Self:
        """Return where the batches of an order lie.

        Args:
            sharding: a sharding of images, a device, or None.
            order: the order.
            spec: what batches hold.
            ranks: the rank, the number of ranks, and their shares; None: as the sharding or JAX says.

        Raises:
            UsageError: the sharding is of another type, or does not fit the batches or the ranks.
        """
        if isinstance(sharding, jax.Device):
            sharding = SingleDeviceSharding(sharding)
        if sharding is not None and not isinstance(sharding, Sharding):
            raise UsageError(
                f"sharding = {sharding!r} is no sharding", "give a jax.sharding.Sharding, a device, or None"
            )
        rank, num_ranks, shares = ranks
        rows, found = None, (jax.process_index(), jax.process_count())
        if sharding is not None and not sharding.is_fully_addressable:
            rows = order.global_batch_size
            found = _part_here(sharding, rows)
        own = found[0] if rank is None else rank, found[1] if num_ranks is None else num_ranks
        if rows is not None and (own, shares) != (found, None):
            raise UsageError(
                f"the devices of this process hold part {found[0]} of {found[1]} equal parts of a step, and "
                f"rank {own[0]} of {own[1]}, shares = {shares} is asked for",
                "leave out rank, num_ranks and shares",
            )
        placing = cls(sharding, jax.device_put(np.uint8(0)).device, (*own, shares), rows)
        if sharding is not None:
            placing._check(order, spec)
        return placing

    def _check(self, order: Order, spec: ExampleSpec) -> None:
        """Check that the sharding can divide every batch."""
        own = rank_slice(order.global_batch_size, *self.ranks)
        rows = own.stop - own.start if self.rows is None else self.rows
        if spec.image_size is None:
            if self.rows is not None:
                raise UsageError(
                    "whole images are as large as the largest that a process reads, and the sharding divides "
                    "them among processes",
                    "give an image_size",
                )
            _check_divides(_first_axes(self.sharding, _OTHERS), (rows,))
        else:
            _check_divides(self.sharding, (rows, *spec.image_shape))
        in_parts = self.rows is not None or _first_axes(self.sharding, _OTHERS).shard_shape((rows,)) != (
            rows,
        )
        if spec.last_batch == "partial" and in_parts:
            raise UsageError(
                "last_batch = 'partial': a smaller batch cannot be divided among devices",
                "give 'pad', whose padding has weight 0, or 'drop'",
            )

    def __call__(self, batch: Batch) -> JaxBatch:
        """Copy the arrays of a batch to the devices."""
        features = {
            name: values if isinstance(values, Padded) else self._placed(values)
            for name, values in batch.features.items()
        }
        objects = batch.objects
        return JaxBatch(
            self._placed(batch.images, _IMAGES),
            self._placed(batch.labels, _MASKS if batch.labels.ndim == _MASKS else _OTHERS),
            self._placed(batch.weights),
            self._placed(batch.sizes),
            batch.ordinals,
            batch.positions,
            batch.epoch,
            batch.step,
            features,
            None if objects is None else Objects(*map(self._placed, objects)),
        )

    def _placed(self, array: Any, axes: int = _OTHERS) -> Any:
        """Copy an array to the devices if they can hold its values."""
        if array.dtype.hasobject or jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            return array
        if self.sharding is None:
            # Without a device as an argument, so that any computation may take the array. The context of the
            # caller, such as `with jax.default_device(...)`, does not reach this thread.
            with jax.default_device(self.device):
                return jax.device_put(array)
        sharding = _first_axes(self.sharding, axes)
        if self.rows is None:
            return jax.device_put(array, sharding)
        return jax.make_array_from_process_local_data(sharding, array, (self.rows, *array.shape[1:]))


def _first_axes(sharding: Any, axes: int) -> Any:
    """Return the sharding of arrays of which so many axes are divided as those of images."""
    if not isinstance(sharding, NamedSharding):
        return sharding
    spec = PartitionSpec(*sharding.spec[:axes])
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


def _part_here(sharding: Sharding, rows: int) -> tuple[int, int]:
    """Return which of how many equal parts of the rows of a step the devices of this process hold."""
    by_rows = _first_axes(sharding, _OTHERS)
    _check_divides(by_rows, (rows,))
    held = by_rows.addressable_devices_indices_map((rows,)).values()
    blocks = sorted({index[0].indices(rows)[:2] for index in held})
    count = sum(stop - start for start, stop in blocks)
    if not count or blocks[-1][1] - blocks[0][0] != count or blocks[0][0] % count:
        raise UsageError(
            f"the devices of process {jax.process_index()} hold the rows {[*map(list, blocks)]} of a step, "
            "which are not one part of equal ones",
            "let the first axis of the mesh follow the processes, as jax.make_mesh does",
        )
    return blocks[0][0] // count, rows // count


def _check_divides(sharding: Any, shape: tuple[int | None, ...]) -> None:
    """Check that a sharding can divide arrays of a shape."""
    try:
        if isinstance(sharding, NamedSharding) and len(sharding.spec) > len(shape):
            raise ValueError(f"it divides {len(sharding.spec)} axes")
        sharding.shard_shape(shape)
    except ValueError as error:
        raise UsageError(
            f"sharding does not fit arrays {[*shape]}: {error}",
            "give a batch_size (of all ranks together) and an image_size that its devices can share equally",
        ) from error


@dataclass(frozen=True, slots=True)
class JaxBatches:
    """Batches of one split on devices. Each iteration is the next pass, of the length that ``len`` returns.

    Attributes:
        batches: the batches as arrays of numpy.
        placing: where their arrays lie.
    """

    batches: NumpyBatches
    placing: Placing

    def __len__(self) -> int:
        return len(self.batches)

    def __repr__(self) -> str:
        return f"{repr(self.batches)[:-1]}, on {self.placing.sharding or self.placing.device}>"

    def __iter__(self) -> Iterator[JaxBatch]:
        """The batches of the next pass; two more are on their way to the devices.

        Raises:
            CorruptDataError: a record is damaged; names the record and its shard.
        """
        return self.batches.through(self.placing)
