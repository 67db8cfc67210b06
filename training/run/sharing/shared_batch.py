"""Divide the global batch among the ranks of a run, and begin to count what they do.

Ranks wait for each other in the middle of a step: they sum gradients, and the statistics of batch
normalisation. So the time of a step is the same for all and says nothing about one of them. To measure speeds
each rank runs forward and backward pass on a copy of the model that exchanges nothing. All ranks do so at the
same time, so that those that share a processor have as much of it as in training.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from shardmill.training.config import TrainConfig
from shardmill.training.models.spec import ModelSpec
from shardmill.training.order import Order
from shardmill.training.ranks.peers import Peers
from shardmill.training.reading import RecordReader
from shardmill.training.run.framework import Framework
from shardmill.training.run.sharing.balance_record import BalanceRecord, RankLabels
from shardmill.training.run.sharing.division import (
    Division,
    MeasuredRank,
    measured_division,
    planned_division,
    unit_of_rows,
)

_LEAST_SECONDS = 1.0
_LEAST_STEPS = 5
_SKIPPED = 2  # the first call compiles, and the second may still choose algorithms


def share_batch(
    config: TrainConfig,
    framework: Framework,
    spec: ModelSpec,
    train: RecordReader,
    order: Order,
    run_dir: Path,
) -> tuple[Division, BalanceRecord | None]:
    """Divide the global batch as ``ranks.shares`` says. Every rank must call this.

    Args:
        config: the configuration of the run.
        framework: the framework with its ranks.
        spec: the parameters of the model, whose copies are measured.
        train: the records of the train split.
        order: the order of the run.
        run_dir: the folder of the run.

    Returns:
        The rows that each rank takes, and the record of what each does; None: there is one rank.
    """
    ranks, local = framework.ranks, framework.num_local_replicas
    unit = unit_of_rows(config, local)
    planned = planned_division(config, ranks.num_ranks, unit)
    if ranks.num_ranks == 1:
        return planned, None

    def seconds_per_example(rows: int) -> list[float]:
        together = max(1, rows // local // config.run.accumulate_steps)
        seconds = _seconds_of_step(framework.lone_step(spec, config, together), ranks)
        return [float(each) for each in ranks.all_values(seconds / together / local)]

    place = f"{socket.gethostname()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()
    own = MeasuredRank(framework.kind_of_device, place, seconds_per_example)
    division = measured_division(planned, config, unit, ranks, own, run_dir)
    labels = RankLabels.of(train.split.version.manifest.classes, train.table)
    return division, BalanceRecord(run_dir, ranks, own.kind, division, order, labels)


def _seconds_of_step(step: Callable[[], object], ranks: Peers) -> float:
    """Return the median time of a step of this rank (seconds), while all ranks take theirs.

    Args:
        step: takes a step, and waits for the device.
        ranks: the ranks; every one must call this.
    """
    own: list[float] = []
    for _ in range(_SKIPPED):
        own = [_timed(step)]
    window = max(_LEAST_SECONDS, _LEAST_STEPS * max(ranks.all_values(own[0])))
    own.clear()
    until = time.perf_counter() + window
    while not own or time.perf_counter() < until:
        own.append(_timed(step))
    return statistics.median(own)


def _timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started
