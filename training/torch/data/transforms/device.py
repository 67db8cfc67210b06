"""RandAugment, MixUp and CutMix of whole batches, on the device where their images lie.

The parameters are a function of (seed, epoch, position), the same as for TensorFlow
(``shardmill.training.augment.batch_parameters``). So the result does not depend on the numbers of ranks and
workers. The classes ``MixUp`` and ``CutMix`` of torchvision draw numbers of their own, and are therefore not
used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from shardmill.infra.errors import EnvironmentFault, UsageError
from shardmill.training.augment.batch_parameters import BatchParameters, check_pairs, draw_batch_parameters
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
        if settings is None or not settings.is_batched:
            return AugmentedBatch(images, labels, labels, torch.ones(len(labels), device=images.device))
        _check(settings, images)
        positions = batch.positions.cpu().numpy()
        draws = draw_batch_parameters(settings, self.seed, batch.epoch, positions, images.shape[-1])
        if settings.randaugment.num_ops:
            images = _rand_augmented(images, draws)
        own_shares = torch.from_numpy(draws.own_share).to(images.device)
        if not settings.mixes:
            return AugmentedBatch(images, labels, labels, own_shares)
        return AugmentedBatch(_mixed(images, draws), labels, _partners(labels), own_shares)


def check_ranks(settings: AugmentSettings | None, order: RankOrder) -> None:
    """Check that partners, which are mixed with each other, always come to the same rank.

    Raises:
        ConfigError: examples are mixed, and a rank takes an odd number of rows of each batch.
    """
    if settings is None:
        return
    for rank in range(order.num_ranks):
        rows = rank_slice(order.order.global_batch_size, rank, order.num_ranks, order.shares)
        check_pairs(settings, rows.stop - rows.start)


def _check(settings: AugmentSettings, images: Any) -> None:
    rows, _, height, width = images.shape
    check_pairs(settings, rows)
    if height != width:
        raise UsageError(
            f"images of {height} × {width} pixels cannot be augmented in batches", "give a single image_size"
        )
    if settings.randaugment.num_ops and images.dtype != torch.uint8:
        raise UsageError(
            f"RandAugment needs images of uint8, and got {images.dtype}",
            "convert and normalise images after augment_on_device",
        )


def _rand_augmented(images: Any, draws: BatchParameters) -> Any:
    try:
        from shardmill.training.torch.data.transforms.rand_augment import rand_augment
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise EnvironmentFault(
            "augment.randaugment needs torchvision, which is not installed", "pip install 'shardmill[torch]'"
        ) from error
    return rand_augment(images, draws)


def _mixed(images: Any, draws: BatchParameters) -> Any:
    """Blend whole images with their partners (MixUp), and replace boxes by theirs (CutMix)."""
    place = torch.arange(images.shape[-1], device=images.device)
    boxes = torch.from_numpy(draws.boxes).to(images.device)
    top, left, height, width = boxes[:, :, None].unbind(1)
    in_rows = (place >= top) & (place < top + height)
    in_columns = (place >= left) & (place < left + width)
    in_box = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]
    blend = torch.from_numpy(draws.blend).to(images.device)[:, None, None, None]
    own = blend.masked_fill(in_box, 0.0)  # shares of the row's own image, [b, 1, S, S]
    first, second = images[0::2].float(), images[1::2].float()
    mixed = torch.empty_like(images)
    difference = second.sub_(first)
    for row, share in ((0, 1.0 - own[0::2]), (1, own[1::2])):  # shares of the second image of each pair
        values = torch.addcmul(first, difference, share)
        mixed[row::2] = values if images.is_floating_point() else values.round_()
    return mixed


def _partners(rows: Any) -> Any:
    """Swap each row with its partner: [b, ...], b even."""
    return rows.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
