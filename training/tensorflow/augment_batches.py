"""Augment whole batches on the device that trains, and the labels of examples that were mixed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.training.augment.kinds.mixing import tensorflow_partners as partners
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.tasks.task import Mixed


class BatchAugment:
    """Applies the augmentations of whole batches that are on, in turn. Nothing is drawn here."""

    def __init__(self, settings: AugmentSettings, *, deterministic: bool = False) -> None:
        """Make their functions; ``deterministic``: the setting of [train.run]."""
        self._functions = {
            one.key: one.tensorflow(deterministic=deterministic) for one in settings.of_batches
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


def soft_labels(labels: Any, own_share: Any, num_classes: int) -> Any:
    """Return mixed labels as distributions over the classes: float32 [b, C].

    Several labels, and numbers, are mixed as they are: float32 [b, C] or [b, T].
    """
    if len(labels.shape) > 1:
        return Mixed(partners(labels), own_share).targets(labels)
    shares = own_share[:, None] * tf.one_hot(labels, num_classes)
    return shares + (1.0 - own_share)[:, None] * tf.one_hot(partners(labels), num_classes)
