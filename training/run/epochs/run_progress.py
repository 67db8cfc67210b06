"""The progress of a run: position, times, best epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardmill.infra import progress as events
from shardmill.training.config import RunSettings
from shardmill.training.metrics.figures import are_finite, is_smaller_better
from shardmill.training.order import Order
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.files.lengthening import check_not_past


def resumed(found: Progress | None, run: RunSettings, order: Order) -> Progress:
    """Return the counts at which a run begins: those of its latest checkpoint, if there is one.

    Args:
        found: the counts of the latest checkpoint; None: there is none.
        run: the settings of the run.
        order: the order of the train split.

    Raises:
        ConfigError: the run has gone further than ``run.epochs`` already.
    """
    if found is None:
        return Progress()
    check_not_past(found.epoch, found.step, run.epochs)
    best = found.best
    # Earlier releases let a diverged epoch be the best. Without a validation split there is only a loss.
    if best is not None and not are_finite(best, run.best_metric if run.best_metric in best else "loss"):
        found = replace(found, best=None)
    events.log(f"resuming at epoch {found.epoch + 1}, step {found.step} of {order.steps_per_epoch}")
    return found


class RunProgress:
    """Counts the steps and epochs of a run, and remembers its best epoch.

    Attributes:
        counts: everything that is counted, as it stands in checkpoints.
    """

    def __init__(self, run: RunSettings, order: Order, counts: Progress, *, has_validation: bool) -> None:
        """Continue at ``counts``.

        Args:
            run: the settings of the run.
            order: the order of the train split.
            counts: the counts of the latest checkpoint, or those of a run that begins.
            has_validation: whether epochs are compared on a validation split; otherwise the last is best.
        """
        self._run = run
        self._order = order
        self._has_validation = has_validation
        self._steps_here = 0
        self.counts = counts

    @property
    def total_steps(self) -> int:
        """The number of steps of the whole run."""
        return self._run.epochs * self._order.steps_per_epoch

    @property
    def run_step(self) -> int:
        """The number of steps done, over all epochs."""
        return self.counts.epoch * self._order.steps_per_epoch + self.counts.step

    @property
    def has_epochs_left(self) -> bool:
        """Whether the run has an epoch to train."""
        return self.counts.epoch < self._run.epochs

    @property
    def epoch_is_done(self) -> bool:
        """Whether all steps of this epoch are done."""
        return self.counts.step >= self._order.steps_per_epoch

    @property
    def num_real(self) -> int:
        """The number of examples of the next step, without the padding of a last one."""
        size = self._order.global_batch_size
        return min(size, self._order.num_records - self.counts.step * size)

    def is_time(self, setting: str) -> bool:
        """Return whether the number of steps done is a multiple of a setting of [train.run]."""
        every = getattr(self._run, setting)
        return every is not None and self.run_step % every == 0

    def expect_slow_step(self) -> None:
        """Leave out the time of the next step: it compiles."""
        self._steps_here = 0

    def count_time(self, seconds: float, waited: float, num_real: int) -> bool:
        """Count the time of a step, and return whether it was counted: that of a first step is not.

        Args:
            seconds: time (seconds) of the step, with the wait for its batch.
            waited: for its batch (seconds).
            num_real: its examples.
        """
        self._steps_here += 1
        if self._steps_here == 1 and self.total_steps > 1:
            return False
        self.counts.seconds += seconds
        self.counts.wait_seconds += waited
        self.counts.images += num_real
        return True

    @property
    def validation_is_due(self) -> bool:
        """Whether this epoch, whose steps are done, ends with a validation."""
        epoch = self.counts.epoch + 1
        is_last = epoch == self._run.epochs
        return self._has_validation and (is_last or epoch % self._run.validate_every_epochs == 0)

    def end_epoch(self, row: dict[str, Any], *, may_be_best: bool = True) -> None:
        """Add the figures of an epoch to the history, and begin the next one.

        Without a validation split the last epoch is the best.

        Args:
            row: ``epoch`` (from 1), ``step``, figures by split.
            may_be_best: whether this epoch's model may be the best.
        """
        self.counts = replace(
            self.counts,
            epoch=int(row["epoch"]),
            step=0,
            loss_sum=0.0,
            score_sum=0.0,
            num_examples=0,
            history=[*self.counts.history, row],
        )
        figures = row.get("validation") if self._has_validation else row["train"]
        if figures is not None and may_be_best and (not self._has_validation or self.is_best(figures)):
            self.counts.best = {"epoch": row["epoch"], **figures}

    def is_best(self, figures: Mapping[str, float]) -> bool:
        """Return whether figures of the validation split are the best so far."""
        return is_better(figures, self.counts.best, self._run.best_metric)

    def may_compare(self, figures: Mapping[str, float]) -> bool:
        """Return whether figures of the validation split are finite, so that they may be the best."""
        return are_finite(figures, self._run.best_metric)

    @property
    def out_of_patience(self) -> str | None:
        """The reason why the run ends early by ``run.patience``; None: it does not."""
        best, patience = self.counts.best, self._run.patience
        if best is None or patience is None or looks_since_best(self.counts.history, best) < patience:
            return None
        return (
            f"validation {self._run.best_metric} was best after epoch {best['epoch']:.0f} "
            f"(run.patience = {patience})"
        )

    def rates(self) -> dict[str, float]:
        """Return the images per second of training, and the share of that time spent waiting for data."""
        seconds = self.counts.seconds
        return {
            "images_per_second": self.counts.images / seconds if seconds else 0.0,
            "input_wait_fraction": self.counts.wait_seconds / seconds if seconds else 0.0,
        }


def is_better(figures: Mapping[str, float], best: Mapping[str, float] | None, metric: str) -> bool:
    """Return whether ``figures`` are better than the best so far by a metric; the loss decides ties.

    Figures of which the metric or the loss is not finite are never better, and any others are better than
    they.
    """
    if not are_finite(figures, metric):
        return False
    if best is None or not are_finite(best, metric):
        return True
    sign = -1.0 if is_smaller_better(metric) else 1.0
    return (sign * figures[metric], -figures["loss"]) > (sign * best[metric], -best["loss"])


def looks_since_best(history: Sequence[Mapping[str, Any]], best: Mapping[str, float] | None) -> int:
    """Return the number of looks at the validation split after the best epoch."""
    if best is None:
        return 0
    return sum("validation" in row and row["epoch"] > best["epoch"] for row in history)
