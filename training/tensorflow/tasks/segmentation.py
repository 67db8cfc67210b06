"""Semantic segmentation: each pixel of an example has one of C classes, or is ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.known_features import MASK
from shardmill.training.config import TrainConfig, image_size_of
from shardmill.training.export.measures import MaskMeasure
from shardmill.training.results.metrics.segmentation import SegmentationTally
from shardmill.training.results.predictions.segmentation_columns import SegmentationColumns
from shardmill.training.tasks.task import LabelSpec

_PIXELS = (-2, -1)


@dataclass(frozen=True, slots=True)
class Segmentation:
    """Softmax cross-entropy of each pixel, averaged over the pixels that have a class. Implements ``Task``.

    Outputs are float32 [b, S, S, C], labels uint8 or int32 [b, S, S]. An example without a pixel of any class
    has the loss 0 and the score 1.

    Attributes:
        num_outputs: the number of classes, C.
        image_size: height and width of images and masks, S (pixels).
        ignore: the number of pixels that belong to no class.
    """

    num_outputs: int
    image_size: int
    ignore: int
    score_name = "pixel_accuracy"

    @property
    def labels(self) -> LabelSpec:
        """The labels: a mask as large as the image."""
        return LabelSpec(MASK, (self.image_size, self.image_size), self._dtype, "pixels")

    def training_losses(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the loss of each example: float32 [b]. Masks are never mixed."""
        return self.losses(outputs, labels)

    def losses(self, outputs: Any, labels: Any) -> Any:
        """Return the mean cross-entropy (nats) of the pixels of each example: float32 [b]."""
        wanted = tf.cast(labels, tf.int32)
        counts = tf.cast(tf.not_equal(wanted, self.ignore), tf.float32)
        known = tf.where(counts > 0, wanted, tf.zeros_like(wanted))
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(known, outputs)
        return _mean_over_pixels(each, counts, empty=0.0)

    def scores(self, outputs: Any, labels: Any, own_share: Any | None = None) -> Any:
        """Return the share of the pixels of each example whose class was predicted: float32 [b]."""
        wanted = tf.cast(labels, tf.int32)
        counts = tf.cast(tf.not_equal(wanted, self.ignore), tf.float32)
        hits = tf.cast(tf.equal(tf.argmax(outputs, axis=-1, output_type=tf.int32), wanted), tf.float32)
        return _mean_over_pixels(hits, counts, empty=1.0)

    def predictions(self, outputs: Any) -> dict[str, Any]:
        """Return ``predicted`` of the type of masks [b, S, S], the most likely class of each pixel."""
        classes = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        return {"predicted": tf.cast(classes, self._dtype)}

    def served(self, outputs: Any) -> dict[str, Any]:
        """Return ``mask`` of the type of masks [b, S, S] and ``probabilities`` float32 [b, S, S, C]."""
        return {"mask": self.predictions(outputs)["predicted"], "probabilities": tf.nn.softmax(outputs)}

    def form_measure(self) -> MaskMeasure:
        """Return the comparison of probabilities."""
        return MaskMeasure(self.ignore)

    def tally(self) -> SegmentationTally:
        """Return an empty tally."""
        return SegmentationTally(self.num_outputs)

    def columns(self) -> SegmentationColumns:
        """Return the columns of a file of predictions."""
        return SegmentationColumns()

    @property
    def _dtype(self) -> Literal["uint8", "int32"]:
        return "uint8" if self.ignore == tf.uint8.max else "int32"


def build(version: DatasetVersion, config: TrainConfig) -> Segmentation:
    """Make the task of a dataset version.

    Raises:
        UsageError: its records have no masks.
    """
    mask = version.manifest.mask
    if mask is None:
        raise UsageError(f"{version.ref} has no masks", "prepare it with masks: docs/masks.md")
    return Segmentation(len(version.manifest.classes), image_size_of(config), mask.ignore)


def _mean_over_pixels(values: Any, counts: Any, empty: float) -> Any:
    """Return the mean over the pixels that count: float32 [b]; ``empty`` where none does."""
    total = tf.reduce_sum(counts, axis=_PIXELS)
    mean = tf.reduce_sum(values * counts, axis=_PIXELS) / tf.maximum(total, 1.0)
    return tf.where(total > 0, mean, tf.fill(tf.shape(mean), empty))
