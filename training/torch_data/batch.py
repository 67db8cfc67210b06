"""Batches as PyTorch tensors, and how examples become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from training.reading.batches import Batch


class Example(NamedTuple):
    """One example.

    Attributes:
        image: uint8 [3, h, w].
        label: index into the classes.
        weight: in the loss; 0 for padding (``StepPlan.weights``).
        ordinal, position: which record, and where in the epoch.
        epoch, step: where the run is; the step is -1 for an example that was asked for by number.
    """

    image: Any
    label: int
    weight: float
    ordinal: int
    position: int
    epoch: int
    step: int


class TorchBatch(NamedTuple):
    """The examples of one step that a rank takes. ``DataLoader`` pins and moves it as it does any tuple.

    Attributes:
        images: uint8 [b, 3, h, w], channels last in memory.
        labels: int64 [b].
        weights: float32 [b] (``StepPlan.weights``), 0 for padding. In training, ``(weights * losses).sum()``
            added up over the ranks is the mean over the step's real examples; in evaluation they are 1.
        sizes: int64 [b, 2], height and width of each image within ``images`` (pixels).
        ordinals, positions: int64 [b], which records, and where in the epoch.
        epoch, step: where the run is.
    """

    images: Any
    labels: Any
    weights: Any
    sizes: Any
    ordinals: Any
    positions: Any
    epoch: int
    step: int


def to_torch(batch: Batch) -> TorchBatch:
    """The same batch as tensors. Images share its memory; the rest is copied: it may be the order's own."""
    rows, height, width, _ = batch.images.shape
    return TorchBatch(
        images=torch.from_numpy(batch.images).permute(0, 3, 1, 2),
        labels=torch.tensor(batch.labels, dtype=torch.int64),
        weights=torch.tensor(batch.weights),
        sizes=torch.tensor([[height, width]]).repeat(rows, 1),
        ordinals=torch.tensor(batch.ordinals),
        positions=torch.tensor(batch.positions),
        epoch=batch.epoch,
        step=batch.step,
    )


def pad_collate(examples: Sequence[Example]) -> TorchBatch:
    """Examples as one batch: a ``collate_fn``. Smaller images get zeros below and to the right.

    Args:
        examples: of one step; images uint8 [3, h, w] of any sizes.

    Returns:
        Images uint8 [b, 3, max h, max w]; ``sizes`` says what of them is image.
    """
    shapes = [tuple(example.image.shape[1:]) for example in examples]
    height, width = (max(side) for side in zip(*shapes, strict=True))
    same = all(shape == (height, width) for shape in shapes)
    make = torch.empty if same else torch.zeros
    images = make((len(examples), height, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    for row, (example, (rows, columns)) in enumerate(zip(examples, shapes, strict=True)):
        images[row, :, :rows, :columns] = example.image
    return TorchBatch(
        images=images,
        labels=torch.tensor([example.label for example in examples]),
        weights=torch.tensor([example.weight for example in examples], dtype=torch.float32),
        sizes=torch.tensor(shapes),
        ordinals=torch.tensor([example.ordinal for example in examples]),
        positions=torch.tensor([example.position for example in examples]),
        epoch=examples[0].epoch,
        step=examples[0].step,
    )
