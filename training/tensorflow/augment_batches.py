"""Augment whole batches on the device that trains, and the labels of examples that were mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from shardmill.training.augment.kinds.mixing import tensorflow_partners as partners
from shardmill.training.augment.settings import AugmentSettings


class BatchAugment:
    """Applies the augmentations of whole batches that are on, in turn. Nothing is drawn here."""

    def __init__(self, settings: AugmentSettings, *, deterministic: bool = False) -> None:
        """Make their functions; ``deterministic``: the setting of [train.run]."""
        self._functions = {
            type(one).__name__: one.tensorflow(deterministic=deterministic) for one in settings.of_batches
        }

    def __call__(self, images: Any, drawn: dict[str, Any]) -> Any:
        """Augment a batch.

        Args:
            images: uint8 [b, S, S, C], C 1 or 3; where they are mixed, rows 2k and 2k + 1 are partners.
            drawn: of these rows, by ``draw_batch_parameters``; tensors.

        Returns:
            uint8 [b, S, S, C].
        """
        for name, function in self._functions.items():
            images = function(images, drawn[name])
        return images


def mixed_loss(loss_of: Callable[[Any], Any], labels: Any, own_share: Any) -> Any:
    """Return the loss against mixed labels: those of the own and the partner's label, by their shares.

    Args:
        loss_of: labels int32 [b] -> losses float32 [b].
        labels: int32 [b].
        own_share: float32 [b], shares of the own labels.

    Returns:
        float32 [b].
    """
    return own_share * loss_of(labels) + (1.0 - own_share) * loss_of(partners(labels))


def mixed_targets(targets: Any, own_share: Any | None) -> Any:
    """Return the targets of mixed examples: float32 [b, T].

    Args:
        targets: float32 [b, T]; the rows 2k and 2k + 1 are partners.
        own_share: float32 [b], the share of each row's own target; None: nothing was mixed.
    """
    if own_share is None:
        return targets
    return own_share[:, None] * targets + (1.0 - own_share)[:, None] * partners(targets)


def soft_labels(labels: Any, own_share: Any, num_classes: int) -> Any:
    """Return mixed labels as distributions over the classes: float32 [b, C].

    Several labels, and numbers, are mixed as they are: float32 [b, C] or [b, T].
    """
    if len(labels.shape) > 1:
        return mixed_targets(labels, own_share)
    shares = own_share[:, None] * tf.one_hot(labels, num_classes)
    return shares + (1.0 - own_share)[:, None] * tf.one_hot(partners(labels), num_classes)


def dominating_labels(labels: Any, own_share: Any) -> Any:
    """Return the label with the greater share, by which accuracy is counted: int32 [b]."""
    return tf.where(own_share >= 0.5, labels, partners(labels))
