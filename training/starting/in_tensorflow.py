"""Start TensorFlow in this process and train. Imports TensorFlow only when called."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import GO_ON, RankLost
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.cluster import Cluster
from shardmill.training.ranks.heartbeat import Heart
from shardmill.training.ranks.local_sums import PeerLost

_LINE_CHARACTERS = 300


def train_in_process(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    cluster: Cluster | None = None,
    heart: Heart | None = None,
) -> dict[str, Any]:
    """Train in this process, alone or as a rank: ``shardmill.training.tensorflow.session.train``.

    Raises:
        RankLost: another rank ended or does not answer.
    """
    from shardmill.training.tensorflow import starting

    with starting.quiet_start():
        starting.start(
            devices=config.run.devices,
            seed=config.data.seed,
            deterministic=config.run.deterministic,
            in_cluster=cluster is not None,
            gpu_memory_limit_bytes=config.run.gpu_memory_limit_bytes,
        )
        import tensorflow as tf

        from shardmill.training.tensorflow import session

    lost = (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
    )
    try:
        if cluster is None or cluster.rank == 0:
            return session.train(config, version, run_dir, cluster, heart)
        # Rank 0 writes the run's folder; what the others write on their way is the same, and of no use.
        with tempfile.TemporaryDirectory(prefix="shardmill-rank-") as scratch:
            return session.train(config, version, Path(scratch), cluster, heart)
    except (*lost, tf.errors.UnknownError) as error:
        # An error of Python inside a graph has no type of its own there.
        if cluster is None or not (isinstance(error, lost) or PeerLost.__name__ in str(error)):
            raise
        said = str(error.message or error).strip().splitlines()
        raise RankLost(
            f"rank {cluster.rank} lost another rank: {(said or [''])[0][:_LINE_CHARACTERS]}",
            f"all ranks must be started again; {GO_ON}",
        ) from error
