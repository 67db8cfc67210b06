"""Set how long TensorFlow's ranks wait for each other. The only place that uses a private part of TensorFlow.

By default ranks give up on one that is silent for 10 seconds. A rank on a busy machine is silent for longer
while it compiles, and a healthy run would be lost. No public setting changes that. The strategy leaves the
settings alone if they are there before it is made; ``tests/unit/training/ranks`` notices if that changes.

Idle threads of TensorFlow look for work in a loop before they sleep. Ranks that share the cores of a machine
take them from each other so: a step of two ranks on two cores then costs a fifth more CPU time. The setting
that turns it off is part of the context's configuration, which no public function changes once TensorFlow is
imported. It is set in the releases of TensorFlow that it was tested with; in others ranks are only slower.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.eager import context

from shardmill.infra import progress as events

_LEADER = "/job:worker/replica:0/task:0"
_TESTED = ("2.21.",)


def set_patience(num_ranks: int, silence_seconds: float, start_seconds: float) -> None:
    """Set the time-outs of the ranks of this process. Call it before the strategy is made.

    Args:
        num_ranks: the number of ranks.
        silence_seconds: time without a heartbeat after which a rank counts as lost.
        start_seconds: time for all ranks to find the first.
    """
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=_LEADER,
        heartbeat_timeout_in_ms=round(silence_seconds * 1000),
        cluster_register_timeout_in_ms=round(start_seconds * 1000),
        coordinated_jobs=[coordination_config_pb2.CoordinatedJob(name="worker", num_tasks=num_ranks)],
    )


def let_idle_threads_sleep(release: str = tf.__version__) -> bool:
    """Let idle threads sleep at once, for ranks that share cores. Call it before the strategy is made.

    Args:
        release: the release of TensorFlow.

    Returns:
        Whether it could be set.
    """
    if not release.startswith(_TESTED):
        events.log(
            f"TensorFlow {release} was not tested with ranks on one machine: its idle threads may spin"
        )
        return False
    config = config_pb2.ConfigProto()
    config.experimental.disable_thread_spinning = True
    context.context()._config = config
    return True
