"""The record of the work of each rank, by epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardmill import Dataset
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.training.order import TrainingOrder
from shardmill.training.run.sharing.balance_record import BalanceRecord, RankLabels
from shardmill.training.run.sharing.division import Division
from tests.samples.datasets.published import coloured, publish
from tests.samples.ranks.peers import Alone


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    return publish(
        tmp_path_factory.mktemp("sets"), coloured({"train": {"a": 7, "b": 5}}, size=(8, 8)), name="set"
    )


def record(version: DatasetVersion, run_dir: Path) -> BalanceRecord:
    table = Dataset(version).table("train")
    order = TrainingOrder(np.asarray(table.label), seed=0, global_batch_size=4)
    return BalanceRecord(run_dir, Alone(), "CPU", Division((4,)), order, RankLabels.of(["a", "b"], table))


def test_the_wait_for_other_ranks_is_the_growth_of_the_time_in_sums(
    version: DatasetVersion, tmp_path: Path
) -> None:
    balance = record(version, tmp_path)
    so_far = iter([5.0, 5.2, 5.5])  # the first step compiled
    balance.measure_waiting(lambda: next(so_far))
    for _ in range(3):
        balance.count_step(1, 1.0, 0.1)
    balance.end_epoch(0)
    found = balance.latest()
    assert found is not None
    (row,) = found.ranks
    assert row.waiting_seconds == pytest.approx(0.25)
    assert (row.step_seconds, row.input_seconds) == pytest.approx((1.0, 0.1))
    assert row.class_counts == (7, 5)


def test_without_sums_the_wait_is_not_measured(version: DatasetVersion, tmp_path: Path) -> None:
    balance = record(version, tmp_path)
    balance.measure_waiting(lambda: None)
    balance.count_step(1, 1.0, 0.1)
    balance.end_epoch(0)
    found = balance.latest()
    assert found is not None
    assert found.ranks[0].waiting_seconds is None
