"""Counting the steps, times and epochs of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmill.training.config import RunSettings
from shardmill.training.order import TrainingOrder
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.epochs.run_progress import RunProgress

ORDER = TrainingOrder(np.zeros(10, np.int32), seed=0, global_batch_size=4)  # three steps, the last of two


def progress_of(has_validation: bool = True, counts: Progress | None = None, **settings: Any) -> RunProgress:
    settings = {"best_metric": "accuracy"} | settings
    return RunProgress(RunSettings(**settings), ORDER, counts or Progress(), has_validation=has_validation)


def ended(progress: RunProgress, **losses: float) -> None:
    """End an epoch with a loss of each split."""
    row: dict[str, Any] = {split: {"loss": loss, "accuracy": 1 - loss} for split, loss in losses.items()}
    epoch = progress.counts.epoch + 1
    progress.end_epoch({"epoch": epoch, "step": epoch * ORDER.steps_per_epoch, **row})


def test_positions() -> None:
    progress = progress_of(epochs=4, counts=Progress(epoch=1, step=2), checkpoint_every_steps=5)
    assert (progress.total_steps, progress.run_step, progress.num_real) == (12, 5, 2)
    assert progress.is_time("checkpoint_every_steps")
    assert not progress.epoch_is_done
    progress.counts.step += 1
    assert progress.epoch_is_done
    assert not progress.is_time("checkpoint_every_steps")


def test_the_time_of_a_step_that_compiles_is_left_out() -> None:
    progress = progress_of(epochs=4)
    assert not progress.count_time(60.0, 1.0, 4)
    assert progress.count_time(2.0, 0.5, 4)
    progress.expect_slow_step()
    assert not progress.count_time(60.0, 1.0, 4)
    assert progress.rates() == {"images_per_second": 2.0, "input_wait_fraction": 0.25}


@pytest.mark.parametrize(("epochs", "every", "wanted"), [(5, 2, [2, 4, 5]), (3, 1, [1, 2, 3]), (2, 9, [2])])
def test_the_last_epoch_is_always_validated(epochs: int, every: int, wanted: list[int]) -> None:
    progress, found = progress_of(epochs=epochs, validate_every_epochs=every), []
    while progress.has_epochs_left:
        if progress.validation_is_due:
            found.append(progress.counts.epoch + 1)
        ended(progress, train=0.5)
    assert found == wanted


def test_the_best_epoch_and_patience() -> None:
    progress = progress_of(epochs=9, patience=2, best_metric="loss")
    for loss in (0.5, 0.3, 0.4):
        ended(progress, train=0.1, validation=loss)
        assert progress.out_of_patience is None
    ended(progress, train=0.1, validation=0.35)
    assert progress.counts.best == {"epoch": 2, "loss": 0.3, "accuracy": 0.7}
    assert "best after epoch 2 (run.patience = 2)" in str(progress.out_of_patience)


def test_without_validation_the_last_epoch_is_the_best() -> None:
    progress = progress_of(has_validation=False, epochs=9)
    for loss in (0.1, 0.6):
        ended(progress, train=loss)
    assert progress.counts.best == {"epoch": 2, "loss": 0.6, "accuracy": 0.4}
    assert not progress.validation_is_due


def test_an_epoch_may_be_ruled_out_as_the_best() -> None:
    progress = progress_of(epochs=9)
    progress.end_epoch(
        {"epoch": 1, "step": 3, "validation": {"loss": 0.1, "accuracy": 0.9}}, may_be_best=False
    )
    assert progress.counts.best is None
    assert progress.is_best({"loss": 0.9, "accuracy": 0.1})
