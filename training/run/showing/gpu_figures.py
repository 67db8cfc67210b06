"""The figures of the GPUs of all ranks."""

from __future__ import annotations

from shardmill.training.ranks.gpu_use import GpuSampler
from shardmill.training.ranks.peers import Peers


def gpu_figures(own: GpuSampler, ranks: Peers) -> dict[str, float]:
    """Return the figures of all GPUs since the last call; empty without GPUs or NVML.

    Those of several ranks begin with the rank. Every rank must call this.
    """
    found = own.take(f"rank{ranks.rank}_" if ranks.num_ranks > 1 else "")
    return {name: value for figures in ranks.all_values(found) for name, value in figures.items()}
