"""Sample how busy NVIDIA GPUs are, and how much of their memory is taken. No TensorFlow.

The figures come from the driver through NVML (``pip install 'shardmill[nvml]'``). Without the library, a
driver or a GPU nothing is sampled.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_SAMPLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at a GPU.

    Attributes:
        gpu: its number or UUID.
        utilization: the share of the last moments in which it computed something, from 0 to 1.
        memory_bytes: its memory that is taken, by any process.
    """

    gpu: str
    utilization: float
    memory_bytes: int


Reader = Callable[[], Sequence[GpuReading]]


def nvml_reader() -> Reader | None:
    """Return a function that looks at the GPUs of this process; None: there are none, or no library."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        names = chosen_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), pynvml.nvmlDeviceGetCount())
        handles = {
            name: pynvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdecimal()
            else pynvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
        }
    except pynvml.NVMLError:
        return None

    def read() -> list[GpuReading]:
        try:
            return [
                GpuReading(
                    name,
                    pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
                    int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
                )
                for name, handle in handles.items()
            ]
        except pynvml.NVMLError:  # a GPU that is gone is noticed by those who compute on it
            return []

    return read if handles else None


def chosen_gpus(allowed: str | None, count: int) -> list[str]:
    """Return the GPUs that a process may use, as numbers or UUIDs.

    Args:
        allowed: the value of ``CUDA_VISIBLE_DEVICES``; None: it is not set.
        count: the GPUs of the machine.
    """
    if allowed is None:
        return [str(number) for number in range(count)]
    names = [name.strip() for name in allowed.split(",")]
    return [name for name in names if name.startswith("GPU-") or (name.isdecimal() and int(name) < count)]


class GpuSampler:
    """Looks at GPUs every two seconds, in a thread of its own. A context manager: the thread ends with it."""

    def __init__(self, reader: Reader | None, seconds: float = _SAMPLE_SECONDS) -> None:
        """Begin to sample.

        Args:
            reader: looks at the GPUs; None: there is nothing to look at.
            seconds: time between two looks.
        """
        self._reader = reader
        self._seconds = seconds
        self._lock = threading.Lock()
        self._readings: dict[str, list[GpuReading]] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="GPU sampler", daemon=True)

    def __enter__(self) -> Self:
        if self._reader is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Look at the GPUs now."""
        readings = self._reader() if self._reader is not None else ()
        with self._lock:
            for reading in readings:
                self._readings.setdefault(reading.gpu, []).append(reading)

    def take(self, prefix: str = "") -> dict[str, float]:
        """Return the figures since the last call, and begin anew; empty if nothing was seen.

        Args:
            prefix: stands before each name.

        Returns:
            ``gpu<name>_utilization``, the mean share of time in which it computed, and
            ``gpu<name>_memory_bytes``, the most memory that was taken.
        """
        with self._lock:
            seen, self._readings = self._readings, {}
        figures: dict[str, float] = {}
        for name, readings in seen.items():
            shares = [reading.utilization for reading in readings]
            figures[f"{prefix}gpu{name}_utilization"] = sum(shares) / len(shares)
            figures[f"{prefix}gpu{name}_memory_bytes"] = max(reading.memory_bytes for reading in readings)
        return figures

    def _run(self) -> None:
        while not self._done.wait(self._seconds):
            self.look()
