"""Write curves and pictures for TensorBoard."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from PIL import Image
from tensorboard.plugins.image import metadata

_QUALITY = 88  # of pictures


class TensorBoardLog:
    """Writes to ``<folder>/<split>``. A resumed run writes some points again, with equal values.

    Attributes:
        folder: the folder of all splits.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writers: dict[str, Any] = {}

    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Write one point of each curve; ``step`` counts over all epochs."""
        with self._writer(split).as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def picture(self, split: str, name: str, step: int, picture: Image.Image) -> None:
        """Write a picture, as a JPEG: TensorFlow's own function would write PNGs, ten times as large."""
        stream = io.BytesIO()
        picture.save(stream, "jpeg", quality=_QUALITY)
        content = [str(picture.width).encode(), str(picture.height).encode(), stream.getvalue()]
        about = metadata.create_summary_metadata(display_name=None, description=name)
        with self._writer(split).as_default(step=step):
            tf.summary.write(name, tf.constant(content), metadata=about)

    def _writer(self, split: str) -> Any:
        if split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(str(self.folder / split))
        return self._writers[split]

    def flush(self) -> None:
        """Put all points on disk: a process that is killed after a checkpoint does not make them again."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write the buffered curves and close all files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
