"""The launcher of one machine: a process for each GPU, or any number on the CPU."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from typing_extensions import override

from shardmill.infra import progress as events
from shardmill.infra.errors import ConfigError, EnvironmentFault
from shardmill.infra.processes.ports import free_ports
from shardmill.infra.readable import counted
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.ranks.devices import DeviceRequest, RankCount, Slot, visible_gpus
from shardmill.training.ranks.supervision.running_rank import RankProcess, RankStart
from shardmill.training.ranks.supervision.supervisor import RankHosts, RankPlan

# After so many failed starts in a row, a device is no longer used, if there are others.
_FAILED_STARTS = 2


@contextmanager
def open_hosts(count: RankCount, devices: str, _options: object = None) -> Iterator[RankHosts]:
    """Open this machine for the ranks of one training; see ``LocalHosts``."""
    yield LocalHosts(count, devices)


class LocalHosts(RankHosts):
    """The places for ranks on this machine, as devices come and go."""

    def __init__(
        self,
        count: RankCount,
        devices: str,
        list_gpus: Callable[[], list[str]] = visible_gpus,
        look_seconds: float = 30.0,
    ) -> None:
        """Create the places for the ranks of a training.

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
        self._look: threading.Thread | None = None
        self._looked_at = time.monotonic()
        self._seen: list[Slot] = []
        present = len(self._present())
        if present < count.least:
            raise ConfigError(
                f"ranks.workers asks for at least {count.least} ranks, one a device, but there "
                f"{'is' if present == 1 else 'are'} {counted(present, 'device')} (run.devices = {devices!r})",
                f"set ranks.workers to {present}, or run.devices to cpu:{count.least}",
            )

    @override
    def choose(self, is_wanted: Callable[[], bool] = lambda: True) -> list[Slot]:
        self._seen = []
        present = self._present()
        usable = self._usable(present)
        if len(usable) < self._count.least:
            usable = present
        if len(usable) < self._count.least:
            raise EnvironmentFault(
                f"{counted(len(usable), 'device')} left; ranks.workers asks for at least {self._count.least}",
                "repair the devices, or lower ranks.workers; then run the same command again",
            )
        return usable[: self._count.most]

    @override
    def has_more_than(self, used: Sequence[Slot]) -> bool:
        if len(used) >= self._count.most:
            return False
        if time.monotonic() - self._looked_at >= self._look_seconds:
            # Ranks that train are watched meanwhile: the driver may take long to answer, or never answer.
            if self._look is None or not self._look.is_alive():
                self._look = threading.Thread(target=self._look_again, name="devices", daemon=True)
                self._look.start()
            self._looked_at = time.monotonic()
        return len(self._usable(self._seen)[: self._count.most]) > len(used)

    def _look_again(self) -> None:
        try:
            self._seen = self._present()
        except EnvironmentFault as error:
            self._seen = []
            events.log(f"looking for devices that are there again: {error}", level="warning")

    def _usable(self, present: Sequence[Slot]) -> list[Slot]:
        return [slot for slot in present if self._failed_starts[slot] < _FAILED_STARTS]

    @override
    def note_attempt(self, failed_start: Slot | None) -> None:
        if failed_start is None:
            self._failed_starts.clear()
        else:
            self._failed_starts[failed_start] += 1

    @override
    def start(self, plan: RankPlan, slots: Sequence[Slot], scratch: Path) -> Iterator[RankProcess]:
        addresses = tuple(f"localhost:{port}" for port in free_ports(len(slots)))
        for rank, slot in enumerate(slots):
            variables = {
                **slot.environment(len(slots)),
                "TF_CONFIG": Cluster(addresses, rank).to_tf_config() if len(slots) > 1 else "",
                "TMPDIR": str(scratch),  # removed with it, whatever a killed rank leaves there
            }
            heartbeat = scratch / f"rank-{rank}"
            yield RankProcess(RankStart(rank, plan.command, variables, plan.log_path(rank), heartbeat))

    def _present(self) -> list[Slot]:
        if self._on_gpus:
            return [Slot(f"GPU {gpu}", gpu) for gpu in self._list_gpus()][: self._request.most]
        most = self._request.most if self._request.on_cpu else self._count.most
        return [Slot(f"CPU {number}") for number in range(most or self._count.most)]
