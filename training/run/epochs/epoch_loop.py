"""The epochs of a training: steps, reports, validation and checkpoints, the same with any framework.

The loss of a step is the weighted mean over the real examples of the global batch. The weights of all
examples of a step add up to 1 over all replicas, so each replica computes the sum of its weighted losses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.errors import Cancelled, Diverged
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.evaluation import Evaluation
from shardmill.training.order import Order
from shardmill.training.ranks.heartbeat import Work
from shardmill.training.reading import RecordReader
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.checkpoints.checkpoints import AFTER_DIVERGENCE, Checkpoints, Progress
from shardmill.training.run.checkpoints.shared import SharedCheckpoints
from shardmill.training.run.epochs.outputs import RunOutputs, open_outputs
from shardmill.training.run.epochs.pictures import NUM_SHOWN, HardestExamples, log_training_examples
from shardmill.training.run.epochs.reports import StepProfile, TrainingReports
from shardmill.training.run.epochs.run_progress import RunProgress, resumed
from shardmill.training.run.framework import Framework, Input, Model, Sink
from shardmill.training.run.sharing.balance_record import BalanceRecord
from shardmill.training.run.stopping import StopFlag


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The examples of a run.

    Attributes:
        input: the batches of the train split, as the framework takes them.
        train: the records of the train split.
        order: their order.
        validation: the records of the validation split; None: there are none.
        balance: counts what each rank does; None: there is one rank.
    """

    input: Input
    train: RecordReader
    order: Order
    validation: RecordReader | None
    balance: BalanceRecord | None = None


@contextmanager
def resumed_loop(
    config: TrainConfig,
    framework: Framework,
    model: Model,
    data: TrainingData,
    run_dir: Path,
    stop: StopFlag,
    trackers: Trackers,
) -> Iterator[EpochLoop]:
    """Yield the loop of a run at its latest checkpoint. When the block has run it, restore the best model.

    Args:
        config: the configuration of the run.
        framework: trains it.
        model: its model, as it was built.
        data: its examples.
        run_dir: its folder; of ranks other than the first one that is thrown away.
        stop: asks the loop to stop.
        trackers: other systems that are told about the run.

    Raises:
        Diverged: no epoch has a model that can be the best.
    """
    settings, ranks = config.run, framework.ranks
    folder = Storage.at(run_dir / "checkpoints")
    own = Checkpoints(folder, settings.keep_checkpoints) if ranks.is_first else None
    checkpoints = SharedCheckpoints(own, ranks)
    with model.assigning():
        found = checkpoints.restore_latest(model.state)
    progress = resumed(found, settings, data.order)
    if not ranks.is_first:
        progress = replace(progress, trace_bytes=0)  # these ranks begin a new file
    trace = settings.trace_records
    with open_outputs(run_dir, checkpoints, progress, trackers, trace_records=trace) as outputs:
        loop = EpochLoop(config, framework, model, data, outputs, progress, stop)
        stop.steps_done = lambda: loop.run_step
        try:
            yield loop
        finally:
            stop.steps_done = None  # else a loop that failed stays in memory while the next one is built
    best = loop.progress.best
    if best is None:  # the last epoch is always compared
        raise Diverged(
            f"no epoch of the run has a finite loss and {settings.best_metric} on the validation split",
            AFTER_DIVERGENCE,
        )
    with model.assigning():
        checkpoints.restore_best(int(best["epoch"]), model.model_state)


class EpochLoop:
    """Trains one model from its latest checkpoint to the end of its epochs."""

    def __init__(
        self,
        config: TrainConfig,
        framework: Framework,
        model: Model,
        data: TrainingData,
        outputs: RunOutputs,
        progress: Progress,
        stop: StopFlag,
    ) -> None:
        """Make a loop that continues at ``progress``, whose checkpoint the caller has restored."""
        self._config = config
        self._model = model
        self._data = data
        self._outputs = outputs
        self._stop = stop
        self._ranks = framework.ranks
        self._reports = TrainingReports(
            config, model, data.order, outputs.log, framework.peak_device_bytes, self._ranks
        )
        self._run = RunProgress(config.run, data.order, progress, has_validation=data.validation is not None)
        self._names = data.train.split.version.manifest.label_names
        self._shows_pictures = config.run.log_pictures and self._ranks.is_first
        self._profile = StepProfile(config.run.profile_steps, framework, outputs.log.folder)
        self._callbacks = model.callbacks(config, data.order, has_validation=data.validation is not None)
        self._callback_stops = False
        self._head_alone: bool | None = None
        self._saved_at = time.monotonic()

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
        if self._callback_stops and self.progress.best is not None:  # there must be a model to keep
            return "a callback of run.callbacks set model.stop_training"
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
        self._callbacks.train_begins()
        self._reports.begin(self.run_step)
        batches = self._data.input.steps(self.run_step, self._run.total_steps)
        try:
            while self._run.has_epochs_left and self.stopped_early is None:
                self._begin_stage()
                self._callbacks.epoch_begins(self.progress.epoch, is_resumed=self.progress.step > 0)
                while not self._run.epoch_is_done:
                    self._train(batches)
                self._finish_epoch()
        except Cancelled:
            self._save()
            raise
        finally:
            self._profile.close()
        self._callbacks.train_ends()

    def _begin_stage(self) -> None:
        """At the first step of a stage, let the layers of the stage learn."""
        alone = self._model.stages.is_head(self.progress.epoch)
        if alone == self._head_alone:
            return
        self._stop.begin_stage()  # the step compiles again
        self._run.expect_slow_step()
        self._model.forget_step()
        rows = self._data.input.rows
        self._model.begin_stage(self._config, rows.stop - rows.start, head_alone=alone)
        self._head_alone = alone

    def _train(self, batches: Iterator[Any]) -> None:
        """Take one step, and report and save where it is time."""
        started = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - started
        num_real = self._run.num_real
        if self.run_step == 0 and self._shows_pictures:
            self._show(batch)
        self._profile.step_begins(self.run_step + 1)
        self._callbacks.step_begins(self.progress.step)
        self._model.step(batch, self.run_step, num_real)
        self._profile.step_ends(self.run_step + 1)
        self._reports.count(num_real)
        if self._outputs.trace is not None:
            seen = self._model.consumed(batch, self._data.input.rows, self._data.order.global_batch_size)
            table = self._data.train.table
            self._outputs.trace.add(self.progress.epoch, self.progress.step, table, seen)
        self.progress.step += 1
        self._stop.note_step()
        if self._run.is_time("log_every_steps") or self._run.epoch_is_done:
            # Reporting waits for the device. At the end of an epoch it is done here, so that its time counts.
            self._reports.publish(self.progress)
        self._callbacks.step_ends(self.progress.step - 1, self._reports.epoch_figures(self.progress))
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
            self._outputs.checkpoints.check(self.run_step, self._model.state)
        row = self._figures_of_epoch()
        pruning = self._model.pruning
        # A model that is not pruned to the end cannot be the best.
        self._run.end_epoch(row, may_be_best=pruning is None or pruning.schedule.is_complete(row["step"]))
        with self._stop.during(Work.LONG):
            self._outputs.history.write(self.progress.history)
            self._outputs.trackers.epoch(row)
            if self._data.balance is not None:
                self._data.balance.end_epoch(row["epoch"] - 1)
            self._callbacks.epoch_ends(row["epoch"] - 1, row)
            # A callback may decide by a value that differs between ranks, such as the time.
            self._callback_stops = self._stop.any_rank(self._callbacks.stop_asked)
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
                self._model.task.kind, self._names, is_whole=self._config.data.fit == "stretch"
            )
            figures = self._validate(validation, hardest.add).figures()
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
        if devices := self._gpu_figures():
            row["devices"] = devices
            log.scalars("devices", run_step, devices)
        return row

    def _validate(self, validation: RecordReader, sink: Sink) -> Evaluation:
        def on_batch(done: int) -> None:
            events.progress("validate", done, len(validation.table))
            self._stop.check()

        events.stage("validate", len(validation.table))
        with self._model.evaluated():
            found: Evaluation = self._model.evaluator.evaluate(validation, on_batch, sink)
        return found

    def _gpu_figures(self) -> dict[str, float]:
        """Return the figures of all GPUs since the last call; those of several ranks begin with the rank."""
        ranks = self._ranks
        found = self._outputs.gpus.take(f"rank{ranks.rank}_" if ranks.num_ranks > 1 else "")
        return {name: value for figures in ranks.all_values(found) for name, value in figures.items()}

    def _show(self, batch: Any) -> None:
        """Show the first examples of the run as the model sees them."""
        shown, kind = self._model.shown(batch, NUM_SHOWN), self._model.task.kind
        told = [kind.label_words(self._names, shown.labels, row) for row in range(len(shown.images))]
        masks = shown.labels if self._model.spec.output == "pixels" else None
        mixes = self._config.augment.mixes
        log_training_examples(
            self._outputs.log, shown.images, told, mixed=mixes, masks=masks, num_classes=len(self._names)
        )

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
            self._outputs.checkpoints.save(self.run_step, self._model.state, self.progress, before)
        self._saved_at = time.monotonic()
