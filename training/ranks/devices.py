"""Devices of a machine: how many a training asks for, the one of each rank, and how busy GPUs are.

How busy they are comes from the driver through NVML (``pip install 'shardmill[nvml]'``). Without the library,
a driver or a GPU nothing is sampled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.processes.process import num_cpus

_DEVICES = re.compile(r"all|one|(?P<gpus>[1-9]\d*)|cpu:(?P<cpus>[1-9]\d*)")
_WORKERS = re.compile(r"([1-9]\d*)(?:\.\.([1-9]\d*))?")
_NVIDIA_SMI_SECONDS = 30
_SAMPLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The devices that ``run.devices`` asks for, of a process or of the ranks of a machine.

    Attributes:
        most: use at most so many devices; None: all that there are.
        least: refuse to start with fewer.
        on_cpu: split the CPU into ``most`` devices, even if there are GPUs.
    """

    most: int | None
    least: int = 1
    on_cpu: bool = False

    @staticmethod
    def parse(text: str) -> DeviceRequest:
        """Parse ``all``, ``one``, ``N`` or ``cpu:N``.

        Raises:
            ValueError: the text is something else.
        """
        found = _DEVICES.fullmatch(text)
        if found is None:
            raise ValueError("must be all, one, a number of GPUs, or cpu:N")
        if number := found["cpus"] or found["gpus"]:
            return DeviceRequest(int(number), int(number), on_cpu=found["cpus"] is not None)
        return DeviceRequest(1 if text == "one" else None)


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as values for ``CUDA_VISIBLE_DEVICES``.

    Raises:
        EnvironmentFault: the driver does not answer.
    """
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None and allowed.strip() in ("", "-1", "NoDevFiles"):
        return []
    present = _gpus_of_the_driver()
    if allowed is None:
        return [index for index, _ in present]
    names = {name for row in present for name in row}
    return [name for name in (part.strip() for part in allowed.split(",")) if name in names]


def _gpus_of_the_driver() -> list[tuple[str, str]]:
    """Return (index, UUID) of each GPU that the driver reports; none without a driver."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    argv = [command, "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        out = subprocess.run(argv, capture_output=True, text=True, timeout=_NVIDIA_SMI_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFault(
            "nvidia-smi does not answer", "check the NVIDIA driver of this machine"
        ) from error
    if out.returncode:  # a driver that is installed, but has no GPU
        return []
    rows = [line.split(",") for line in out.stdout.splitlines() if line.strip()]
    return [(row[0].strip(), row[1].strip()) for row in rows]


@dataclass(frozen=True, slots=True)
class RankCount:
    """How many ranks may train: ``ranks.workers``."""

    least: int
    most: int

    @staticmethod
    def parse(text: str) -> RankCount:
        """Parse ``N`` or ``MIN..MAX``.

        Raises:
            ValueError: the text is something else.
        """
        found = _WORKERS.fullmatch(text.strip())
        if found is None:
            raise ValueError("must be a number of ranks, or a range such as 2..4")
        least = int(found[1])
        most = int(found[2] or least)
        if most < least:
            raise ValueError(f"the range begins above its end; write {most}..{least}")
        return RankCount(least, most)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one rank.

    Attributes:
        name: for people.
        gpu: the value of ``CUDA_VISIBLE_DEVICES``; None: the rank trains on the CPU.
    """

    name: str
    gpu: str | None = None

    def environment(self, num_ranks: int) -> dict[str, str]:
        """Return the variables of a process that sees this device alone, and shares the host's cores.

        Args:
            num_ranks: the ranks on this machine.
        """
        variables = {"CUDA_VISIBLE_DEVICES": self.gpu or "-1"}
        if self.gpu is None and "TF_NUM_INTRAOP_THREADS" not in os.environ:
            variables["TF_NUM_INTRAOP_THREADS"] = str(max(1, num_cpus() // num_ranks))
        return variables


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
