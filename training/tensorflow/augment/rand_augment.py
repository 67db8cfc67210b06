"""RandAugment's operations over whole batches, one a row (Cubuk et al. 2020). Imports TensorFlow.

The fourteen operations are of four kinds, each done to the whole batch with the parameters of each row, which
leave the rows of other operations as they are: a warp; a lookup table (a function of the value alone); a
blend with grey; a blend with a smoothed image. So shapes are fixed, and there is no branch.

The operations are those of Pillow, except the warps: these interpolate linearly, keep the centre fixed, and
fill uncovered pixels with grey.

Places are computed in float32, which holds them exactly: TensorFlow computes with int32 on the host only.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.training.augment.batch_parameters import OPS
from shardmill.training.augment.color import LUMA

_NUMBER = {name: number for number, name in enumerate(OPS)}
_NOTHING = 128.0  # the grey of pixels that a warp leaves uncovered


def warp(images: Any, warps: Any) -> Any:
    """Turn, shear or shift images.

    Args:
        images: uint8 [b, S, S, 3].
        warps: float32 [b, 8], as in ``BatchParameters``.

    Returns:
        uint8 [b, S, S, 3].
    """
    size = images.shape[1]
    places = tf.range(float(size))
    a, b, c, d, e, f, _, _ = tf.unstack(warps[:, :, None, None], axis=1)
    x = a * places + b * places[:, None] + c  # [b, S, S]
    y = d * places + e * places[:, None] + f
    left, top = tf.floor(x), tf.floor(y)
    right_share, lower_share = (x - left)[..., None], (y - top)[..., None]
    rows = tf.reshape(tf.cast(images, tf.float32), [-1, size * size, 3])

    def at(row: Any, column: Any) -> Any:
        inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
        place = tf.clip_by_value(row, 0.0, size - 1.0) * size + tf.clip_by_value(column, 0.0, size - 1.0)
        return tf.where(inside[..., None], tf.gather(rows, tf.cast(place, tf.int32), batch_dims=1), _NOTHING)

    upper = at(top, left) * (1.0 - right_share) + at(top, left + 1.0) * right_share
    lower = at(top + 1.0, left) * (1.0 - right_share) + at(top + 1.0, left + 1.0) * right_share
    return _as_bytes(upper * (1.0 - lower_share) + lower * lower_share)


def histogram(images: Any) -> Any:
    """Count each value in each image and channel: float32 [b, 3, 256]."""
    flat = tf.cast(_by_channel(images), tf.int32)
    unweighted = tf.constant([], tf.float32)
    counts = tf.raw_ops.DenseBincount(input=flat, size=256, weights=unweighted)
    return tf.reshape(counts, [-1, 3, 256])


def sorted_histogram(images: Any) -> Any:
    """Do what ``histogram`` does by sorting, which is slower but deterministic on GPUs."""
    flat = tf.sort(tf.cast(_by_channel(images), tf.float32), axis=-1)
    values = tf.broadcast_to(tf.range(256.0), [tf.shape(flat)[0], 256])
    up_to = tf.cast(tf.searchsorted(flat, values, side="right"), tf.float32)
    counts = up_to - tf.pad(up_to[:, :-1], [[0, 0], [1, 0]])
    return tf.reshape(counts, [-1, 3, 256])


def tables(counts: Any, ops: Any, amounts: Any) -> Any:
    """Return the lookup tables of the operations: the new value of each old one.

    Args:
        counts: float32 [b, 3, 256], the histogram.
        ops: int32 [b], numbers of ``OPS``.
        amounts: float32 [b], of each operation.

    Returns:
        float32 [b, 3, 256], whole numbers of 0 to 255.
    """
    value = tf.range(256.0)
    amount = amounts[:, None, None]
    by_name = {
        "autocontrast": _autocontrast(counts),
        "equalize": _equalized(counts),
        "solarize": tf.where(value < amount, value, 255.0 - value),
        "posterize": tf.math.floordiv(value, amount) * amount,
        "contrast": _contrasted(counts, amount),
        "brightness": amount * value,
    }
    chosen = tf.broadcast_to(value, tf.shape(counts))
    for name, table in by_name.items():
        chosen = tf.where((ops == _NUMBER[name])[:, None, None], table, chosen)
    return tf.clip_by_value(tf.round(chosen), 0.0, 255.0)


def recolor(images: Any, lookup: Any, ops: Any, amounts: Any) -> Any:
    """Send the images through their tables, and blend them with grey: uint8 [b, S, S, 3]."""
    rows = tf.range(tf.cast(tf.shape(images)[0], tf.float32))[:, None, None, None]
    places = 256.0 * (3.0 * rows + tf.range(3.0)) + tf.cast(images, tf.float32)
    pixels = tf.gather(tf.reshape(lookup, [-1]), tf.cast(places, tf.int32))
    grey = _luma(pixels)[..., None]
    return _as_bytes(grey + _amount_of("color", ops, amounts) * (pixels - grey))


def sharpen(images: Any, ops: Any, amounts: Any) -> Any:
    """Sharpen or smooth the images: uint8 [b, S, S, 3].

    Smoothed by Pillow's SMOOTH, a weighted mean of 3 × 3 pixels; the outermost stay as they are.
    """
    pixels = tf.cast(images, tf.float32)
    inner = pixels[:, 1:-1, 1:-1]
    columns = pixels[:, :-2] + pixels[:, 1:-1] + pixels[:, 2:]
    sums = columns[:, :, :-2] + columns[:, :, 1:-1] + columns[:, :, 2:]
    smooth = tf.round((sums + 4.0 * inner) / 13.0)
    sharp = _as_bytes(smooth + _amount_of("sharpness", ops, amounts) * (inner - smooth))
    middle = tf.concat([images[:, 1:-1, :1], sharp, images[:, 1:-1, -1:]], axis=2)
    return tf.concat([images[:, :1], middle, images[:, -1:]], axis=1)


def _amount_of(name: str, ops: Any, amounts: Any) -> Any:
    """Return the factor for rows of this operation, 1 for the others: float32 [b, 1, 1, 1]."""
    return tf.where(ops == _NUMBER[name], amounts, 1.0)[:, None, None, None]


def _autocontrast(counts: Any) -> Any:
    """Stretch each channel from its darkest to its brightest value."""
    value = tf.range(256.0)
    low = tf.reduce_min(tf.where(counts > 0, value, 255.0), axis=-1, keepdims=True)
    high = tf.reduce_max(tf.where(counts > 0, value, 0.0), axis=-1, keepdims=True)
    stretched = tf.clip_by_value(tf.floor((value - low) * 255.0 / tf.maximum(high - low, 1.0)), 0.0, 255.0)
    return tf.where(high > low, stretched, value)


def _equalized(counts: Any) -> Any:
    """Flatten the histogram of each channel. The counts are whole, and float32 holds them exactly."""
    value = tf.range(256.0)
    brightest = tf.reduce_max(tf.where(counts > 0, value, 0.0), axis=-1, keepdims=True)
    num_brightest = tf.reduce_sum(tf.where(value == brightest, counts, 0.0), axis=-1, keepdims=True)
    step = tf.floor((tf.reduce_sum(counts, axis=-1, keepdims=True) - num_brightest) / 255.0)
    below = tf.cumsum(counts, axis=-1, exclusive=True)
    divisor = tf.maximum(step, 1.0)
    flat = tf.clip_by_value(tf.floor((tf.floor(divisor / 2.0) + below) / divisor), 0.0, 255.0)
    return tf.where(step > 0, flat, value)


def _contrasted(counts: Any, amount: Any) -> Any:
    """Move values towards the image's mean luma, or away from it."""
    value = tf.range(256.0)
    means = tf.reduce_sum(counts * value, axis=-1) / tf.reduce_sum(counts, axis=-1)
    mean = tf.round(_luma(means))[:, None, None]
    return mean + amount * (value - mean)


def _luma(pixels: Any) -> Any:
    """Return the luma of pixels: [..., 3] to [...]."""
    red, green, blue = (float(weight) for weight in LUMA)
    return red * pixels[..., 0] + green * pixels[..., 1] + blue * pixels[..., 2]


def _by_channel(images: Any) -> Any:
    """Reshape images to uint8 [3 b, S * S]."""
    return tf.reshape(tf.transpose(images, [0, 3, 1, 2]), [-1, images.shape[1] * images.shape[2]])


def _as_bytes(pixels: Any) -> Any:
    return tf.saturate_cast(tf.round(pixels), tf.uint8)
