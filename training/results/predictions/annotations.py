"""The drawable parts of an example: its boxes or mask, and the predicted ones."""

from __future__ import annotations

from typing import Any

from shardmill.training.results.metrics.tally import Rows
from shardmill.training.results.pictures.annotated import AnnotatedBoxes, AnnotatedMask, Annotation
from shardmill.training.results.predictions.columns import PredictionColumns
from shardmill.training.results.predictions.detection_columns import DetectionColumns
from shardmill.training.results.predictions.segmentation_columns import SegmentationColumns


def annotation_of(
    columns: PredictionColumns, num_classes: int, labels: Any, rows: Rows, row: int, *, is_whole: bool = True
) -> Annotation | None:
    """Return the label and the prediction of an example to draw; None for tasks whose labels are words.

    Args:
        columns: columns of the task.
        num_classes: the number of its classes.
        labels: as ``PredictionColumns.read`` returns them.
        rows: likewise.
        row: row of the example.
        is_whole: the model sees whole images, not their central squares.
    """
    if isinstance(columns, DetectionColumns):
        return AnnotatedBoxes(*columns.shown_boxes(labels, rows, row))
    if isinstance(columns, SegmentationColumns):
        return AnnotatedMask(labels[row], rows["predicted"][row], num_classes, is_whole)
    return None
