"""Exchange values between the ranks of a run, through TensorFlow's collectives.

All functions must be called by every rank, in the same sequence. Values travel as floats, since these are the
types that every device and every collective can add: float32 as they are, integers as float64, which is exact
below 2**53. A value from one rank is a sum to which all others add zeros.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shardmill.infra.processes.process import num_cpus
from shardmill.infra.strict_json import dump_json
from shardmill.training.ranks.cluster import Cluster

# Variables travel in pieces of this many elements, so that a large model does not need its memory twice.
_PIECE = 1 << 24
_LEAST_WIDTH = 512


class RankGroup:
    """The ranks that train under one strategy; a single one without a cluster.

    Attributes:
        rank: the number of this process.
        num_ranks: the number of ranks.
        threads: the processors of this machine for this rank.
        on_batch: is called whenever this process has got a batch.
    """

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        cluster = _cluster_of(strategy)
        self.rank, self.num_ranks = (0, 1) if cluster is None else (cluster.rank, cluster.num_ranks)
        self.threads = num_cpus() if cluster is None else cluster.threads
        self.on_batch: Callable[[], None] | None = None
        self._sums: dict[tuple[Any, ...], Any] = {}

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run's files."""
        return self.rank == 0

    def total(self, value: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the sum of a float array over all ranks. It has the same shape everywhere."""
        array = np.asarray(value)
        if self.num_ranks == 1:
            return array
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

    def gather_rows(self, rows: npt.NDArray[Any], own: slice, num_rows: int) -> npt.NDArray[Any]:
        """Return the rows of all ranks one after the other. Ranks may have different numbers of rows.

        Args:
            rows: [b, ...], numbers or booleans, of the same type and trailing shape on all ranks.
            own: the place of these rows among all.
            num_rows: the rows of all ranks together.
        """
        if self.num_ranks == 1:
            return rows
        kind = np.float32 if rows.dtype in (np.float32, np.float16, np.bool_, np.uint8) else np.float64
        whole = np.zeros((num_rows, *rows.shape[1:]), kind)
        whole[own] = rows
        return self.total(whole).astype(rows.dtype)

    def all_values(self, value: Any) -> list[Any]:
        """Return the JSON-able ``value`` of every rank, by rank."""
        if self.num_ranks == 1:
            return [value]
        own = np.frombuffer(dump_json(value).encode(), np.uint8)
        lengths = np.zeros(self.num_ranks, np.float32)
        lengths[self.rank] = own.size
        lengths = self.total(lengths).astype(np.int64)
        # Texts of about the same length share a shape, so that few shapes are traced.
        width = max(_LEAST_WIDTH, 1 << (int(lengths.max()) - 1).bit_length())
        texts = np.zeros((self.num_ranks, width), np.float32)
        texts[self.rank, : own.size] = own
        texts = self.total(texts).astype(np.uint8)
        return [json.loads(bytes(text[:length])) for text, length in zip(texts, lengths, strict=True)]

    def value_of_first(self, value: Any) -> Any:
        """Return the JSON-able ``value`` of rank 0."""
        return self.all_values(value if self.is_first else None)[0]

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
