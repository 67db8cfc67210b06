"""The training loop with PyTorch: steps, validation and checkpoints, the same for any number of ranks.

It follows ``training.loop.loop``: the same order, positions, checkpoints and reports.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.nn.parallel import DistributedDataParallel

from infra import progress as events
from infra.errors import Cancelled
from training.config import TrainConfig
from training.loop.checkpoints.checkpoints import Progress
from training.loop.data_and_outputs import RunOutputs, TrainingData
from training.loop.evaluating.interface import Sink
from training.loop.reports import TrainingReports
from training.loop.run_progress import RunProgress
from training.loop.showing.gpu_figures import gpu_figures
from training.loop.showing.pictures import NUM_SHOWN, HardestExamples, log_training_examples
from training.loop.stopping.interruption import StopFlag
from training.reading import RecordReader
from training.results.metrics.tally import Evaluation
from training.torch_data.batch import TorchBatch
from training.torch_data.transforms.device import DeviceAugment
from training.torch_loop.evaluating.evaluation import Evaluator
from training.torch_loop.memory.exhaustion import out_of_memory
from training.torch_loop.memory.figures import memory_figures
from training.torch_loop.models.layers import set_training
from training.torch_loop.parts import TrainingParts
from training.torch_loop.reading import Batches
from training.torch_loop.step import TrainStep


class TrainingLoop:
    """Trains one model from its latest checkpoint to the end of its epochs."""

    def __init__(
        self,
        config: TrainConfig,
        parts: TrainingParts,
        evaluator: Evaluator,
        data: TrainingData[Batches],
        outputs: RunOutputs,
        progress: Progress,
        stop: StopFlag,
    ) -> None:
        """Make a loop that continues at ``progress``, whose checkpoint the caller has restored."""
        self._config = config
        self._parts = parts
        self._evaluator = evaluator
        self._data = data
        self._order = data.order
        self._names = data.batches.maker.records.split.version.manifest.label_names
        self._outputs = outputs
        self._stop = stop
        self._run = RunProgress(config.run, data.order, progress, has_validation=data.validation is not None)
        self._head_alone = False
        self._train_step: TrainStep | None = None
        self._reports = TrainingReports(
            config, parts, data.order, outputs.log, lambda: memory_figures(parts.device)
        )
        self._shows_pictures = config.run.log_pictures and parts.ranks.is_first
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
        batches = self._data.batches.steps(self.run_step, self._run.total_steps)
        try:
            while self._run.has_epochs_left and self.stopped_early is None:
                self._train_epoch(batches, self._step_of_stage())
                self._finish_epoch()
        except Cancelled:
            self._save()
            raise

    def _step_of_stage(self) -> TrainStep:
        """Return the step of this epoch; where a stage begins, let the modules learn that do in it."""
        head = self._parts.head_of(self.progress.epoch)
        alone = head is not None
        if self._train_step is None or alone != self._head_alone:
            # Two exchanges of the same gradients would be in each other's way.
            self._train_step = None
            gc.collect()
            if head is not None:
                head.alone.begin()
            elif self._parts.head is not None:
                self._parts.head.alone.end()
            set_training(self._parts.model)
            self._train_step = TrainStep(self._config, self._parts, _network(self._parts), head)
            self._head_alone = alone
        return self._train_step

    @property
    def stopped_early(self) -> str | None:
        """Why the run ends before its last epoch; None: it does not."""
        return self._run.out_of_patience

    def _train_epoch(self, batches: Iterator[TorchBatch], train_step: TrainStep) -> None:
        """Take the remaining steps of this epoch."""
        while not self._run.epoch_is_done:
            started = time.perf_counter()
            batch = next(batches)
            waited = time.perf_counter() - started
            num_real = self._run.num_real
            if self.run_step == 0 and self._shows_pictures:
                self._log_first_batch(batch)
            with out_of_memory():
                train_step(batch, self.run_step, num_real)
            self._reports.count(num_real)
            if self._outputs.trace is not None:
                self._outputs.trace.add(self.progress.epoch, self.progress.step, self._consumed(batch))
            self.progress.step += 1
            self._stop.note_step()
            if self._run.is_time("log_every_steps") or self._run.epoch_is_done:
                # Reporting waits for the device. At the end of an epoch it is done here, so that this time
                # counts.
                self._reports.publish(self.progress)
            if self._save_is_due():
                self._save()
            seconds = time.perf_counter() - started
            if self._run.count_time(seconds, waited, num_real) and self._data.balance is not None:
                self._data.balance.count_step(seconds, waited)
            self._stop.check()

    def _log_first_batch(self, batch: TorchBatch) -> None:
        """Show the first examples of the run as the model sees them."""
        augment = self._config.augment
        shown = DeviceAugment(augment, self._config.data.seed)(batch)
        images = shown.images[:NUM_SHOWN].permute(0, 2, 3, 1).float().cpu().numpy()
        labels, columns = batch.labels.cpu().numpy(), self._parts.task.columns()
        told = [columns.label_words(self._names, labels, row) for row in range(len(images))]
        log_training_examples(self._outputs.log, images, told, mixed=augment.mixes)

    def _consumed(self, batch: TorchBatch) -> list[str]:
        """Return the ids of the step's real examples, in the order of the global batch."""
        data, ranks, size = self._data.batches, self._parts.ranks, self._order.global_batch_size
        columns = np.stack([batch.ordinals.numpy(), (batch.weights > 0).cpu().numpy()], axis=1)
        ordinals, real = ranks.gather_rows(columns.astype(np.int64), data.rows, size).T
        return data.maker.records.table.ids(ordinals[real > 0])

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
        self._run.end_epoch(row)
        self._outputs.history.write(self.progress.history)
        self._outputs.trackers.epoch(row)
        if self._data.balance is not None:
            self._data.balance.end_epoch(row["epoch"] - 1)
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
        if devices := gpu_figures(self._outputs.gpus, self._parts.ranks):
            row["devices"] = devices
            log.scalars("devices", run_step, devices)
        return row

    def _validate(self, validation: RecordReader, sink: Sink) -> Evaluation:
        def on_batch(done: int) -> None:
            events.progress("validate", done, len(validation.table))
            self._stop.check()

        events.stage("validate", len(validation.table))
        with self._parts.evaluated():
            return self._evaluator.evaluate(validation, on_batch, sink)

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


def _network(parts: TrainingParts) -> Any:
    """Return the model, or what exchanges its gradients between the ranks."""
    if parts.ranks.num_ranks == 1:
        return parts.model
    on = None if parts.device.type == "cpu" else [parts.device]
    # With synchronised batch normalisation the moving statistics are the same on all ranks anyway.
    return DistributedDataParallel(
        parts.model,
        device_ids=on,
        broadcast_buffers=not parts.spec.synchronized,
        gradient_as_bucket_view=True,
    )
