"""Apply a function of the user's own to each example, in the process that decodes it."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import class_name
from shardmill.training.draws import Purpose, key_of
from shardmill.training.reading.records.split_records import SplitRecords
from shardmill.training.torch.data.batch import Example, TorchBatch


class TransformRecord(NamedTuple):
    """The record of an image that is transformed.

    Attributes:
        id: the id of the record.
        label, class_name: its label; -1 and no name unless the records have one class each.
        ordinal, position: its number in the split, and its position in the epoch.
        epoch: the epoch.
        seed: a function of (seed of the run, epoch, position), below 2**63. PyTorch's generator of the CPU is
            seeded with it; seed other generators yourself.
    """

    id: str
    label: int
    class_name: str
    ordinal: int
    position: int
    epoch: int
    seed: int


# (image uint8 [C, h, w], record) -> tensor [D, H, W] of any type. Windows and flips have been applied.
Transform = Callable[[Any, TransformRecord], Any]


@dataclass(frozen=True, slots=True)
class RecordTransform:
    """A function for each example of a split.

    Attributes:
        function: the function.
        split: the records.
        seed: the seed of the run.
    """

    function: Transform
    split: SplitRecords
    seed: int

    def batch(self, batch: TorchBatch) -> TorchBatch:
        """Transform the images of a batch, which must get equal shapes and types.

        Raises:
            UsageError: the function failed, or returned something else; names the record.
        """
        records = self._records(batch.ordinals, batch.positions, batch.epoch)
        images = [self._transformed(*pair) for pair in zip(batch.images, records, strict=True)]
        _check_alike([(image.shape, image.dtype) for image in images], images, records)
        sizes = torch.tensor([image.shape[1:] for image in images])
        return batch._replace(images=torch.stack(images), sizes=sizes)

    def examples(self, examples: Sequence[Example]) -> list[Example]:
        """Transform the images of examples, which may get different heights and widths.

        Raises:
            UsageError: the function failed, or returned something else; names the record.
        """
        ordinals, positions = ([getattr(each, name) for each in examples] for name in ("ordinal", "position"))
        records = self._records(torch.tensor(ordinals), torch.tensor(positions), examples[0].epoch)
        transformed = [
            example._replace(image=self._transformed(example.image, record))
            for example, record in zip(examples, records, strict=True)
        ]
        images = [example.image for example in transformed]
        _check_alike([(image.shape[0], image.dtype) for image in images], images, records)
        return transformed

    def _records(self, ordinals: Any, positions: Any, epoch: int) -> list[TransformRecord]:
        table, classes = self.split.table, self.split.version.manifest.classes
        seeds = key_of(Purpose.TRANSFORM, self.seed, epoch, positions.numpy()) >> np.uint64(1)
        records = []
        for ordinal, position, seed in zip(
            ordinals.tolist(), positions.tolist(), seeds.tolist(), strict=True
        ):
            record_id, label = table.id_of(ordinal), int(table.label[ordinal])
            name = class_name(classes, label)
            records.append(TransformRecord(record_id, label, name, ordinal, position, epoch, seed))
        return records

    def _transformed(self, image: Any, record: TransformRecord) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(record.seed)
            try:
                made = self.function(image, record)
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                raise UsageError(
                    f"transform failed at record {record.id} (class {record.class_name!r}): "
                    f"{type(error).__name__}: {error}",
                    f"see {place.filename}:{place.lineno}, in {place.name}",
                ) from error
        if not isinstance(made, torch.Tensor) or made.ndim != 3:
            raise UsageError(
                f"transform returned {_described(made)} for record {record.id}", "return a tensor [C, H, W]"
            )
        return made


def check_travels(transform: Transform) -> None:
    """Check that a function can reach workers that are spawned.

    Raises:
        UsageError: it cannot be pickled.
    """
    try:
        pickle.dumps(transform)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"transform cannot be sent to spawned workers: {error}",
            "define it at the top of a module, or read with num_workers=0",
        ) from error


def _check_alike(kinds: Sequence[object], images: Sequence[Any], records: Sequence[TransformRecord]) -> None:
    for kind, image, record in zip(kinds, images, records, strict=True):
        if kind != kinds[0]:
            raise UsageError(
                f"transform made {_described(image)} of record {record.id}, and {_described(images[0])} of "
                f"record {records[0].id} in the same batch",
                "return tensors of one type and shape; of whole images only the channels must be as many",
            )


def _described(made: object) -> str:
    if not isinstance(made, torch.Tensor):
        return f"an object of type {type(made).__name__}"
    return f"{str(made.dtype).removeprefix('torch.')} {list(made.shape)}"
