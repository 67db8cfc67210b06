"""Write curves for TensorBoard without TensorFlow: event files of TensorBoard's own messages."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary

from infra.format.records import frame


class EventLog:
    """Writes scalars to ``<folder>/<split>``. A resumed run writes some points again, with equal values."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, BinaryIO] = {}

    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Write one point of each curve; ``step`` counts over all epochs."""
        points = [Summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()]
        self._write(split, Event(wall_time=time.time(), step=step, summary=Summary(value=points)))

    def _write(self, split: str, event: Any) -> None:
        if split not in self._files:
            folder = self._folder / split
            folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads the files of a folder in the order of their names, that is of their times.
            name = f"events.out.tfevents.{time.time_ns():020d}.{socket.gethostname()}.{os.getpid()}"
            self._files[split] = (folder / name).open("wb")
            self._write(split, Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._files[split].write(frame(event.SerializeToString()))

    def flush(self) -> None:
        """Put all points on disk: a process that is killed after a checkpoint does not make them again."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Write the buffered curves and close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
