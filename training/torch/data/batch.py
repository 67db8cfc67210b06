"""Batches and their features as PyTorch tensors; bytes and texts stay Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from shardmill.infra.arguments import checked
from shardmill.training.reading.batch import Batch, described_batch
from shardmill.training.reading.records.annotations import Objects
from shardmill.training.reading.records.columns import Padded


def torch_features(features: Mapping[str, Any]) -> dict[str, Any]:
    """Return the features of a batch.

    Args:
        features: as ``FeatureColumns.rows`` returns them.

    Returns:
        Tensors [b] or [b, length]; ``Padded`` tensors for lists of any length; lists for bytes and texts.
    """
    return {name: _of_batch(values) for name, values in features.items()}


def features_of_examples(features: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the features of each example of a batch: a value, a tensor or a list; lists without padding.

    Args:
        features: as ``FeatureColumns.rows`` returns them.
        count: number of examples.
    """
    columns = {name: _examples(values) for name, values in features.items()}
    return [{name: column[row] for name, column in columns.items()} for row in range(count)]


def joined_features(examples: Sequence[Mapping[str, Any]], variable: frozenset[str]) -> dict[str, Any]:
    """Return the features of examples as those of a batch, as ``torch_features`` has them.

    Args:
        examples: as ``features_of_examples`` returns them.
        variable: names of the features that are lists of any length.
    """
    joined: dict[str, Any] = {}
    for name in examples[0]:
        values = [example[name] for example in examples]
        if name in variable and isinstance(values[0], torch.Tensor):
            lengths = torch.tensor([len(one) for one in values])
            missing = float("nan") if values[0].is_floating_point() else -(1 << 63)
            padded = torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=missing)
            joined[name] = Padded(padded, lengths)
        elif isinstance(values[0], torch.Tensor):
            joined[name] = torch.stack(values)
        else:
            joined[name] = values
    return joined


def _of_batch(values: Any) -> Any:
    if isinstance(values, Padded):
        if values.values.dtype == object:
            return _examples(values)
        return Padded(torch.tensor(values.values), torch.tensor(values.lengths))
    return values.tolist() if values.dtype == object else torch.tensor(values)


def _examples(values: Any) -> list[Any]:
    if isinstance(values, Padded):
        rows = [row[:length] for row, length in zip(values.values, values.lengths.tolist(), strict=True)]
        return [row.tolist() if row.dtype == object else torch.tensor(row) for row in rows]
    return values.tolist() if values.dtype == object else list(torch.tensor(values))


class Example(NamedTuple):
    """One example.

    Attributes:
        image: uint8 [C, h, w]; with a transform of the user's own, what that returned.
        label: index into the classes; or float32 [C] or [T], several labels or numbers.
        weight: the weight in the loss; 0 for padding (``StepPlan.weights``).
        ordinal, position: the record, and its position in the epoch.
        epoch, step: the step of the run; step -1 for an example that was requested by ordinal.
        features: the features that were asked for, by name.
        variable: names of those that are lists of any length.
    """

    image: Any
    label: Any
    weight: float
    ordinal: int
    position: int
    epoch: int
    step: int
    features: dict[str, Any] = {}  # noqa: RUF012
    variable: frozenset[str] = frozenset()


class TorchBatch(NamedTuple):
    """The examples of one step that a rank takes. ``DataLoader`` pins and moves it as it does any tuple.

    ``images, labels, *_ = batch`` unpacks it.

    Attributes:
        images: uint8 [b, C, h, w], channels last in memory; with a transform, what that returned for each.
        labels: int64 [b]; or float32 [b, C] or [b, T], several labels or numbers; or masks uint8 [b, h, w],
            int32 with more than 255 classes.
        weights: float32 [b] (``StepPlan.weights``), 0 for padding. In training, ``(weights * losses).sum()``
            added up over the ranks is the mean over the step's real examples; in evaluation they are 1.
        sizes: int64 [b, 2], height and width of each image within ``images`` (pixels).
        ordinals, positions: int64 [b], the records and their positions in the epoch.
        epoch, step: the step of the run.
        features: the features that were asked for, by name: tensors [b] or [b, length]; a ``Padded`` of
            tensors for lists of any length; for bytes and text lists in place of tensors.
    """

    images: Any
    labels: Any
    weights: Any
    sizes: Any
    ordinals: Any
    positions: Any
    epoch: int
    step: int
    features: dict[str, Any] = {}  # noqa: RUF012

    def __repr__(self) -> str:
        return described_batch(self.epoch, self.step, self.images, self.labels, self.features)


def to_torch(batch: Batch) -> TorchBatch:
    """Convert a batch to tensors. Images share its memory; the rest is copied, since orders may reuse it.

    The labels of lone objects (``LoneObjects``) are those of the batch.
    """
    rows, height, width, _ = batch.images.shape
    objects = batch.objects
    labels = batch.labels if objects is None or isinstance(objects, Objects) else objects
    return TorchBatch(
        images=torch.from_numpy(batch.images).permute(0, 3, 1, 2),
        # One class is a row of a loss; other labels keep their type.
        labels=torch.tensor(labels, dtype=torch.int64 if labels.ndim == 1 else None),
        weights=torch.tensor(batch.weights),
        sizes=torch.tensor([[height, width]]).repeat(rows, 1),
        ordinals=torch.tensor(batch.ordinals),
        positions=torch.tensor(batch.positions),
        epoch=batch.epoch,
        step=batch.step,
        features=torch_features(batch.features),
    )


def _labels(labels: Sequence[Any]) -> Any:
    if isinstance(labels[0], int):
        return torch.tensor(labels)
    return torch.stack([torch.as_tensor(label, dtype=torch.float32) for label in labels])


@checked
def pad_collate(examples: Sequence[Example]) -> TorchBatch:
    """Collate examples into one batch (a ``collate_fn``). Smaller images get zeros below and to the right.

    Args:
        examples: the examples of one step; images [C, h, w] of one type and any sizes.

    Returns:
        Images [b, C, max h, max w]; ``sizes`` has the height and width of each image.
    """
    shapes = [tuple(example.image.shape[1:]) for example in examples]
    height, width = (max(side) for side in zip(*shapes, strict=True))
    same = all(shape == (height, width) for shape in shapes)
    make = torch.empty if same else torch.zeros
    channels, dtype = examples[0].image.shape[0], examples[0].image.dtype
    images = make((len(examples), height, width, channels), dtype=dtype).permute(0, 3, 1, 2)
    for row, (example, (rows, columns)) in enumerate(zip(examples, shapes, strict=True)):
        images[row, :, :rows, :columns] = example.image
    return TorchBatch(
        images=images,
        labels=_labels([example.label for example in examples]),
        weights=torch.tensor([example.weight for example in examples], dtype=torch.float32),
        sizes=torch.tensor(shapes),
        ordinals=torch.tensor([example.ordinal for example in examples]),
        positions=torch.tensor([example.position for example in examples]),
        epoch=examples[0].epoch,
        step=examples[0].step,
        features=joined_features([example.features for example in examples], examples[0].variable),
    )
