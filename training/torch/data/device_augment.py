"""Augmentations of whole batches (RandAugment, MixUp, CutMix), on the device where their images lie.

The parameters are a function of (seed, epoch, position), the same as for TensorFlow. So the result does not
depend on the numbers of ranks and workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from shardmill.infra.errors import UsageError
from shardmill.training.augment.kind import Arrays
from shardmill.training.augment.parameters import draw_batch_parameters, own_share
from shardmill.training.config import AugmentSettings
from shardmill.training.order import rank_slice
from shardmill.training.torch.data.batch import TorchBatch
from shardmill.training.torch.data.ranks import RankOrder


class AugmentedBatch(NamedTuple):
    """Images after augmentation, and the labels that they show. All tensors are on the device of the images.

    Attributes:
        images: uint8 [b, C, S, S].
        labels: int64 [b], of the images themselves; or float32 [b, C] or [b, T], several labels or numbers.
        partner_labels: labels of the images that were mixed in; without mixing they are ``labels``.
        own_shares: float32 [b], shares of ``labels``; the partner's labels have the rest.
    """

    images: Any
    labels: Any
    partner_labels: Any
    own_shares: Any

    @property
    def is_mixed(self) -> bool:
        """Whether images were mixed."""
        return self.partner_labels is not self.labels

    def mixed_targets(self) -> Any:
        """Return several labels or numbers, mixed in their shares: float32 [b, C] or [b, T]."""
        if not self.is_mixed:
            return self.labels
        own = self.own_shares[:, None]
        return own * self.labels + (1.0 - own) * self.partner_labels

    def losses(self, loss_of: Callable[[Any], Any]) -> Any:
        """Return the losses against the mixed labels: float32 [b].

        Args:
            loss_of: labels int64 [b] -> losses float32 [b], for example
                ``lambda labels: cross_entropy(logits, labels, reduction="none")``.
        """
        own = self.own_shares * loss_of(self.labels)
        return own + (1.0 - self.own_shares) * loss_of(self.partner_labels)

    def soft_labels(self, num_classes: int) -> Any:
        """Return the mixed labels as distributions over the classes: float32 [b, num_classes].

        Several labels, and numbers, are mixed as they are.
        """
        if self.labels.ndim > 1:
            return self.mixed_targets()
        own = torch.nn.functional.one_hot(self.labels, num_classes) * self.own_shares[:, None]
        partner = torch.nn.functional.one_hot(self.partner_labels, num_classes)
        return own + (1.0 - self.own_shares)[:, None] * partner

    def dominating_labels(self) -> Any:
        """Return the label with the greater share, by which accuracy is counted: int64 [b]."""
        return torch.where(self.own_shares >= 0.5, self.labels, self.partner_labels)


@dataclass(frozen=True, slots=True)
class DeviceAugment:
    """Augments whole batches by RandAugment, then by MixUp or CutMix, as far as they are on.

    Attributes:
        settings: how examples are augmented; None: not at all.
        seed: the seed of the run.
    """

    settings: AugmentSettings | None
    seed: int

    def __call__(self, batch: TorchBatch) -> AugmentedBatch:
        """Augment a batch on the device of its images.

        Args:
            batch: images uint8 [b, C, S, S] (without RandAugment also floating), as a ``TorchLoader`` gives
                it: where examples are mixed, rows 2k and 2k + 1 are partners. ``positions`` best stay on the
                host.

        Raises:
            ConfigError: examples are mixed in pairs, and the rows are odd in number.
            UsageError: the images are not square, or RandAugment gets other values than uint8.
            EnvironmentFault: RandAugment is on, and torchvision is not installed.
        """
        images, labels = batch.images, batch.labels.to(batch.images.device)
        settings = self.settings
        drawn: dict[str, Arrays] = {}
        if settings is not None and (of_batches := settings.of_batches):
            _check(settings, images)
            positions = batch.positions.cpu().numpy()
            drawn = draw_batch_parameters(settings, self.seed, batch.epoch, positions, images.shape[-1])
            for one in of_batches:
                images = one.torch(images, drawn[one.key])
        shares = own_share(drawn)
        if shares is None:
            return AugmentedBatch(images, labels, labels, torch.ones(len(labels), device=images.device))
        return AugmentedBatch(images, labels, _partners(labels), torch.from_numpy(shares).to(images.device))


def check_ranks(settings: AugmentSettings | None, order: RankOrder) -> None:
    """Check that partners, which are mixed with each other, always come to the same rank.

    Raises:
        ConfigError: examples are mixed, and a rank takes an odd number of rows of each batch.
    """
    if settings is None:
        return
    for rank in range(order.num_ranks):
        rows = rank_slice(order.order.global_batch_size, rank, order.num_ranks, order.shares)
        settings.check_pairs(rows.stop - rows.start)


def _check(settings: AugmentSettings, images: Any) -> None:
    rows, _, height, width = images.shape
    settings.check_pairs(rows)
    if height != width:
        raise UsageError(
            f"images of {height} × {width} pixels cannot be augmented in batches", "give a single image_size"
        )


def _partners(rows: Any) -> Any:
    """Swap each row with its partner: [b, ...], b even."""
    return rows.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
