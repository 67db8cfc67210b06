"""The training loop with TensorFlow, the same for any number of replicas.

It does not use ``Model.fit``, which fails under multi-worker strategies and cannot resume exactly. The loss
of a step is the weighted mean over the real examples of the global batch. The weights of all examples of a
step add up to 1 over all replicas, so each replica computes the sum of its weighted losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from shardmill.training.config import TrainConfig
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.epochs.data_and_outputs import RunOutputs, TrainingData
from shardmill.training.run.epochs.epoch_loop import EpochLoop
from shardmill.training.run.epochs.reports import TrainingReports
from shardmill.training.run.optimization.stages import HeadStage
from shardmill.training.run.stopping.interruption import StopFlag
from shardmill.training.tasks.task import LabelSpec
from shardmill.training.tensorflow.callbacks import AttachedCallbacks
from shardmill.training.tensorflow.data.pipeline import Pipeline, reraise
from shardmill.training.tensorflow.memory.exhaustion import out_of_memory
from shardmill.training.tensorflow.parts import TrainingParts
from shardmill.training.tensorflow.ranks.device_memory import memory_figures
from shardmill.training.tensorflow.ranks.group import group_of
from shardmill.training.tensorflow.ranks.strategy import distribute, gather, num_local_replicas
from shardmill.training.tensorflow.showing.first_batch import log_first_batch
from shardmill.training.tensorflow.showing.profiler import TensorFlowProfiler
from shardmill.training.tensorflow.step import TrainStep


class TrainingLoop(EpochLoop):
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
        ranks = group_of(parts.strategy)
        reports = TrainingReports(config, parts, data.order, outputs.log, memory_figures, ranks)
        super().__init__(config, parts, data, outputs, progress, stop, reports, ranks)
        self._names = data.batches.reader.split.version.manifest.label_names
        self._evaluator = parts.evaluator
        own = data.batches.rows
        self._rows = (own.stop - own.start) // num_local_replicas(parts.strategy)
        figures = self._figure_names(data.validation is not None)
        self._callbacks = AttachedCallbacks(
            config.run.callbacks, parts, config.run.epochs, data.order, figures
        )
        self._callback_stops = False

    def run(self) -> None:
        """Train to the end; see ``EpochLoop.run``."""
        self._callbacks.train_begins()
        super().run()
        self._callbacks.train_ends()

    @property
    def stopped_early(self) -> str | None:
        """The reason why the run ends before its last epoch; None if it does not."""
        if self.progress.best is None:
            return None  # there must be a model to keep
        if self._callback_stops:
            return "a callback of run.callbacks set model.stop_training"
        return super().stopped_early

    def _make_profiler(self) -> TensorFlowProfiler:
        return TensorFlowProfiler(self._outputs.log.folder)

    def _open_batches(self) -> Iterator[Any]:
        own, strategy = self._data.batches, self._parts.strategy
        batches = reraise(
            [own], lambda: iter(distribute(strategy, own, self.run_step, self._run.total_steps))
        )
        while True:
            yield reraise([own], lambda: next(batches))

    def _make_step(self, head: HeadStage | None) -> TrainStep:
        self._run.expect_slow_step()
        self._callbacks.use(self._parts.optimizer if head is None else head.optimizer)
        return TrainStep(self._config, self._parts, self._rows, head)

    def _epoch_begins(self) -> None:
        self._callbacks.epoch_begins(self.progress.epoch, is_resumed=self.progress.step > 0)
        self._callbacks.agree_on_rate(self._ranks)

    def _take_step(self, batch: Any, num_real: int) -> None:
        self._callbacks.step_begins(self.progress.step)
        with out_of_memory():
            self._train_step(batch, num_real)
        if self._parts.pruning is not None:
            self._parts.pruning.after_step(self.run_step + 1)

    def _step_ended(self) -> None:
        self._callbacks.step_ends(self.progress.step - 1, self._reports.epoch_figures(self.progress))

    def _epoch_ended(self, row: dict[str, Any]) -> None:
        self._callbacks.epoch_ends(row["epoch"] - 1, row)
        # A callback may decide by a value that differs between ranks, such as the time.
        self._callbacks.agree_on_rate(self._ranks)
        self._callback_stops = self._stop.any_rank(self._callbacks.stop_asked)

    def _figure_names(self, has_validation: bool) -> set[str]:
        """Return the names of the figures of an epoch, as callbacks get them."""
        names = self._parts.task.tally().evaluation().figures() if has_validation else ()
        return {"loss", self._parts.task.score_name, *(f"val_{name}" for name in names)}

    def _log_first_batch(self, batch: Any) -> None:
        words = partial(self._parts.task.columns().label_words, self._names)
        labels = self._parts.task.labels
        are_masks = isinstance(labels, LabelSpec) and labels.follows == "pixels"
        log_first_batch(
            self._outputs.log,
            self._config,
            self._parts.strategy,
            batch,
            words,
            len(self._names) if are_masks else None,
        )

    def _consumed(self, batch: Any) -> list[str]:
        strategy, batches = self._parts.strategy, self._data.batches
        ordinals = gather(strategy, batch["ordinals"], batches)
        real = gather(strategy, batch["weights"], batches) > 0
        ids: list[str] = batches.reader.table.ids(ordinals[real])
        return ids
