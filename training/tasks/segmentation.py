"""Semantic segmentation: each pixel of an example has one of C classes, or is ignored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra.codecs.masks import decode_stored_mask, encode_mask
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import MASK, MAX_CLASSES, mask_format
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.metrics.evaluation import Evaluation, Rows
from shardmill.training.metrics.segmentation import (
    SegmentationEvaluation,
    SegmentationTally,
    resampled,
    summarized,
)
from shardmill.training.tasks.annotated import AnnotatedMask
from shardmill.training.tasks.kind import TaskKind
from shardmill.training.tasks.task import FormMeasure, LabelSpec, Mixed, Operations, Task, Values

_MOST_NAMES = 4
_SAME_PIXELS = 0.99

Masks = npt.NDArray[Any]  # [n, S, S], uint8, or int32 with more than 255 classes


class MaskMeasure(FormMeasure):
    """Probabilities of the classes of each pixel: values [b, S, S, C].

    Args:
        ignore: number of the pixels in labels that belong to no class.
    """

    score_name = "pixel_accuracy"

    def __init__(self, ignore: int) -> None:
        self._ignore = ignore

    def scores(self, values: Values, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the share of the pixels with a class whose class was predicted: [b]; 1 if none has one."""
        counts = labels != self._ignore
        right = (values.argmax(axis=-1) == labels) & counts
        totals = counts.sum(axis=(1, 2))
        return np.where(totals > 0, right.sum(axis=(1, 2)) / np.maximum(totals, 1), 1.0)

    def agree(self, values: Values, others: Values) -> npt.NDArray[np.bool_]:
        """Return where both predict the same class for 99 % of the pixels and more: bool [b]."""
        same = values.argmax(axis=-1) == others.argmax(axis=-1)
        return np.asarray(same.mean(axis=(1, 2)) >= _SAME_PIXELS)


class SegmentationKind(TaskKind):
    """A class for each pixel."""

    learned = "mask"
    evaluation = SegmentationEvaluation
    settings = frozenset({"forms"})
    frameworks = ("tensorflow",)
    output = "pixels"
    fields = {  # noqa: RUF012  never changed
        "label": pa.binary(),  # PNG, the class of each pixel; as large as the model's input
        "predicted": pa.binary(),  # likewise
        "pixel_accuracy": pa.float32(),  # of the pixels that have a class; null if none has
    }
    rows_together = 128  # two masks of 256² pixels each: 16 MiB
    compared = ("label", "predicted")
    is_exact = False
    summarizes = True

    def task(self, version: DatasetVersion, config: TrainConfig, operations: Operations) -> Segmentation:
        """Make the task of a dataset version.

        Raises:
            UsageError: its records have no masks.
        """
        mask = version.manifest.mask
        if mask is None:
            raise UsageError(f"{version.ref} has no masks", "prepare it with masks: docs/masks.md")
        return Segmentation(operations, len(version.manifest.classes), image_size_of(config), mask.ignore)

    def tally(self, num_names: int) -> SegmentationTally:
        """Return an empty tally, for so many classes."""
        return SegmentationTally(num_names)

    def resampled(self, labels: Any, rows: Rows, num_names: int) -> Callable[[Ints], Evaluation]:
        """Return a function that evaluates summarized records, each counted so many times."""
        return resampled(labels, rows, num_names)

    def summarized(self, labels: Any, rows: Rows, num_names: int) -> tuple[Any, Rows]:
        """Return digests of the labels, and the pixels of each record by class."""
        return summarized(labels, rows, num_names)

    def arrays(self, names: list[str], labels: Masks, rows: Rows) -> list[pa.Array]:
        """Return the columns of n examples: labels and ``predicted`` [n, S, S]."""
        predicted = rows["predicted"]
        counts = labels != _ignore_of(labels)
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
        differs = (labels != rows["predicted"]) & (labels != _ignore_of(labels))
        return np.asarray(differs.any((1, 2)))

    def label_words(self, names: Sequence[str], labels: Masks, row: int) -> str:
        """Return the classes that a mask shows, the largest first."""
        return _words(names, labels[row][labels[row] != _ignore_of(labels)])

    def predicted_words(self, names: Sequence[str], rows: Rows, row: int) -> str:
        """Return the classes that a predicted mask shows, the largest first."""
        return _words(names, rows["predicted"][row].ravel())

    def annotation(
        self, num_classes: int, labels: Masks, rows: Rows, row: int, *, is_whole: bool = True
    ) -> AnnotatedMask:
        """Return both masks to draw."""
        return AnnotatedMask(labels[row], rows["predicted"][row], num_classes, is_whole)


@dataclass(frozen=True, slots=True)
class Segmentation(Task):
    """Softmax cross-entropy of each pixel, averaged over the pixels that have a class.

    Outputs are float32 [b, S, S, C], labels uint8 or int32 [b, S, S]. An example without a pixel of any class
    has the loss 0 and the score 1.

    Attributes:
        ops: the operations of the framework.
        num_outputs: the number of classes, C.
        image_size: height and width of images and masks, S (pixels).
        ignore: the number of pixels that belong to no class.
    """

    kind = SegmentationKind()
    score_name = "pixel_accuracy"

    ops: Operations
    num_outputs: int
    image_size: int
    ignore: int

    @property
    def labels(self) -> LabelSpec:
        """The labels: a mask as large as the image."""
        return LabelSpec(MASK, (self.image_size, self.image_size), self._dtype)

    def training_losses(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Masks are never mixed."""
        return self.losses(outputs, labels)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the mean cross-entropy (nats) of the pixels of each example: float32 [b]."""
        wanted, counts = self._counted(labels)
        known = self.ops.where(counts > 0, wanted, wanted * 0)
        return self._mean_over_pixels(self.ops.class_losses(outputs, known), counts, empty=0.0)

    def scores(self, outputs: Any, labels: Any, mixed: Mixed | None = None) -> Any:
        """Return the share of the pixels of each example whose class was predicted: float32 [b]."""
        wanted, counts = self._counted(labels)
        hits = self.ops.cast(self.ops.argmax(outputs) == wanted, "float32")
        return self._mean_over_pixels(hits, counts, empty=1.0)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` of the type of masks [b, S, S], the most likely class of each pixel."""
        return {"predicted": self.ops.cast(self.ops.argmax(outputs), self._dtype)}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``mask`` of the type of masks [b, S, S] and ``probabilities`` float32 [b, S, S, C]."""
        return {
            "mask": self.predictions(outputs)["predicted"],
            "probabilities": self.ops.softmax(outputs),
        }

    def form_measure(self) -> MaskMeasure:
        """Return the comparison of probabilities."""
        return MaskMeasure(self.ignore)

    @property
    def _dtype(self) -> Literal["uint8", "int32"]:
        return "uint8" if self.ignore == np.iinfo(np.uint8).max else "int32"

    def _counted(self, labels: Any) -> tuple[Any, Any]:
        """Return the classes of pixels, int64, and 1 for each that has one, else 0: float32 [b, S, S]."""
        wanted = self.ops.cast(labels, "int64")
        return wanted, self.ops.cast(wanted != self.ignore, "float32")

    def _mean_over_pixels(self, values: Any, counts: Any, empty: float) -> Any:
        total = self.ops.sum_of_pixels(counts)
        mean = self.ops.sum_of_pixels(values * counts) / self.ops.where(total > 0, total, total * 0 + 1)
        return self.ops.where(total > 0, mean, total * 0 + empty)


def _ignore_of(labels: Masks) -> int:
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
