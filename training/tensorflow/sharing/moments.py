"""Add up the moments of batch normalisation between ranks of one machine past TensorFlow's collectives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shardmill.training.ranks.cluster import Cluster
from shardmill.training.ranks.local_sums import MOST_BYTES, LocalSums, Patience, connected
from shardmill.training.tensorflow.models.normalization import sum_by
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.strategy import num_local_replicas


@contextmanager
def moments_between_ranks(
    strategy: Any, cluster: Cluster | None, patience: Patience
) -> Iterator[LocalSums | None]:
    """Add up moments through sockets while the block runs, if all ranks are CPUs of one machine.

    GPUs, and ranks of several machines, add them up with their gradients' collectives; then None is yielded.
    Every rank must call this.

    Args:
        strategy: the ``tf.distribute.Strategy``.
        cluster: the ranks; None: this process trains alone.
        patience: how long a rank waits for another.
    """
    if cluster is None or not cluster.is_on_one_machine:
        yield None
        return
    devices = strategy.extended.worker_devices
    own = num_local_replicas(strategy) == 1 and "CPU" in devices[0]
    ranks = group_of(strategy)
    if not all(ranks.all_values(own)):
        yield None
        return
    with connected(ranks, patience) as sums, sum_by(strategy, sums.total, MOST_BYTES):
        yield sums
