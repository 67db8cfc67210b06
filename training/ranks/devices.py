"""The setting ``run.devices``: the devices of a process, or of the ranks of a machine. No TensorFlow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from shardmill.infra.errors import EnvironmentFault

_PATTERN = re.compile(r"all|one|(?P<gpus>[1-9]\d*)|cpu:(?P<cpus>[1-9]\d*)")
_NVIDIA_SMI_SECONDS = 30


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The devices that ``run.devices`` asks for.

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
        found = _PATTERN.fullmatch(text)
        if found is None:
            raise ValueError("must be all, one, a number of GPUs, or cpu:N")
        if found["cpus"]:
            count = int(found["cpus"])
            return DeviceRequest(count, count, on_cpu=True)
        if found["gpus"]:
            count = int(found["gpus"])
            return DeviceRequest(count, count)
        return DeviceRequest(1 if text == "one" else None)


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as values for ``CUDA_VISIBLE_DEVICES``. No TensorFlow.

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
