"""Tests of the private parts of TensorFlow that ranks use, in a process each: a strategy is made once."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os
from shardmill.training.tensorflow import starting
from shardmill.training.ranks.cluster import Cluster
from shardmill.infra.processes.ports import free_port

cluster = Cluster((f"localhost:{free_port()}",), 0)
os.environ["TF_CONFIG"] = cluster.to_tf_config()
starting.start(in_cluster=True)
from tensorflow.python.eager import context
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.coordination import let_idle_threads_sleep
from shardmill.training.tensorflow.ranks.strategy import Communication, make_rank_strategy

assert not let_idle_threads_sleep("2.22.0")  # another release may keep its configuration elsewhere
assert not context.context().config.experimental.disable_thread_spinning
strategy = make_rank_strategy(cluster, Communication("ring", 77.0, 88.0))
kept = context.context().coordination_service
assert kept.heartbeat_timeout_in_ms == 77_000, kept
assert kept.cluster_register_timeout_in_ms == 88_000, kept
assert context.context().config.experimental.disable_thread_spinning
group = group_of(strategy)
assert (group.rank, group.num_ranks) == (0, 1)
"""


def test_the_strategy_keeps_the_time_outs_that_were_set_before_it() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
