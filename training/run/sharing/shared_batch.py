"""Divide the global batch among the ranks of a run, and begin to count what they do. No framework."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shardmill.training.config import TrainConfig
from shardmill.training.order import Order
from shardmill.training.ranks.peers import Peers
from shardmill.training.reading import RecordReader
from shardmill.training.run.sharing.balance_record import BalanceRecord, RankLabels
from shardmill.training.run.sharing.division import (
    Division,
    MeasuredRank,
    measured_division,
    planned_division,
)


@dataclass(frozen=True, slots=True)
class SharedBatch:
    """The global batch of several ranks.

    Attributes:
        division: the rows that each rank takes.
        balance: counts what each rank does.
    """

    division: Division
    balance: BalanceRecord


def share_batch(
    config: TrainConfig,
    unit: int,
    ranks: Peers,
    own: MeasuredRank,
    train: RecordReader,
    order: Order,
    run_dir: Path,
) -> SharedBatch:
    """Divide the global batch as ``ranks.shares`` says. Every rank must call this.

    Args:
        config: the configuration of the run.
        unit: the rows of each rank are a multiple of it, if the global batch is.
        ranks: the ranks.
        own: this rank.
        train: the records of the train split.
        order: the order of the run.
        run_dir: the folder of the run.
    """
    planned = planned_division(config, ranks.num_ranks, unit)
    division = measured_division(planned, config, unit, ranks, own, run_dir)
    labels = RankLabels.of(train.split.version.manifest.classes, train.table)
    return SharedBatch(division, BalanceRecord(run_dir, ranks, own.kind, division, order, labels))
