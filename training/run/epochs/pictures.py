"""The pictures of a run in TensorBoard: augmented training examples, and the hardest validation examples."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import resize_short_side
from shardmill.infra.codecs.arrays import for_people
from shardmill.infra.codecs.masks import lay_over
from shardmill.training.arrays import Ints
from shardmill.training.metrics.evaluation import Rows
from shardmill.training.reading import RecordReader
from shardmill.training.reading.decode import Pixels
from shardmill.training.results.pictures.grid import Cell, grid_picture
from shardmill.training.results.tensorboard_log import TensorBoardLog
from shardmill.training.tasks.annotated import Annotation
from shardmill.training.tasks.kind import TaskKind

_COLUMNS, _ROWS = 6, 3
_SHORT_SIDE = 168  # pixels of the examples, before anything is drawn into them
NUM_SHOWN = _COLUMNS * _ROWS


def log_training_examples(
    log: TensorBoardLog,
    images: npt.NDArray[Any],
    labels: Sequence[str],
    *,
    mixed: bool,
    masks: npt.NDArray[Any] | None = None,
    num_classes: int = 0,
) -> None:
    """Write the first examples of a batch as the model sees them, after all augmentation.

    Args:
        log: gets the picture, at step 0.
        images: [b, S, S, C] of the type of the data set.
        labels: what each is labelled, for people.
        mixed: an image may show two examples.
        masks: [b, S, S], which are laid over the images; None: there are none.
        num_classes: number of classes of the masks.
    """
    shown = [for_people(image) for image in images[:NUM_SHOWN]]
    drawn = [
        _in_colour(pixels) if masks is None else lay_over(pixels, masks[row], num_classes)
        for row, pixels in enumerate(shown)
    ]
    cells = [Cell(pixels, (label,)) for pixels, label in zip(drawn, labels[:NUM_SHOWN], strict=True)]
    about = "; mixed examples bear the label of the first image" if mixed else ""
    _write(log, "train", "examples", 0, f"training examples as augmented{about}", cells)


class _Hard(NamedTuple):
    """An example with a high loss: record, label and prediction, and both as drawn into its picture."""

    loss: float
    ordinal: int
    label: str
    outcome: str
    annotation: Annotation | None


class HardestExamples:
    """Keeps the examples of the highest losses of a split."""

    def __init__(self, kind: TaskKind, names: Sequence[str], *, is_whole: bool = True) -> None:
        """Keep examples of a task.

        Args:
            kind: the kind of the task.
            names: names of its classes or targets.
            is_whole: the model sees whole images, not their central squares.
        """
        self._is_whole = is_whole
        self._kind = kind
        self._names = names
        self._kept: list[_Hard] = []

    def add(self, ordinals: Ints, labels: Any, rows: Rows) -> None:
        """Take n examples, as ``shardmill.training.run.framework.Sink``."""
        losses, wrong = rows["losses"], self._kind.wrong(labels, rows)
        for row in np.argsort(-losses, kind="stable")[:NUM_SHOWN].tolist():
            taken = self._kind.predicted_words(self._names, rows, row)
            outcome = f"taken for {taken}" if wrong[row] else "predicted rightly"
            label = self._kind.label_words(self._names, labels, row)
            drawn = self._kind.annotation(len(self._names), labels, rows, row, is_whole=self._is_whole)
            self._kept.append(_Hard(float(losses[row]), int(ordinals[row]), label, outcome, drawn))
        self._kept = heapq.nsmallest(NUM_SHOWN, self._kept, key=lambda one: (-one.loss, one.ordinal))

    def write(self, log: TensorBoardLog, step: int, reader: RecordReader) -> None:
        """Write a picture of the examples with their labels, and what they were taken for.

        Args:
            log: gets the picture.
            step: the step of the run.
            reader: the records of the split.
        """
        cells = []
        for one in self._kept:
            (stored,) = reader.read_images(np.array([one.ordinal]))
            captions = (one.label, one.outcome, f"loss {one.loss:.2f}")
            pixels = resize_short_side(for_people(reader.decoded(one.ordinal, stored)), _SHORT_SIDE)
            pixels = pixels if one.annotation is None else one.annotation.drawn(pixels)
            cells.append(Cell(_in_colour(pixels), captions))
        split = reader.table.split
        _write(log, split, "hardest", step, f"hardest {split} examples after step {step}", cells)


def _in_colour(pixels: Pixels) -> Pixels:
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def _write(log: TensorBoardLog, split: str, name: str, step: int, title: str, cells: Sequence[Cell]) -> None:
    rows = [cells[start : start + _COLUMNS] for start in range(0, len(cells), _COLUMNS)]
    log.picture(split, name, step, grid_picture(title, "", [""] * _COLUMNS, rows))
