"""Try batch sizes with real training steps, each twice the one before, with any framework. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from shardmill.infra.errors import OutOfMemory
from shardmill.infra.processes.memory import free_memory_bytes
from shardmill.infra.processes.process import own_peak_rss_bytes
from shardmill.training.config import TrainConfig
from shardmill.training.run.sharing.division import unit_of_rows

# More examples a step make a run worse and hardly faster.
_MOST = 4096
_LEAST_STEPS_PER_EPOCH = 10
_SHARE_OF_RAM = 0.8


@dataclass(frozen=True, slots=True)
class Trial:
    """A batch size with which training steps were taken.

    Attributes:
        global_batch_size: examples a step, of all ranks together.
        peak_bytes: the most memory so far: of a GPU, or of this process if it trains on the CPU.
    """

    global_batch_size: int
    peak_bytes: int


class TriedSteps(Protocol):
    """Training steps of one rank of a run, with batches of any size."""

    @property
    def num_replicas(self) -> int:
        """The devices of this process."""

    @property
    def num_records(self) -> int:
        """The examples of the train split."""

    def take(self, config: TrainConfig) -> None:
        """Take some steps with the batch size of ``config``, and wait for them.

        Raises:
            OutOfMemory: they do not fit into memory.
        """

    def peak_device_bytes(self) -> dict[str, int]:
        """Return the most memory of each GPU so far (bytes), by name; empty if the CPU trains."""


def fitting_sizes(
    config: TrainConfig, steps: TriedSteps, ram_bytes: int, num_ranks: int = 1
) -> Iterator[Trial]:
    """Yield the global batch sizes that fit, from small to large.

    On GPUs the last one is that before a step did not fit. On CPUs, where a process that takes too much is
    killed, it is the last one whose double is not expected to exceed this rank's part of the memory: each
    doubling adds twice what the one before it added.

    Args:
        config: the configuration of the run.
        steps: the steps of the rank with the largest share.
        ram_bytes: the memory for all ranks.
        num_ranks: the ranks that share a step; none is expected to need more than this one.
    """
    last: Trial | None = None
    ram_bytes //= num_ranks
    shares = _shares(config, num_ranks)
    for size in _sizes(config, steps, sum(shares)):
        try:
            steps.take(sized(config, size // sum(shares) * max(shares)))
        except OutOfMemory:
            return
        peaks = steps.peak_device_bytes()
        trial = Trial(size, max(peaks.values(), default=0) or own_peak_rss_bytes())
        if not peaks and trial.peak_bytes > ram_bytes:
            return
        yield trial
        added = trial.peak_bytes - (trial if last is None else last).peak_bytes
        if not peaks and trial.peak_bytes + 2 * added > ram_bytes:
            return
        last = trial


def available_ram_bytes() -> int:
    """Return the part of this machine's free memory, or of this container's, that a run may take."""
    return int(_SHARE_OF_RAM * free_memory_bytes())


def sized(config: TrainConfig, size: int) -> TrainConfig:
    """Return the configuration with a batch size, and without a cache, which would be filled for nothing."""
    data = config.data.model_copy(update={"global_batch_size": size})
    reading = config.reading.model_copy(update={"cache": "none"})
    return config.model_copy(update={"data": data, "reading": reading})


def _shares(config: TrainConfig, num_ranks: int) -> list[int]:
    """Return the shares of the ranks in a step; measured ones are not known before the ranks begin."""
    given = config.ranks.shares
    return [1] * num_ranks if isinstance(given, str) or num_ranks == 1 else given


def _sizes(config: TrainConfig, steps: TriedSteps, num_shares: int) -> list[int]:
    """Return sizes that can be divided by shares, devices and parts, each twice the one before."""
    sizes = [num_shares * unit_of_rows(config, steps.num_replicas)]
    while 2 * sizes[-1] <= min(_MOST, steps.num_records // _LEAST_STEPS_PER_EPOCH):
        sizes.append(2 * sizes[-1])
    return sizes
