"""Write curves for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf


class TensorBoardLog:
    """Writes scalars to ``<folder>/<split>``. A resumed run writes some points again, with equal values."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Write one point of each curve; ``step`` counts over all epochs."""
        if split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(str(self._folder / split))
        with self._writers[split].as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def flush(self) -> None:
        """Put all points on disk: a process that is killed after a checkpoint does not make them again."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write the buffered curves and close all files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
