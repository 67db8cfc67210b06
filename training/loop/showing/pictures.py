"""The pictures of a run in TensorBoard: augmented training examples, and the hardest validation examples.

No framework: the loops of TensorFlow and PyTorch hand over arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from training.arrays import Floats, Ints
from training.reading import RecordReader
from training.reading.decode import Pixels
from training.results.metrics.tally import Rows
from training.results.pictures.grid import Cell, grid_picture
from training.results.tensorboard_log import TensorBoardLog

_COLUMNS, _ROWS = 6, 3
NUM_SHOWN = _COLUMNS * _ROWS


def log_training_examples(
    log: TensorBoardLog,
    images: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    classes: Sequence[str],
    *,
    mixed: bool,
) -> None:
    """Write the first examples of a batch as the model sees them, after all augmentation.

    Args:
        log: gets the picture, at step 0.
        images: numbers [b, S, S, C], 0 to 255.
        labels: integers [b].
        classes: the name of each label.
        mixed: an image may show two examples.
    """
    shown = np.clip(np.rint(images[:NUM_SHOWN].astype(np.float32)), 0, 255).astype(np.uint8)
    cells = [
        Cell(_in_colour(pixels), (classes[label],))
        for pixels, label in zip(shown, labels[:NUM_SHOWN].tolist(), strict=True)
    ]
    about = "; mixed examples bear the label of the first image" if mixed else ""
    _write(log, "train", "examples", 0, f"training examples as augmented{about}", cells)


class HardestExamples:
    """Keeps the examples of the highest losses of a split. Implements ``Sink``."""

    def __init__(self) -> None:
        self._ordinals: Ints = np.zeros(0, np.int64)
        self._labels: Ints = np.zeros(0, np.int64)
        self._predicted: Ints = np.zeros(0, np.int64)
        self._losses: Floats = np.zeros(0)

    def add(self, ordinals: Ints, labels: Any, rows: Rows) -> None:
        """Take n examples; see ``Sink.add``."""
        losses = np.concatenate([self._losses, rows["losses"]])
        hardest = np.argsort(-losses, kind="stable")[:NUM_SHOWN]
        self._losses = losses[hardest]
        self._ordinals = np.concatenate([self._ordinals, ordinals])[hardest]
        self._labels = np.concatenate([self._labels, labels])[hardest]
        self._predicted = np.concatenate([self._predicted, rows["predicted"]])[hardest]

    def write(self, log: TensorBoardLog, step: int, reader: RecordReader) -> None:
        """Write a picture of the examples with their labels, and the classes for which they were taken.

        Args:
            log: gets the picture.
            step: the step of the run.
            reader: the records of the split.
        """
        classes, cells = reader.split.version.manifest.classes, []
        values = zip(self._ordinals, self._labels, self._predicted, self._losses, strict=True)
        for ordinal, label, predicted, loss in values:
            (stored,) = reader.read_images(np.array([ordinal]))
            taken = "predicted rightly" if label == predicted else f"taken for {classes[predicted]}"
            captions = (classes[label], taken, f"loss {loss:.2f}")
            cells.append(Cell(reader.decoded(int(ordinal), stored), captions))
        split = reader.table.split
        _write(log, split, "hardest", step, f"hardest {split} examples after step {step}", cells)


def _in_colour(pixels: Pixels) -> Pixels:
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def _write(log: TensorBoardLog, split: str, name: str, step: int, title: str, cells: Sequence[Cell]) -> None:
    rows = [cells[start : start + _COLUMNS] for start in range(0, len(cells), _COLUMNS)]
    log.picture(split, name, step, grid_picture(title, "", [""] * _COLUMNS, rows))
