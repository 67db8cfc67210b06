"""Write curves and pictures for TensorBoard, with any framework or none.

An event file is a TFRecord file of ``Event`` messages; the package tensorboard has these messages too. It is
loaded when the first point is written.
"""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image

from shardmill.infra.format.records import frame

_QUALITY = 88  # JPEG quality of pictures


class TensorBoardLog:
    """Writes to ``<folder>/<split>``. A resumed run writes some points again, with equal values.

    Attributes:
        folder: the folder of all splits.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}

    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Write one point of each curve; ``step`` counts over all epochs."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write(
            split,
            step,
            [Summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()],
        )

    def picture(self, split: str, name: str, step: int, picture: Image.Image) -> None:
        """Write a picture, as a JPEG: a PNG would be ten times as large."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.image import metadata

        stream = io.BytesIO()
        picture.save(stream, "jpeg", quality=_QUALITY)
        content = [str(picture.width).encode(), str(picture.height).encode(), stream.getvalue()]
        tensor = TensorProto(dtype=DT_STRING, string_val=content)
        tensor.tensor_shape.dim.add(size=len(content))
        about = metadata.create_summary_metadata(display_name=None, description=name)
        self._write(split, step, [Summary.Value(tag=name, tensor=tensor, metadata=about)])

    def _write(self, split: str, step: int, values: list[Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if split not in self._files:
            folder = self.folder / split
            folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads the files of a folder in the order of their names, that is of their times.
            name = f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}.{os.getpid()}"
            # Unbuffered, so that TensorBoard shows each point at once.
            self._files[split] = (folder / name).open("wb", buffering=0)
            self._append(split, Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._append(split, Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _append(self, split: str, event: Any) -> None:
        self._files[split].write(frame(event.SerializeToString()))

    def flush(self) -> None:
        """Put all points on disk: a process that is killed after a checkpoint does not make them again."""
        for file in self._files.values():
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
