"""The epochs of a training: steps, reports, validation and checkpoints, the same with any framework.

The loop of a framework derives from ``EpochLoop``, and says what a step is. No TensorFlow.
"""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.errors import Cancelled
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.heartbeat import Work
from shardmill.training.ranks.peers import Peers
from shardmill.training.reading import RecordReader
from shardmill.training.results.metrics.tally import Evaluation
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.epochs.data_and_outputs import RunOutputs, TrainingData
from shardmill.training.run.epochs.reports import TrainingReports
from shardmill.training.run.epochs.run_progress import RunProgress
from shardmill.training.run.evaluating.interface import Sink
from shardmill.training.run.optimization.stages import Stages
from shardmill.training.run.showing.gpu_figures import gpu_figures
from shardmill.training.run.showing.pictures import HardestExamples
from shardmill.training.run.showing.step_profile import Profiler, StepProfile
from shardmill.training.run.stopping.interruption import StopFlag


class EpochLoop(ABC):
    """Trains one model from its latest checkpoint to the end of its epochs.

    A derived class also sets ``_names``, the names of the labels, and ``_evaluator``.
    """

    _names: list[str]
    _evaluator: Any

    def __init__(
        self,
        config: TrainConfig,
        parts: Any,
        data: TrainingData[Any],
        outputs: RunOutputs,
        progress: Progress,
        stop: StopFlag,
        reports: TrainingReports,
        ranks: Peers,
    ) -> None:
        """Make a loop that continues at ``progress``, whose checkpoint the caller has restored."""
        self._config = config
        self._parts = parts
        self._data = data
        self._outputs = outputs
        self._stop = stop
        self._reports = reports
        self._ranks = ranks
        self._run = RunProgress(config.run, data.order, progress, has_validation=data.validation is not None)
        self._shows_pictures = config.run.log_pictures and ranks.is_first
        self._profile = StepProfile(config.run.profile_steps, self._make_profiler())
        self._train_step: Any = None
        self._head_alone = False
        self._saved_at = time.monotonic()

    # -- steps that differ between frameworks ----------------------------------------------------------

    @abstractmethod
    def _make_profiler(self) -> Profiler:
        """Return what records steps for people."""

    @abstractmethod
    def _open_batches(self) -> Iterator[Any]:
        """Return the batches of this process, from the next step to the end of the run."""

    @abstractmethod
    def _make_step(self, head: Any | None) -> Any:
        """Return the training step of a stage; in the stage ``head`` only the classifier learns."""

    @abstractmethod
    def _take_step(self, batch: Any, num_real: int) -> None:
        """Train on a batch. The global batch has ``num_real`` examples.

        Raises:
            OutOfMemory: the step does not fit into memory.
        """

    @abstractmethod
    def _log_first_batch(self, batch: Any) -> None:
        """Show the first examples of the run as the model sees them."""

    @abstractmethod
    def _consumed(self, batch: Any) -> list[str]:
        """Return the ids of the step's real examples, in the order of the global batch."""

    # A framework may have nothing to do at these points.

    def _epoch_begins(self) -> None:  # noqa: B027
        """Act before the first step of an epoch."""

    def _step_ended(self) -> None:  # noqa: B027
        """Act after a step and its report."""

    def _epoch_ended(self, row: dict[str, Any]) -> None:  # noqa: B027
        """Act after an epoch; ``row``: its figures."""

    # -- the run ---------------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The position of the run, and its counts."""
        return self._run.counts

    @property
    def run_step(self) -> int:
        """The number of steps done, over all epochs."""
        return self._run.run_step

    @property
    def stopped_early(self) -> str | None:
        """The reason why the run ends before its last epoch; None if it does not."""
        return self._run.out_of_patience

    def rates(self) -> dict[str, float]:
        """Return the images per second of training, and the share of that time spent waiting for data."""
        return self._run.rates()

    def run(self) -> None:
        """Train to the end.

        Raises:
            Cancelled: stopped on request, after a checkpoint of the last whole step.
            Diverged: loss, gradient or weights are not finite.
            OutOfMemory: a step does not fit into memory.
            CorruptDataError: a record is damaged.
        """
        self._reports.begin(self.run_step)
        batches = self._open_batches()
        try:
            while self._run.has_epochs_left and self.stopped_early is None:
                self._begin_stage()
                self._epoch_begins()
                while not self._run.epoch_is_done:
                    self._train(batches)
                self._finish_epoch()
        except Cancelled:
            self._save()
            raise
        finally:
            self._profile.close()

    def _begin_stage(self) -> None:
        """At the first step of a stage, make the layers of the stage trainable."""
        stages: Stages = self._parts.stages
        head = stages.head_of(self.progress.epoch)
        alone = head is not None
        if self._train_step is not None and alone == self._head_alone:
            return
        self._stop.begin_stage()  # the step compiles again
        self._train_step = None
        gc.collect()  # the step of the last stage and its exchange of gradients
        if head is not None:
            head.alone.begin()
        elif stages.head is not None:
            stages.head.alone.end()
        self._train_step = self._make_step(head)
        self._head_alone = alone

    def _train(self, batches: Iterator[Any]) -> None:
        """Take one step, and report and save where it is time."""
        started = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - started
        num_real = self._run.num_real
        if self.run_step == 0 and self._shows_pictures:
            self._log_first_batch(batch)
        self._profile.step_begins(self.run_step + 1)
        self._take_step(batch, num_real)
        self._profile.step_ends(self.run_step + 1)
        self._reports.count(num_real)
        if self._outputs.trace is not None:
            self._outputs.trace.add(self.progress.epoch, self.progress.step, self._consumed(batch))
        self.progress.step += 1
        self._stop.note_step()
        if self._run.is_time("log_every_steps") or self._run.epoch_is_done:
            # Reporting waits for the device. At the end of an epoch it is done here, so that its time counts.
            self._reports.publish(self.progress)
        self._step_ended()
        if self._save_is_due():
            self._save()
        seconds = time.perf_counter() - started
        if self._run.count_time(seconds, waited, num_real) and self._data.balance is not None:
            self._data.balance.count_step(self.run_step, seconds, waited)
        self._stop.check()

    # -- the end of an epoch ---------------------------------------------------------------------------

    def _finish_epoch(self) -> None:
        """Validate, keep the best model, record the epoch's figures, and begin the next epoch."""
        self._reports.publish(self.progress)
        with self._stop.during(Work.LONG):
            self._outputs.checkpoints.check(self.run_step, self._parts.state)
        row = self._figures_of_epoch()
        pruning = self._parts.pruning
        # A model that is not pruned to the end cannot be the best.
        self._run.end_epoch(row, may_be_best=pruning is None or pruning.is_complete(row["step"]))
        with self._stop.during(Work.LONG):
            self._outputs.history.write(self.progress.history)
            self._outputs.trackers.epoch(row)
            if self._data.balance is not None:
                self._data.balance.end_epoch(row["epoch"] - 1)
            self._epoch_ended(row)
        started = time.perf_counter()
        self._save()
        self.progress.seconds += time.perf_counter() - started

    def _figures_of_epoch(self) -> dict[str, Any]:
        """Return the row of the epoch whose steps are done; validate if it is time."""
        log, run_step, epoch = self._outputs.log, self.run_step, self.progress.epoch + 1
        train = self._reports.epoch_figures(self.progress)
        row: dict[str, Any] = {"epoch": epoch, "step": run_step, "train": train}
        log.scalars("train", run_step, {**train, **self.rates()})
        validation = self._data.validation
        if validation is not None and self._run.validation_is_due:
            hardest = HardestExamples(
                self._parts.task.columns(), self._names, is_whole=self._config.data.fit == "stretch"
            )
            figures = self._validate(validation, hardest).figures()
            row["validation"] = figures
            if not self._run.may_compare(figures):
                events.log(
                    f"the figures of the validation split after epoch {epoch} are not finite, so that its "
                    f"model cannot be the best: loss {figures['loss']:g}",
                    level="warning",
                )
            log.scalars("validation", run_step, figures)
            events.metrics(split="validation", epoch=epoch, step=run_step, **figures)
            if self._shows_pictures and self._run.is_best(figures):
                with self._stop.during(Work.LONG):
                    hardest.write(log, run_step, validation)
        if devices := gpu_figures(self._outputs.gpus, self._ranks):
            row["devices"] = devices
            log.scalars("devices", run_step, devices)
        return row

    def _validate(self, validation: RecordReader, sink: Sink) -> Evaluation:
        def on_batch(done: int) -> None:
            events.progress("validate", done, len(validation.table))
            self._stop.check()

        events.stage("validate", len(validation.table))
        with self._parts.evaluated():
            found: Evaluation = self._evaluator.evaluate(validation, on_batch, sink)
        return found

    # -- checkpoints -----------------------------------------------------------------------------------

    def _save_is_due(self) -> bool:
        if self._run.epoch_is_done:
            return False  # the end of the epoch saves
        old = time.monotonic() - self._saved_at > self._config.run.checkpoint_every_seconds
        # All ranks save at the same step, whatever their clocks say: they add up the figures of the report.
        return self._stop.agreed(old) or self._run.is_time("checkpoint_every_steps")

    def _save(self) -> None:
        """Copy everything for a checkpoint, which is written while training goes on."""
        self._reports.publish(self.progress)
        with self._stop.during(Work.LONG):  # it waits for the last one to be written
            self._outputs.log.flush()
            trace = self._outputs.trace
            if trace is not None:
                self.progress.trace_bytes = trace.flush()
            before = None if trace is None else trace.sync
            self._outputs.checkpoints.save(self.run_step, self._parts.state, self.progress, before)
        self._saved_at = time.monotonic()
