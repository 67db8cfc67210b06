"""The training loop with PyTorch, the same for any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.nn.parallel import DistributedDataParallel

from shardmill.training.config import TrainConfig
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.epochs.data_and_outputs import RunOutputs, TrainingData
from shardmill.training.run.epochs.epoch_loop import EpochLoop
from shardmill.training.run.epochs.reports import TrainingReports
from shardmill.training.run.optimization.stages import HeadStage
from shardmill.training.run.showing.pictures import NUM_SHOWN, log_training_examples
from shardmill.training.run.stopping.interruption import StopFlag
from shardmill.training.torch.data.batch import TorchBatch
from shardmill.training.torch.data.transforms.device import DeviceAugment
from shardmill.training.torch.evaluating.evaluation import Evaluator
from shardmill.training.torch.memory.exhaustion import out_of_memory
from shardmill.training.torch.memory.figures import memory_figures
from shardmill.training.torch.models.layers import set_training
from shardmill.training.torch.outputs.profiler import TorchProfiler
from shardmill.training.torch.parts import TrainingParts
from shardmill.training.torch.reading import Batches
from shardmill.training.torch.step import TrainStep


class TrainingLoop(EpochLoop):
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
        reports = TrainingReports(
            config, parts, data.order, outputs.log, lambda: memory_figures(parts.device), parts.ranks
        )
        super().__init__(config, parts, data, outputs, progress, stop, reports, parts.ranks)
        self._names = data.batches.maker.records.split.version.manifest.label_names
        self._evaluator = evaluator

    def _make_profiler(self) -> TorchProfiler:
        return TorchProfiler(self._outputs.log.folder)

    def _open_batches(self) -> Iterator[TorchBatch]:
        batches: Batches = self._data.batches
        return batches.steps(self.run_step, self._run.total_steps)

    def _make_step(self, head: HeadStage | None) -> TrainStep:
        set_training(self._parts.model)
        return TrainStep(self._config, self._parts, _network(self._parts), head)

    def _take_step(self, batch: TorchBatch, num_real: int) -> None:
        with out_of_memory():
            self._train_step(batch, self.run_step, num_real)

    def _log_first_batch(self, batch: TorchBatch) -> None:
        augment = self._config.augment
        shown = DeviceAugment(augment, self._config.data.seed)(batch)
        images = shown.images[:NUM_SHOWN].permute(0, 2, 3, 1).float().cpu().numpy()
        labels, columns = batch.labels.cpu().numpy(), self._parts.task.columns()
        told = [columns.label_words(self._names, labels, row) for row in range(len(images))]
        log_training_examples(self._outputs.log, images, told, mixed=augment.mixes)

    def _consumed(self, batch: TorchBatch) -> list[str]:
        data, ranks, size = self._data.batches, self._parts.ranks, self._data.order.global_batch_size
        columns = np.stack([batch.ordinals.numpy(), (batch.weights > 0).cpu().numpy()], axis=1)
        ordinals, real = ranks.gather_rows(columns.astype(np.int64), data.rows, size).T
        ids: list[str] = data.maker.records.table.ids(ordinals[real > 0])
        return ids


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
