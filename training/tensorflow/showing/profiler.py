"""The profiler of TensorFlow."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf


class TensorFlowProfiler:
    """Writes to ``plugins/profile/`` in the folder of the logs. Implements ``Profiler``."""

    def __init__(self, folder: Path) -> None:
        """Prepare it; ``folder``: that of the logs."""
        self._folder = folder

    def start(self) -> None:
        """Begin to record."""
        tf.profiler.experimental.start(str(self._folder))

    def stop(self) -> str:
        """Write what was recorded, and return the folder."""
        tf.profiler.experimental.stop()
        return f"{self._folder}/plugins/profile"
