"""RandAugment, MixUp and CutMix of whole batches, on the device that trains. Imports TensorFlow.

Nothing is drawn here: what is done to each row stands in the batch's ``BatchDraws``. All shapes are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from training.augment import rand_augment
from training.augment.batch_draws import BatchDraws


class BatchAugment:
    """Does to batches what their draws say.

    RandAugment goes in stages, each a function of its own. On the CPU each is compiled by XLA, which makes
    one loop of many small operations and is several times as fast. In one piece they would be slower again,
    for XLA would then compute a pixel anew for each of its neighbours. GPUs run TensorFlow's kernels.
    """

    def __init__(self, *, mixes: bool, deterministic: bool = False) -> None:
        """``mixes``: MixUp or CutMix is on, so that b is even; ``deterministic``: as run.deterministic."""
        self._mixes = mixes
        on_host = not tf.config.list_physical_devices("GPU")

        def stage(function: Callable[..., Any]) -> Any:
            return tf.function(function, jit_compile=on_host)

        # TensorFlow counts on GPUs in no fixed order, and refuses to where the order should be fixed.
        count = rand_augment.sorted_histogram if deterministic and not on_host else rand_augment.histogram
        self._warp = stage(rand_augment.warp)
        self._tables = stage(lambda pixels, ops, amounts: rand_augment.tables(count(pixels), ops, amounts))
        self._recolor = stage(rand_augment.recolor)
        self._sharpen = stage(rand_augment.sharpen)
        self._mix = stage(_mix)

    def __call__(self, images: Any, draws: BatchDraws) -> Any:
        """Images as the draws say: first RandAugment, then MixUp or CutMix.

        Args:
            images: uint8 [b, S, S, 3]; where they are mixed, rows 2k and 2k + 1 are partners.
            draws: of these rows; tensors.

        Returns:
            uint8 [b, S, S, 3].
        """
        for number in range(draws.ops.shape[1]):
            ops, amounts = draws.ops[:, number], draws.amounts[:, number]
            images = self._warp(images, draws.warps[:, number])
            images = self._recolor(images, self._tables(images, ops, amounts), ops, amounts)
            images = self._sharpen(images, ops, amounts)
        return self._mix(images, draws.blend, draws.boxes) if self._mixes else images


def partners(rows: Any) -> Any:
    """Each row's partner in its place: [b, ...], b even."""
    shape = tf.shape(rows)
    pairs = tf.reshape(rows, tf.concat([[shape[0] // 2, 2], shape[1:]], axis=0))
    return tf.ensure_shape(tf.reshape(tf.reverse(pairs, [1]), shape), rows.shape)


def mixed_loss(loss_of: Callable[[Any], Any], labels: Any, own: Any) -> Any:
    """The loss against mixed labels: own share times the own label's, and the rest times the partner's.

    Args:
        loss_of: labels int32 [b] -> losses float32 [b].
        labels: int32 [b].
        own: float32 [b], shares of the own labels.

    Returns:
        float32 [b].
    """
    return own * loss_of(labels) + (1.0 - own) * loss_of(partners(labels))


def soft_labels(labels: Any, own: Any, num_classes: int) -> Any:
    """Mixed labels as distributions over the classes, for losses that take those: float32 [b, C]."""
    shares = own[:, None] * tf.one_hot(labels, num_classes)
    return shares + (1.0 - own)[:, None] * tf.one_hot(partners(labels), num_classes)


def dominating_labels(labels: Any, own: Any) -> Any:
    """The label with the greater share, by which accuracy is counted: int32 [b]."""
    return tf.where(own >= 0.5, labels, partners(labels))


def _mix(images: Any, blend: Any, boxes: Any) -> Any:
    """MixUp blends all of an image with its partner, CutMix replaces a box."""
    size = tf.range(images.shape[1])
    top, left, height, width = tf.unstack(boxes[:, :, None], axis=1)
    in_rows = (size >= top) & (size < top + height)
    in_columns = (size >= left) & (size < left + width)
    in_box = (in_rows[:, :, None] & in_columns[:, None, :])[..., None]
    own = tf.where(in_box, 0.0, blend[:, None, None, None])
    pixels = tf.cast(images, tf.float32)
    mixed = own * pixels + (1.0 - own) * partners(pixels)
    return tf.saturate_cast(tf.round(mixed), tf.uint8)
