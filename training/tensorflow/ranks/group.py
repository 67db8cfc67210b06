"""Exchange values between the ranks of a run, through TensorFlow's collectives."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.processes.process import num_cpus
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.ranks.peers import Peers

# Variables travel in pieces of this many elements, so that a large model does not need its memory twice.
_PIECE = 1 << 24


class RankGroup(Peers):
    """The ranks that train under one strategy; a single one without a cluster."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        cluster = _cluster_of(strategy)
        if cluster is None:
            super().__init__(0, 1, num_cpus())
        else:
            super().__init__(cluster.rank, cluster.num_ranks, cluster.threads)
        self._sums: dict[tuple[Any, ...], Any] = {}

    def sum_over(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of a float array over several ranks."""
        # Traced by hand for each shape: TensorFlow warns of a function that is called with many.
        kind = (array.dtype.str, array.shape)
        if kind not in self._sums:
            traced = tf.function(self._sum_of_replicas, autograph=False)
            self._sums[kind] = traced.get_concrete_function(tf.TensorSpec(array.shape, array.dtype))
        return np.asarray(self._sums[kind](tf.constant(array)))

    def _sum_of_replicas(self, value: Any) -> Any:
        """Add up what the first replica of each rank has."""
        local = self._strategy.num_replicas_in_sync // self.num_ranks

        def on_replica(value: Any) -> Any:
            context = tf.distribute.get_replica_context()
            value = tf.identity(value)  # on this replica's device, where the collective takes it from
            if local > 1:
                first = tf.equal(context.replica_id_in_sync_group % local, 0)
                value = tf.where(first, value, tf.zeros_like(value))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

        return self._strategy.experimental_local_results(self._strategy.run(on_replica, args=(value,)))[0]

    def variables_of_first(self, variables: Sequence[Any]) -> None:
        """Give all variables the values that rank 0 has."""
        if self.num_ranks == 1:
            return
        with self._strategy.scope():
            for piece in _pieces(variables):
                self._share(piece)

    def _share(self, variables: Sequence[Any]) -> None:
        values = [np.asarray(variable.numpy()) for variable in variables]
        kind = np.float32 if values[0].dtype == np.float32 else np.float64
        flat = np.concatenate([value.reshape(-1).astype(kind) for value in values])
        flat = self.total(flat if self.is_first else np.zeros_like(flat))
        at = 0
        for variable, value in zip(variables, values, strict=True):
            variable.assign(flat[at : at + value.size].reshape(value.shape).astype(value.dtype))
            at += value.size


def _pieces(variables: Sequence[Any]) -> list[list[Any]]:
    """Divide variables into runs of one type class and about ``_PIECE`` elements."""
    pieces: list[list[Any]] = []
    size, before = 0, None
    for variable in variables:
        kind = str(variable.dtype) == "float32"
        count = int(np.prod(tuple(variable.shape), dtype=np.int64))
        if not pieces or kind != before or size + count > _PIECE:
            pieces.append([])
            size = 0
        pieces[-1].append(variable)
        size, before = size + count, kind
    return pieces


def _cluster_of(strategy: Any) -> Cluster | None:
    """Return the ranks of a strategy and the place of this process; None: it trains alone."""
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or resolver is None:
        return None
    jobs = resolver.cluster_spec().as_dict()
    addresses = tuple(str(address) for job in ("chief", "worker") for address in jobs.get(job, ()))
    chiefs = len(jobs.get("chief", ())) if resolver.task_type == "worker" else 0
    return Cluster(addresses, int(resolver.task_id) + chiefs) if addresses else None


@functools.cache
def group_of(strategy: Any) -> RankGroup:
    """Return the ranks that train under a strategy."""
    return RankGroup(strategy)
