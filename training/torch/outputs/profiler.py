"""The profiler of PyTorch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


class TorchProfiler:
    """Writes ``profile/<time>.pt.trace.json`` to the folder of the logs. Implements ``Profiler``."""

    def __init__(self, folder: Path) -> None:
        """Prepare it; ``folder``: that of the logs."""
        self._folder = folder / "profile"
        self._running: Any = None

    def start(self) -> None:
        """Begin to record: operations of the host, and kernels of the GPU."""
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._running = profile(activities=activities)
        self._running.start()

    def stop(self) -> str:
        """Write what was recorded, and return the path of the file."""
        running, self._running = self._running, None
        running.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{time.strftime('%Y-%m-%d-%H-%M-%S')}.pt.trace.json"
        running.export_chrome_trace(str(path))
        return str(path)
