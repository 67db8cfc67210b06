"""Compare an exported form of a model with the model, on records of a split."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from shardmill.infra import progress as events
from shardmill.training.order import SequentialOrder
from shardmill.training.reading import BatchMaker
from shardmill.training.tasks.task import FormMeasure
from shardmill.training.torch.data.batch import to_torch

# How far a probability of an exported form may be from that of the model; of numbers, in their deviations.
TOLERANCE = 1e-3
_TOGETHER = 32


def images_of(maker: BatchMaker, most_records: int | None = None) -> Iterator[Any]:
    """Yield the images of the first records of a split, or of all: uint8 [b, channels, S, S]."""
    num_records = len(maker.records.table)
    order = SequentialOrder(num_records, min(_TOGETHER, num_records))
    steps = range(order.steps_per_epoch)
    for step in itertools.islice(steps, most_records and -(-most_records // _TOGETHER)):
        batch = to_torch(maker.make(order.step(0, step)))
        yield batch.images[batch.weights > 0].contiguous()


@torch.no_grad()  # type: ignore[untyped-decorator]
def compared(
    model: Callable[[Any], Any],
    other: Callable[[Any], Any],
    batches: Iterable[Any],
    measure: FormMeasure,
) -> dict[str, Any]:
    """Return ``num_examples``, ``agreement`` (share of equal predictions) and ``max_difference``.

    Args:
        model: images -> probabilities or numbers [b, K].
        other: the same of the exported form.
        batches: batches of images.
        measure: how both are compared.
    """
    equal, count, largest = 0, 0, 0.0
    events.stage("compare", None)
    for images in batches:
        ours, theirs = model(images).numpy(), other(images).numpy()
        equal += int(measure.agree(ours, theirs).sum())
        count += len(images)
        events.progress("compare", count, None)
        largest = float(np.maximum(largest, measure.differences(ours, theirs).max()))  # keeps NaN
    return {"num_examples": count, "agreement": equal / count, "max_difference": largest}
