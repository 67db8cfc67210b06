"""The reports of a running training: progress, metrics and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardmill.infra.errors import Diverged, DivergedElsewhere
from shardmill.infra.progress import Event, subscribe
from shardmill.training.config import TrainConfig
from shardmill.training.order import TrainingOrder
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.epochs.reports import TrainingReports
from shardmill.training.run.epochs.run_progress import RunProgress
from shardmill.training.run.framework import StepTotals
from tests.samples.ranks.peers import Alone, WithOthers

ORDER = TrainingOrder(np.zeros(12, np.int32), seed=0, global_batch_size=4)
SOUND = StepTotals(4.0, 2.0, 1.0, 1, 1)


def model(totals: StepTotals = SOUND) -> Any:
    """A model that computes nothing."""
    task = SimpleNamespace(score_name="accuracy")
    return SimpleNamespace(task=task, pruning=None, take_totals=lambda: totals, last_rate=lambda: 0.1)


class NoCurves:
    def scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        pass


def test_the_rate_of_the_progress_is_that_of_the_whole_run_and_that_of_a_point_is_recent() -> None:
    config = TrainConfig()
    progress = RunProgress(config.run, ORDER, Progress(), has_validation=False)
    reports = TrainingReports(config, model(), ORDER, NoCurves(), dict, Alone())
    said: list[Event] = []
    end = subscribe(said.append)
    try:
        for seconds in (60.0, 1.0, 3.0):  # the first step compiles
            progress.count_time(seconds, 0.0, 4)
            progress.counts.step += 1
            reports.count(4)
            reports.publish(progress.counts)
    finally:
        end()
    shown = [event.get("images_per_second") for event in said if event["event"] == "progress"]
    points = [event.get("images_per_second") for event in said if event["event"] == "metrics"]
    assert shown == [None, pytest.approx(4.0), pytest.approx(2.0)]
    assert shown[-1] == progress.rates()["images_per_second"], "which the report tells"
    assert points == [None, pytest.approx(4.0), pytest.approx(4 / 3)]


@pytest.mark.parametrize(
    ("own", "other", "error", "told"),
    [
        pytest.param(5, 4, Diverged, "first on rank 1", id="the first one"),
        pytest.param(4, 5, DivergedElsewhere, "first on rank 0", id="one that follows"),
        pytest.param(4, 4, Diverged, "epoch 1", id="all in the same step"),
    ],
)
def test_the_rank_is_named_that_first_computed_a_loss_that_is_not_finite(
    own: int, other: int, error: type[Diverged], told: str
) -> None:
    parts = model(StepTotals(math.nan, 2.0, 1.0, 0, 0, own))
    reports = TrainingReports(TrainConfig(), parts, ORDER, NoCurves(), dict, WithOthers(1, {0: other}))
    reports.count(4)
    with pytest.raises(Diverged) as caught:
        reports.publish(Progress(step=1))
    assert type(caught.value) is error
    assert caught.value.message.endswith(told)


def test_a_gradient_that_is_not_finite_ends_the_run_and_names_the_first_step() -> None:
    parts = model(StepTotals(4.0, 2.0, math.nan, 3, 2))
    reports = TrainingReports(TrainConfig(), parts, ORDER, NoCurves(), dict, Alone())
    for _ in range(5):
        reports.count(4)
    with pytest.raises(
        Diverged, match=r"gradient became nan, while the loss was finite, at step 12, epoch 3"
    ):
        reports.publish(Progress(epoch=2, step=14))


def test_gradients_that_overflow_in_float16_are_counted_and_not_hidden() -> None:
    points: list[Any] = []
    parts = model(StepTotals(4.0, 2.0, math.inf, 3, 2))
    log = SimpleNamespace(scalars=lambda split, step, values: points.append(values))
    config = TrainConfig.model_validate({"run": {"mixed_precision": "float16"}})
    reports = TrainingReports(config, parts, ORDER, log, dict, Alone())
    for _ in range(5):
        reports.count(4)
    reports.publish(Progress(step=5))
    assert points[0]["gradient_norm"] == math.inf
    assert points[0]["overflowed_steps"] == 2


def test_the_curve_has_the_memory_of_the_process_and_of_each_gpu() -> None:
    points: list[Any] = []
    log: Any = SimpleNamespace(scalars=lambda split, step, values: points.append(values))
    peaks = {"GPU:0": 70, "cuda:1": 80}
    reports = TrainingReports(TrainConfig(), model(), ORDER, log, lambda: peaks, Alone())
    reports.count(4)
    reports.publish(Progress(step=1))
    assert points[0]["memory_process_bytes"] > 1 << 20
    assert (points[0]["memory_gpu_0_peak_bytes"], points[0]["memory_cuda_1_peak_bytes"]) == (70, 80)
