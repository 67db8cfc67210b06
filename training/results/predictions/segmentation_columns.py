"""The columns of a file of predicted masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.codecs.masks import decode_stored_mask, encode_mask
from shardmill.infra.format.known_features import MAX_CLASSES, mask_format
from shardmill.training.results.metrics.segmentation import SegmentationTally
from shardmill.training.results.metrics.tally import Rows

_MOST_NAMES = 4

Masks = npt.NDArray[Any]  # [n, S, S], uint8, or int32 with more than 255 classes


class SegmentationColumns:
    """A class for each pixel. Implements ``PredictionColumns``."""

    task = "segmentation"
    rows_together = 128  # two masks of 256² pixels each: 16 MiB
    fields = {  # noqa: RUF012  never changed
        "label": pa.binary(),  # PNG, the class of each pixel; as large as the model's input
        "predicted": pa.binary(),  # likewise
        "pixel_accuracy": pa.float32(),  # of the pixels that have a class; null if none has
    }

    def arrays(self, names: list[str], labels: Masks, rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels and ``predicted`` [n, S, S]."""
        predicted = rows["predicted"]
        counts = labels != ignore_of(labels)
        totals = counts.sum((1, 2))
        hits = ((labels == predicted) & counts).sum((1, 2))
        return [
            _as_png(labels),
            _as_png(predicted),
            pa.array(hits / np.maximum(totals, 1), pa.float32(), mask=totals == 0),
        ]

    def read(self, names: list[str], table: pa.Table) -> tuple[Any, Rows]:
        """Return labels and predictions again, as ``arrays`` took them, with ``losses``."""
        labels, predicted = (_from_png(table[name]) for name in ("label", "predicted"))
        return labels, {"predicted": predicted, "losses": table["loss"].to_numpy()}

    def wrong(self, labels: Masks, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which examples have a pixel whose class was not predicted: bool [n]."""
        differs = (labels != rows["predicted"]) & (labels != ignore_of(labels))
        return np.asarray(differs.any((1, 2)))

    def label_words(self, names: Sequence[str], labels: Masks, row: int) -> str:
        """Return the classes that a mask shows, the largest first."""
        return _words(names, labels[row][labels[row] != ignore_of(labels)])

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return the classes that a predicted mask shows, the largest first."""
        return _words(names, rows["predicted"][row].ravel())

    def tally(self, num_names: int) -> SegmentationTally:
        """Return an empty tally, for so many classes."""
        return SegmentationTally(num_names)


def ignore_of(labels: Masks) -> int:
    """Return the number of pixels that belong to no class."""
    return mask_format(1 if labels.dtype == np.uint8 else MAX_CLASSES).ignore


def _as_png(masks: Masks) -> pa.Array:
    stored = np.uint8 if masks.dtype == np.uint8 else np.uint16
    return pa.array([encode_mask(mask.astype(stored)) for mask in masks], pa.binary())


def _from_png(column: pa.ChunkedArray) -> Masks:
    masks = np.stack([decode_stored_mask(data) for data in column.to_pylist()])
    return masks if masks.dtype == np.uint8 else masks.astype(np.int32)


def _words(names: Sequence[str], classes: npt.NDArray[Any]) -> str:
    counts = np.bincount(classes.astype(np.int64), minlength=len(names))
    largest = [int(at) for at in np.argsort(-counts, kind="stable")[:_MOST_NAMES] if counts[at]]
    return ", ".join(f"{names[at]} {counts[at] / counts.sum():.0%}" for at in largest)
