"""One step of training on this rank's rows: augmentation of the batch, loss, gradients, update.

The weights of the rows add up to 1 over all ranks, so each rank sums its weighted losses, and the sum over
the ranks is the mean over the global batch. ``DistributedDataParallel`` averages gradients over the ranks;
the factor ``num_ranks`` undoes it. With accumulation the rows are taken in parts, whose gradients add up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from shardmill.infra.splitmix import splitmix64
from shardmill.training.config import TrainConfig
from shardmill.training.run.optimization.stages import HeadStage
from shardmill.training.torch.data.batch import TorchBatch
from shardmill.training.torch.data.transforms.device import AugmentedBatch, DeviceAugment
from shardmill.training.torch.models.batch_normalization import padding_alone
from shardmill.training.torch.models.layers import set_training
from shardmill.training.torch.optimization.optimizers import set_rate
from shardmill.training.torch.parts import TrainingParts


class TrainStep:
    """Trains the model of a run on one global batch a call, and adds to its totals."""

    def __init__(
        self, config: TrainConfig, parts: TrainingParts, network: Any, head: HeadStage | None = None
    ) -> None:
        """Prepare the step, with the weights that learn now.

        Args:
            config: the configuration of the run.
            parts: the model of the run with all that trains it.
            network: the model, or ``DistributedDataParallel`` around it.
            head: the stage, where only the classifier learns.
        """
        self._config = config
        self._parts = parts
        self._network = network
        self._optimizer = parts.optimizer if head is None else head.optimizer
        self._augment = DeviceAugment(config.augment, config.data.seed)
        self._trainable = [own for own in parts.model.parameters() if own.requires_grad]

    def __call__(self, batch: TorchBatch, run_step: int, num_real: int) -> None:
        """Take one step.

        Args:
            batch: the rows of this rank.
            run_step: the number of the step, over all epochs.
            num_real: real examples of the global batch.
        """
        parts = self._parts
        # Dropout is a function of seed, step and rank: a resumed run needs no saved random state.
        torch.manual_seed(_seed(self._config.data.seed, run_step, parts.ranks.rank))
        if not parts.model.training:
            set_training(parts.model)
        set_rate(self._optimizer, parts.stages.rate_at(run_step))
        count = self._config.run.accumulate_steps
        columns = (column.tensor_split(count) for column in (*self._augment(batch), batch.weights))
        pieces = list(zip(*columns, strict=True))
        if num_real < self._config.data.batch_size:
            pieces = [_without_padding(piece) for piece in pieces]
        for number, (*examples, weights) in enumerate(pieces, 1):
            is_last = number == len(pieces)
            exchange = contextlib.nullcontext() if is_last else self._without_exchange()
            with exchange, padding_alone(len(weights) == 1 and not weights.any()):
                loss, score = self._loss(AugmentedBatch(*examples), weights)
                parts.scaler.scale(loss * parts.ranks.num_ranks).backward()
            parts.totals.add(loss.detach() * num_real, score)
        self._update()

    def _without_exchange(self) -> Any:
        """Let gradients add up on this rank; the last part of a step exchanges them."""
        return self._network.no_sync() if self._parts.ranks.num_ranks > 1 else contextlib.nullcontext()

    def _loss(self, batch: AugmentedBatch, weights: Any) -> tuple[Any, Any]:
        """Return the part of these rows in the loss and in the sum of scores."""
        parts, task = self._parts, self._parts.task
        with parts.autocast():
            outputs = self._network(pixels(batch.images)).float()
        if not self._config.augment.mixes:
            batch = batch._replace(partner_labels=batch.labels)
        losses, scores = task.training_losses(outputs, batch), task.scores(outputs.detach(), batch)
        return (losses * weights).sum(), torch.where(weights > 0, scores.float(), 0.0).sum()

    def _update(self) -> None:
        parts, clip = self._parts, self._config.optimizer.clip_norm
        parts.scaler.unscale_(self._optimizer)
        norm = torch.nn.utils.get_total_norm([own.grad for own in self._trainable if own.grad is not None])
        if clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self._trainable, clip, norm)
        parts.totals.add_norm(norm)
        parts.scaler.step(self._optimizer)
        parts.scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        if parts.averages is not None:
            parts.averages.update()


def _without_padding(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Leave out the rows of weight 0, the last column, so that they have no part in batch normalisation.

    One row always stays, because layers refuse an empty batch.
    """
    rows = columns[-1].nonzero().flatten()
    if not len(rows):
        rows = rows.new_zeros(1)
    return tuple(column[rows] for column in columns)


def pixels(images: Any) -> Any:
    """Return images uint8 [b, C, S, S] as a model takes them: float32, 0 to 255."""
    return images.float()


def _seed(seed: int, run_step: int, rank: int) -> int:
    mixed = splitmix64(np.array([seed], np.uint64)) ^ np.uint64(run_step)
    return int((splitmix64(mixed) ^ np.uint64(rank))[0]) % 2**63
