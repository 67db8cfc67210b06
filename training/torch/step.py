"""One step of training on this rank's rows: augmentation of the batch, loss, gradients, update.

The weights of the rows add up to 1 over all ranks, so each rank sums its weighted losses, and the sum over
the ranks is the mean over the global batch. ``DistributedDataParallel`` averages gradients over the ranks;
the factor ``num_ranks`` undoes it. With accumulation the rows are taken in parts, whose gradients add up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from shardmill.infra.splitmix import splitmix64
from shardmill.training.config import TrainConfig
from shardmill.training.run.memory.fallback import does_not_fit
from shardmill.training.tasks.task import Mixed
from shardmill.training.torch.data.batch import TorchBatch
from shardmill.training.torch.data.device_augment import AugmentedBatch, DeviceAugment
from shardmill.training.torch.models.layers import set_training
from shardmill.training.torch.models.normalization import padding_alone
from shardmill.training.torch.optimization import set_rate
from shardmill.training.torch.parts import TrainingParts

# What the allocators of CPUs say; PyTorch raises a plain RuntimeError there.
_OF_CPUS = ("defaultcpuallocator", "not enough memory", "can't allocate memory")


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Raise OutOfMemory if the block finds no memory, of the device or of the host."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise does_not_fit(str(error)) from error
    except RuntimeError as error:
        if not any(words in str(error).lower() for words in _OF_CPUS):
            raise
        raise does_not_fit(str(error)) from error


class TrainStep:
    """Trains the model of a run on one global batch a call, and adds to its totals.

    Attributes:
        optimizer: the optimizer of this stage.
    """

    def __init__(self, config: TrainConfig, parts: TrainingParts, *, head_alone: bool = False) -> None:
        """Prepare the step, with the weights that learn now.

        Args:
            config: the configuration of the run.
            parts: the model of the run with all that trains it.
            head_alone: only the classifier learns.
        """
        self._config = config
        self._parts = parts
        set_training(parts.model)
        self._network = _network(parts)
        self.optimizer = parts.head.optimizer if head_alone and parts.head is not None else parts.optimizer
        self._augment = DeviceAugment(config.augment, config.data.seed)
        self._trainable = [own for own in parts.model.parameters() if own.requires_grad]

    def __call__(self, batch: TorchBatch, run_step: int, num_real: int) -> None:
        """Take one step.

        Args:
            batch: the rows of this rank.
            run_step: the number of the step, over all epochs.
            num_real: real examples of the global batch.

        Raises:
            OutOfMemory: it does not fit into memory.
        """
        with out_of_memory():
            self._take(batch, run_step, num_real)

    def _take(self, batch: TorchBatch, run_step: int, num_real: int) -> None:
        parts = self._parts
        # Dropout is a function of seed, step and rank: a resumed run needs no saved random state.
        torch.manual_seed(_seed(self._config.data.seed, run_step, parts.ranks.rank))
        if not parts.model.training:
            set_training(parts.model)
        set_rate(self.optimizer, parts.stages.rate_at(run_step))
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
        if parts.pruning is not None:
            parts.pruning.after_step(run_step + 1)

    def _without_exchange(self) -> Any:
        """Let gradients add up on this rank; the last part of a step exchanges them."""
        return self._network.no_sync() if self._parts.ranks.num_ranks > 1 else contextlib.nullcontext()

    def _loss(self, batch: AugmentedBatch, weights: Any) -> tuple[Any, Any]:
        """Return the part of these rows in the loss and in the sum of scores."""
        parts, task = self._parts, self._parts.task
        with parts.autocast():
            outputs = self._network(pixels(batch.images)).float()
        mixed = Mixed(batch.partner_labels, batch.own_shares) if self._config.augment.mixes else None
        losses = task.training_losses(outputs, batch.labels, mixed)
        scores = task.scores(outputs.detach(), batch.labels, mixed)
        return (losses * weights).sum(), torch.where(weights > 0, scores, 0.0).sum()

    def _update(self) -> None:
        parts, clip = self._parts, self._config.optimizer.clip_norm
        parts.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.get_total_norm([own.grad for own in self._trainable if own.grad is not None])
        if clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self._trainable, clip, norm)
        parts.totals.add_norm(norm)
        parts.scaler.step(self.optimizer)
        parts.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
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
