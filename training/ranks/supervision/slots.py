"""The places for ranks on this machine: one a GPU, or as many as asked for on the CPU. No TensorFlow."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.errors import ConfigError, EnvironmentFault
from infra.readable import counted
from training.ranks.devices import DeviceRequest, visible_gpus

_WORKERS = re.compile(r"([1-9]\d*)(?:\.\.([1-9]\d*))?")
# A device on which ranks fail to start so often in a row is left out, if there are others.
_FAILED_STARTS = 2


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one rank.

    Attributes:
        name: for people.
        gpu: the value of ``CUDA_VISIBLE_DEVICES``; None: the rank trains on the CPU.
    """

    name: str
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class RankCount:
    """How many ranks may train: ``N`` or ``MIN..MAX``."""

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


class Slots:
    """The places for the ranks of one training, as devices come and go."""

    def __init__(
        self,
        count: RankCount,
        devices: str,
        list_gpus: Callable[[], list[str]] = visible_gpus,
        look_seconds: float = 30.0,
    ) -> None:
        """Make places.

        Args:
            count: how many ranks may train.
            devices: ``run.devices``.
            list_gpus: lists the GPUs that are there now.
            look_seconds: time between two looks for devices that are there again.

        Raises:
            ConfigError: there are fewer devices than ranks.
        """
        self._count = count
        self._request = DeviceRequest.parse(devices)
        self._list_gpus = list_gpus
        self._look_seconds = look_seconds
        self._on_gpus = not self._request.on_cpu and bool(list_gpus())
        self._failed_starts: Counter[Slot] = Counter()
        self._left_out: set[Slot] = set()
        self._looked_at = time.monotonic()
        present = len(self._present())
        if present < count.least:
            raise ConfigError(
                f"ranks.workers asks for at least {count.least} ranks, one a device, but there "
                f"{'is' if present == 1 else 'are'} {counted(present, 'device')} (run.devices = {devices!r})",
                f"set ranks.workers to {present}, or run.devices to cpu:{count.least}",
            )

    def choose(self) -> list[Slot]:
        """Return the places of the next attempt, one for each rank.

        Raises:
            EnvironmentFault: too few devices are left.
        """
        present = self._present()
        usable = [slot for slot in present if slot not in self._left_out]
        if len(usable) < self._count.least:
            usable = present
        if len(usable) < self._count.least:
            raise EnvironmentFault(
                f"{counted(len(usable), 'device')} left; ranks.workers asks for at least {self._count.least}",
                "repair the devices, or lower ranks.workers; then run the same command again",
            )
        return usable[: self._count.most]

    def has_more_than(self, used: Sequence[Slot]) -> bool:
        """Return whether a device is there again. Looks only now and then."""
        if len(used) >= self._count.most or time.monotonic() - self._looked_at < self._look_seconds:
            return False
        self._looked_at = time.monotonic()
        return len(self.choose()) > len(used)

    def note_failed_start(self, slot: Slot) -> None:
        """Note that the rank of ``slot`` failed before it began to train."""
        self._failed_starts[slot] += 1
        if self._failed_starts[slot] >= _FAILED_STARTS:
            self._left_out.add(slot)

    def note_progress(self) -> None:
        """Note that an attempt gained steps: devices that were left out may be tried again."""
        self._failed_starts.clear()
        self._left_out.clear()

    def _present(self) -> list[Slot]:
        if self._on_gpus:
            return [Slot(f"GPU {gpu}", gpu) for gpu in self._list_gpus()][: self._request.most]
        most = self._request.most if self._request.on_cpu else self._count.most
        return [Slot(f"CPU {number}") for number in range(most or self._count.most)]
