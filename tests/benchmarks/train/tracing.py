"""Measure the time that synchronised batch normalisation adds to tracing a deep model in its first step.

    python -m tests.benchmarks.train.tracing [--model MobileNetV3Small] [--image-size 96] [--batch 8]

The first step is traced, optimised by TensorFlow and run; the figures are CPU seconds of it in one process,
since the time on the clock depends on what else the machine does. Each case has processes of its own.

* *two logical devices*: one process with ``--devices cpu:2``.
* *two ranks*: two processes of one device each; the figure is that of rank 0.
* *ratio*: synchronised ÷ not synchronised.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from shardmill.infra.processes.ports import free_ports
from shardmill.infra.settings import load_settings
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.cluster import Cluster, cluster_from_environment
from shardmill.training.tensorflow import starting
from tests.benchmarks.train.in_memory import InMemory, random_batch
from tests.samples.datasets.published import coloured, publish

PATIENCE_SECONDS = 600.0


def main() -> None:
    """Print the table, or measure one case in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="MobileNetV3Small")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--batch", type=int, default=8, help="examples a step")
    parser.add_argument("--case", nargs=2, metavar=("DEVICES", "SYNCHRONIZED"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        print(first_step_seconds(args, *args.case))
        return
    print("| | not synchronised | synchronised | ratio |\n|---|---|---|---|")
    for name, devices, ranks in (("two logical devices", "cpu:2", 1), ("two ranks", "one", 2)):
        plain, synchronized = (case_seconds(devices, ranks, on) for on in ("false", "true"))
        print(f"| {name} | {plain:.1f} s | {synchronized:.1f} s | {synchronized / plain:.2f} |", flush=True)


def case_seconds(devices: str, num_ranks: int, synchronized: str) -> float:
    """Measure a case in processes of its own; the CPU seconds of the first."""
    argv = [sys.executable, "-m", "tests.benchmarks.train.tracing", *sys.argv[1:]]
    argv += ["--case", devices, synchronized]
    addresses = tuple(f"localhost:{port}" for port in free_ports(num_ranks))
    started = []
    for rank in range(num_ranks):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
        if num_ranks > 1:
            environment["TF_CONFIG"] = Cluster(addresses, rank).to_tf_config()
        started.append(subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True))
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"a process of the case failed: {devices}, synchronised: {synchronized}")
    return float(printed[0].split()[-1])


def first_step_seconds(args: argparse.Namespace, devices: str, synchronized: str) -> float:
    """Build the model in this process and take a step; its CPU seconds."""
    place = cluster_from_environment()
    cluster = place if isinstance(place, Cluster) else None
    starting.start(devices=devices, seed=0, in_cluster=cluster is not None)
    from shardmill.training.tensorflow.framework import TensorFlow
    from shardmill.training.tensorflow.parts import build_parts
    from shardmill.training.tensorflow.ranks.strategy import distribute, num_local_replicas
    from shardmill.training.tensorflow.step import TrainStep

    config = _config(args, devices, synchronized)
    strategy = _strategy(devices, cluster)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(TensorFlow(strategy, cluster).connected(config))
        classes = {"train": {str(number): 1 for number in range(10)}}
        version = publish(Path(folder), coloured(classes, size=(8, 8)), name="set")
        parts = build_parts(config, strategy, version, 10)
        rows = args.batch // strategy.num_replicas_in_sync
        own = rows * num_local_replicas(strategy)
        pipeline = InMemory(random_batch(args.image_size, own), 2, rows)
        batches: Any = iter(distribute(strategy, pipeline, 0, 2))
        step, batch = TrainStep(config, parts, rows), next(batches)
        before = time.process_time()
        step(batch, 0, args.batch)
        parts.totals.take()  # waits for the devices
        return time.process_time() - before


def _config(args: argparse.Namespace, devices: str, synchronized: str) -> TrainConfig:
    overrides: Sequence[str] = [
        f"model.name={args.model}",
        f"model.synchronized_batchnorm={synchronized}",
        f"data.image_size={args.image_size}",
        f"data.global_batch_size={args.batch}",
        f"run.devices={devices}",
        f"ranks.peer_timeout_seconds={PATIENCE_SECONDS}",
        f"ranks.start_timeout_seconds={PATIENCE_SECONDS}",
    ]
    return load_settings(TrainConfig, section="train", overrides=list(overrides))


def _strategy(devices: str, cluster: Cluster | None) -> Any:
    from shardmill.training.tensorflow.ranks.strategy import Communication, make_rank_strategy, make_strategy

    return make_strategy(devices) if cluster is None else make_rank_strategy(cluster, Communication())


if __name__ == "__main__":
    main()
