"""RandAugment, MixUp and CutMix of whole batches, on the device that trains. Imports TensorFlow.

Nothing is drawn here: the batch's ``BatchParameters`` say how to augment each row. All shapes are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from shardmill.training.augment.batch_parameters import BatchParameters
from shardmill.training.tensorflow.augment import rand_augment


class BatchAugment:
    """Augments batches by their parameters.

    RandAugment goes in stages, each a function of its own. On the CPU each is compiled by XLA, which makes
    one loop of many small operations and is several times as fast. In one piece they would be slower again,
    for XLA would then compute a pixel anew for each of its neighbours. GPUs run TensorFlow's kernels.
    """

    def __init__(self, *, mixes: bool, deterministic: bool = False) -> None:
        """Compile the stages.

        ``mixes``: MixUp or CutMix is on; ``deterministic``: the setting of [train.run].
        """
        self._mixes = mixes
        on_host = not tf.config.list_physical_devices("GPU")

        def stage(function: Callable[..., Any]) -> Any:
            return tf.function(function, jit_compile=on_host, autograph=False)

        # On GPUs TensorFlow's histogram is not deterministic, and fails if determinism is required.
        count = rand_augment.sorted_histogram if deterministic and not on_host else rand_augment.histogram
        self._warp = stage(rand_augment.warp)
        self._tables = stage(lambda pixels, ops, amounts: rand_augment.tables(count(pixels), ops, amounts))
        self._recolor = stage(rand_augment.recolor)
        self._sharpen = stage(rand_augment.sharpen)
        self._mix = stage(_mix)

    def __call__(self, images: Any, draws: BatchParameters) -> Any:
        """Apply first RandAugment, then MixUp or CutMix.

        Args:
            images: uint8 [b, S, S, C], C 1 or 3; where they are mixed, rows 2k and 2k + 1 are partners.
            draws: drawn parameters of these rows; tensors.

        Returns:
            uint8 [b, S, S, C].
        """
        if images.shape[-1] == 1 and draws.ops.shape[1]:
            # The operations keep three equal channels equal, but for a rounding of grey to colour.
            images = self._randaugmented(tf.repeat(images, 3, axis=-1), draws)[..., 1:2]
        else:
            images = self._randaugmented(images, draws)
        return self._mix(images, draws.blend, draws.boxes) if self._mixes else images

    def _randaugmented(self, images: Any, draws: BatchParameters) -> Any:
        for number in range(draws.ops.shape[1]):
            ops, amounts = draws.ops[:, number], draws.amounts[:, number]
            images = self._warp(images, draws.warps[:, number])
            images = self._recolor(images, self._tables(images, ops, amounts), ops, amounts)
            images = self._sharpen(images, ops, amounts)
        return images


def partners(rows: Any) -> Any:
    """Swap each row with its partner: [b, ...], b even."""
    shape = tf.shape(rows)
    pairs = tf.reshape(rows, tf.concat([[shape[0] // 2, 2], shape[1:]], axis=0))
    return tf.ensure_shape(tf.reshape(tf.reverse(pairs, [1]), shape), rows.shape)


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


def _mix(images: Any, blend: Any, boxes: Any) -> Any:
    """Blend whole images with their partners (MixUp) and replace boxes by theirs (CutMix)."""
    size = tf.range(images.shape[1])
    top, left, height, width = tf.unstack(boxes[:, :, None], axis=1)
    in_rows = (size >= top) & (size < top + height)
    in_columns = (size >= left) & (size < left + width)
    in_box = (in_rows[:, :, None] & in_columns[:, None, :])[..., None]
    own_share = tf.where(in_box, 0.0, blend[:, None, None, None])
    pixels = tf.cast(images, tf.float32)
    mixed = own_share * pixels + (1.0 - own_share) * partners(pixels)
    return tf.saturate_cast(tf.round(mixed), tf.uint8)
