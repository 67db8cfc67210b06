"""Report how training goes: fetch the figures from the device, and hand them to people and files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from shardmill.infra import progress as events
from shardmill.infra.errors import Diverged, DivergedElsewhere
from shardmill.training.config import TrainConfig
from shardmill.training.order import Order
from shardmill.training.ranks.peers import Peers
from shardmill.training.results.tensorboard_log import TensorBoardLog
from shardmill.training.run.checkpoints.checkpoints import AFTER_DIVERGENCE, Progress
from shardmill.training.run.framework import Framework, Model, StepTotals


class TrainingReports:
    """The reports of a run, each over the steps since the one before it."""

    def __init__(
        self,
        config: TrainConfig,
        model: Model,
        order: Order,
        log: TensorBoardLog,
        peak_device_bytes: Callable[[], Mapping[str, int]],
        ranks: Peers,
    ) -> None:
        """Report the steps of a model; ``peak_device_bytes`` returns the most memory of each GPU by name."""
        self._run = config.run
        self._model = model
        self._order = order
        self._log = log
        self._peak_device_bytes = peak_device_bytes
        self._ranks = ranks
        self._steps = 0
        self._images = 0
        self._timed: tuple[int, float, float] | None = None  # images, seconds and waiting at the last report

    def begin(self, run_step: int) -> None:
        """Announce the training, which has done ``run_step`` steps."""
        total = self._images_at(self._run.epochs * self._order.steps_per_epoch)
        events.stage("train", total, done=self._images_at(run_step))

    def count(self, num_real: int) -> None:
        """Count a step of ``num_real`` examples, which was started on the device."""
        self._steps += 1
        self._images += num_real

    def publish(self, progress: Progress) -> None:
        """Fetch the sums of the steps since the last report, add them to ``progress``, and report them.

        Raises:
            Diverged: the loss is not finite, or a gradient is not and the loss was not scaled.
        """
        if not self._steps:
            return
        sums = self._model.take_totals()
        run_step = progress.epoch * self._order.steps_per_epoch + progress.step
        scaled = self._run.mixed_precision == "float16"  # steps that overflow are left out
        if not math.isfinite(sums.loss):
            raise self._diverged(f"the loss became {sums.loss}", sums, progress)
        if sums.num_finite < self._steps and not scaled:
            raise self._diverged(
                f"the gradient became {sums.gradient_norm}, while the loss was finite,", sums, progress
            )
        progress.loss_sum += sums.loss
        progress.score_sum += sums.score
        progress.num_examples += self._images
        step_figures: dict[str, float] = {
            "step_loss": sums.loss / self._images,
            "learning_rate": self._model.last_rate(),
            "gradient_norm": sums.gradient_norm / self._steps,
        }
        if self._model.pruning is not None:
            step_figures["sparsity"] = self._model.pruning.schedule.sparsity(run_step)
        if scaled:
            step_figures["overflowed_steps"] = self._steps - sums.num_finite
        self._steps = self._images = 0
        step_figures["memory_process_bytes"] = int(psutil.Process().memory_info().rss)
        for name, peak in self._peak_device_bytes().items():
            step_figures[f"memory_{name.replace(':', '_').lower()}_peak_bytes"] = peak
        self._log.scalars("train", run_step, step_figures)
        self._announce(progress, run_step, {**step_figures, **self._recent_rates(progress)})

    def _diverged(self, what: str, sums: StepTotals, progress: Progress) -> Diverged:
        """Return the error of a loss or gradient that is not finite. Every rank must call this.

        From the next step on all ranks compute such losses: the one that has computed most was the first.
        """
        counts = self._ranks.all_values(sums.own_not_finite)
        is_first = counts[self._ranks.rank] == max(counts)
        rank = "" if min(counts) == max(counts) else f", first on rank {counts.index(max(counts))}"
        # A loss may be infinite where its gradient is not.
        when = f"at step {progress.step - self._steps + sums.num_sound + 1}"
        if sums.num_sound >= self._steps:
            when = f"by step {progress.step}"
        return (Diverged if is_first else DivergedElsewhere)(
            f"{what} {when}, epoch {progress.epoch + 1}{rank}", AFTER_DIVERGENCE
        )

    def _recent_rates(self, progress: Progress) -> dict[str, float]:
        """Return images per second and the share of waiting since the last report; empty at the first."""
        now = progress.images, progress.seconds, progress.wait_seconds
        before, self._timed = self._timed, now
        if before is None or now[1] <= before[1]:
            return {}
        images, seconds, waited = (new - old for new, old in zip(now, before, strict=True))
        return {"images_per_second": images / seconds, "input_wait_fraction": waited / seconds}

    def _announce(self, progress: Progress, run_step: int, step_figures: dict[str, float]) -> None:
        figures, epoch = self.epoch_figures(progress), progress.epoch + 1
        done, total = (
            self._images_at(at) for at in (run_step, self._run.epochs * self._order.steps_per_epoch)
        )
        rate: dict[str, Any] = (
            {"images_per_second": progress.images / progress.seconds} if progress.seconds else {}
        )
        events.progress("train", done, total, epoch=epoch, epochs=self._run.epochs, **figures, **rate)
        events.metrics(split="train", epoch=epoch, step=run_step, **step_figures, **figures)

    def epoch_figures(self, progress: Progress) -> dict[str, Any]:
        """Return loss and score over the reported steps of this epoch."""
        seen = max(progress.num_examples, 1)
        score_name = self._model.task.score_name
        return {"loss": progress.loss_sum / seen, score_name: progress.score_sum / seen}

    def _images_at(self, run_step: int) -> int:
        """Return the images of the first ``run_step`` steps of the run."""
        epoch, step = divmod(run_step, self._order.steps_per_epoch)
        size = self._order.global_batch_size
        per_epoch = min(self._order.steps_per_epoch * size, self._order.num_records)
        return epoch * per_epoch + min(step * size, per_epoch)


class StepProfile:
    """Profiles the steps ``run.profile_steps``."""

    def __init__(self, steps: tuple[int, int] | None, framework: Framework, logs: Path) -> None:
        """Prepare the profile.

        Args:
            steps: the first and the last step, counted from 1 over the run; None: no profile.
            framework: records them.
            logs: the folder of the logs.
        """
        self._steps = steps
        self._framework, self._logs = framework, logs
        self._is_on = False

    def step_begins(self, step: int) -> None:
        """Begin the profile if ``step`` is its first; a resumed run begins it inside the range."""
        if self._steps is not None and not self._is_on and self._steps[0] <= step <= self._steps[1]:
            self._framework.start_profile(self._logs)
            self._is_on = True

    def step_ends(self, step: int) -> None:
        """Write the profile if ``step`` is its last."""
        if self._steps is not None and step == self._steps[1]:
            self.close()

    def close(self) -> None:
        """Write the profile if it is not written yet, as where a run stops inside the range."""
        if self._is_on:
            self._is_on = False
            events.log(f"profiled steps: {self._framework.stop_profile()}")
