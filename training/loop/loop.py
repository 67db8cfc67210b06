"""The training loop: steps, metrics, validation and checkpoints, the same for any number of replicas.

It does not use ``Model.fit``, which fails under multi-worker strategies and cannot resume exactly. The loss
of a step is the weighted mean over the real examples of the global batch: the weights of the order add up to
1 over all replicas, so each replica sums its weighted losses.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from infra import progress as events
from infra.errors import Cancelled
from training.config import TrainConfig
from training.loop.callbacks import AttachedCallbacks
from training.loop.checkpoints.checkpoints import Progress
from training.loop.data_and_outputs import RunOutputs, TrainingData
from training.loop.evaluating.interface import Sink
from training.loop.memory.exhaustion import out_of_memory
from training.loop.parts import TrainingParts
from training.loop.reports import TrainingReports
from training.loop.run_progress import RunProgress
from training.loop.showing.first_batch import log_first_batch
from training.loop.showing.gpu_figures import gpu_figures
from training.loop.showing.pictures import HardestExamples
from training.loop.showing.step_profile import StepProfile
from training.loop.step import TrainStep
from training.loop.stopping.interruption import StopFlag
from training.ranks.group import group_of
from training.ranks.hardware.device_memory import memory_figures
from training.ranks.strategy import distribute, gather, num_local_replicas
from training.reading import RecordReader
from training.results.metrics.tally import Evaluation
from training.tf_data.pipeline import Pipeline, reraise


class TrainingLoop:
    """Trains one model from its latest checkpoint to the end of its epochs."""

    def __init__(
        self,
        config: TrainConfig,
        parts: TrainingParts,
        data: TrainingData[Pipeline],
        outputs: RunOutputs,
        progress: Progress,
        stop: StopFlag,
    ) -> None:
        """Make a loop that continues at ``progress``, whose checkpoint the caller has restored."""
        self._config = config
        self._parts = parts
        self._data = data
        self._order = data.order
        self._names = data.batches.reader.split.version.manifest.label_names
        self._outputs = outputs
        self._stop = stop
        self._run = RunProgress(config.run, data.order, progress, has_validation=data.validation is not None)
        own = data.batches.rows
        self._rows = (own.stop - own.start) // num_local_replicas(parts.strategy)
        self._head_alone = False
        self._train_step: TrainStep | None = None
        self._callbacks = AttachedCallbacks(
            config.run.callbacks, parts.model, config.run.epochs, self._order.steps_per_epoch
        )
        self._reports = TrainingReports(config, parts, data.order, outputs.log, memory_figures)
        self._profile = StepProfile(config.run.profile_steps, outputs.log.folder)
        self._shows_pictures = config.run.log_pictures and group_of(parts.strategy).is_first
        self._callback_stops = False
        self._saved_at = time.monotonic()

    @property
    def progress(self) -> Progress:
        """The position of the run, and its counts."""
        return self._run.counts

    @property
    def run_step(self) -> int:
        """The number of steps done, over all epochs."""
        return self._run.run_step

    def run(self) -> None:
        """Train to the end.

        Raises:
            Cancelled: stopped on request, after a checkpoint of the last whole step.
            LossNotFinite: the loss is not finite.
            OutOfMemory: a step does not fit into memory.
            CorruptDataError: a record is damaged.
        """
        self._reports.begin(self.run_step)
        batches = reraise(
            [self._data.batches],
            lambda: iter(
                distribute(self._parts.strategy, self._data.batches, self.run_step, self._run.total_steps)
            ),
        )
        self._callbacks.train_begins()
        try:
            while self._run.has_epochs_left and self.stopped_early is None:
                train_step = self._step_of_stage()
                self._callbacks.epoch_begins(self.progress.epoch)
                self._train_epoch(batches, train_step)
                self._finish_epoch()
        except Cancelled:
            self._save()
            raise
        finally:
            self._profile.close()
        self._callbacks.train_ends()

    def _step_of_stage(self) -> TrainStep:
        """Return the step of this epoch; where a stage begins, let the layers learn that do in it."""
        head = self._parts.head_of(self.progress.epoch)
        alone = head is not None
        if self._train_step is None or alone != self._head_alone:
            if head is not None:
                head.alone.begin()
            elif self._parts.head is not None:
                self._parts.head.alone.end()
            self._train_step = TrainStep(self._config, self._parts, self._rows, head)
            self._head_alone = alone
            self._run.expect_slow_step()
        return self._train_step

    @property
    def stopped_early(self) -> str | None:
        """Why the run ends before its last epoch; None: it does not."""
        if self.progress.best is None:
            return None  # there must be a model to keep
        if self._callback_stops:
            return "a callback of run.callbacks set model.stop_training"
        return self._run.out_of_patience

    def _train_epoch(self, batches: Any, train_step: TrainStep) -> None:
        """Take the remaining steps of this epoch."""
        while not self._run.epoch_is_done:
            started = time.perf_counter()
            batch = reraise([self._data.batches], lambda: next(batches))
            waited = time.perf_counter() - started
            self._callbacks.step_begins(self.progress.step)
            num_real = self._run.num_real
            if self.run_step == 0 and self._shows_pictures:
                words = partial(self._parts.task.columns().label_words, self._names)
                log_first_batch(self._outputs.log, self._config, self._parts.strategy, batch, words)
            self._profile.step_begins(self.run_step + 1)
            with out_of_memory():
                train_step(batch, num_real)
            if self._parts.pruning is not None:
                self._parts.pruning.after_step(self.run_step + 1)
            self._profile.step_ends(self.run_step + 1)
            self._reports.count(num_real)
            if self._outputs.trace is not None:
                self._outputs.trace.add(self.progress.epoch, self.progress.step, self._consumed(batch))
            self.progress.step += 1
            self._stop.note_step()
            if self._run.is_time("log_every_steps") or self._run.epoch_is_done:
                # Reporting waits for the device. At the end of an epoch it is done here, so that this
                # time counts.
                self._reports.publish(self.progress)
            self._callbacks.step_ends(self.progress.step - 1, self._reports.epoch_figures(self.progress))
            if self._save_is_due():
                self._save()
            seconds = time.perf_counter() - started
            if self._run.count_time(seconds, waited, num_real) and self._data.balance is not None:
                self._data.balance.count_step(seconds, waited)
            self._stop.check()

    def _consumed(self, batch: Any) -> list[str]:
        """Return the ids of the step's real examples, in the order of the global batch."""
        ordinals = gather(self._parts.strategy, batch["ordinals"])
        real = gather(self._parts.strategy, batch["weights"]) > 0
        return self._data.batches.reader.table.ids(ordinals[real])

    def _save_is_due(self) -> bool:
        if self._run.epoch_is_done:
            return False  # the end of the epoch saves
        old = time.monotonic() - self._saved_at > self._config.run.checkpoint_every_seconds
        # All ranks save at the same step, whatever their clocks say: they add up the figures of the report.
        return self._stop.agreed(old) or self._run.is_time("checkpoint_every_steps")

    def _finish_epoch(self) -> None:
        """Validate, keep the best model, record the epoch's figures, and begin the next epoch."""
        self._reports.publish(self.progress)
        row = self._figures_of_epoch()
        pruning = self._parts.pruning
        # A model that is not pruned to the end cannot be the best.
        self._run.end_epoch(row, may_be_best=pruning is None or pruning.is_complete(row["step"]))
        self._outputs.history.write(self.progress.history)
        self._outputs.trackers.epoch(row)
        if self._data.balance is not None:
            self._data.balance.end_epoch(row["epoch"] - 1)
        self._callbacks.epoch_ends(row["epoch"] - 1, row)
        # A callback may decide by something that only its rank knows, such as the time.
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
            hardest = HardestExamples(self._parts.task.columns(), self._names)
            figures = self._validate(validation, hardest).figures()
            row["validation"] = figures
            log.scalars("validation", run_step, figures)
            events.metrics(split="validation", epoch=epoch, step=run_step, **figures)
            if self._shows_pictures and self._run.is_best(figures):
                hardest.write(log, run_step, validation)
        if devices := gpu_figures(self._outputs.gpus, group_of(self._parts.strategy)):
            row["devices"] = devices
            log.scalars("devices", run_step, devices)
        return row

    def _validate(self, validation: RecordReader, sink: Sink) -> Evaluation:
        def on_batch(done: int) -> None:
            events.progress("validate", done, len(validation.table))
            self._stop.check()

        events.stage("validate", len(validation.table))
        with self._parts.evaluated():
            return self._parts.evaluator.evaluate(validation, on_batch, sink)

    def _save(self) -> None:
        """Copy everything for a checkpoint, which is written while training goes on."""
        self._reports.publish(self.progress)
        self._outputs.log.flush()
        trace = self._outputs.trace
        if trace is not None:
            self.progress.trace_bytes = trace.flush()
        before = None if trace is None else trace.sync
        self._outputs.checkpoints.save(self.run_step, self._parts.state, self.progress, before)
        self._saved_at = time.monotonic()

    def rates(self) -> dict[str, float]:
        """Return the images per second of training, and the share of that time spent waiting for data."""
        return self._run.rates()
