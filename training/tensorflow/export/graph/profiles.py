"""Convert colours by the ICC profile of an image file in a TensorFlow graph.

The result is that of ``shardmill.infra.codecs.color``. A profile of RGB by primaries and curves (ICC.1:2022,
8.3) is converted: curve, matrix, the curve of sRGB. One that moves no colour by more than two levels means
sRGB. One that is damaged, or for other channels than the file has, counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shardmill.training.tensorflow.export.graph.orientation import Bytes

RGB, GREY, CMYK = b"RGB ", b"GRAY", b"CMYK"
_SAME_LEVELS = 2  # as in shardmill.infra.codecs.color.icc
_MOST_TAGS = 200
_PRIMARIES, _CURVES = (b"rXYZ", b"gXYZ", b"bXYZ"), (b"rTRC", b"gTRC", b"bTRC")
_LUTS = (b"A2B0", b"A2B1")  # tables that win over the primaries
# From XYZ under D50 to linear sRGB: the inverse of the primaries in sRGB's own profile.
_TO_SRGB = np.linalg.inv(
    [[0.4360747, 0.3850649, 0.1430804], [0.2225045, 0.7168786, 0.0606169], [0.0139322, 0.0971045, 0.7141733]]
)
_LEVELS = np.linspace(0, 255, 18).astype(np.uint8)
_COLOURS = np.stack(np.meshgrid(_LEVELS, _LEVELS, _LEVELS), axis=-1).reshape(1, -1, 3)


class Profile(NamedTuple):
    """What a profile does.

    Attributes:
        known: whether it is converted here, or needs no conversion: bool.
        changes: whether it moves colours: bool.
        linear: the linear value of each level of red, green and blue: float32 [256, 3].
        matrix: from these to linear sRGB: float32 [3, 3].
    """

    known: Any
    changes: Any
    linear: Any
    matrix: Any

    def to_srgb(self, pixels: Any) -> Any:
        """Convert uint8 [h, w, 3] to sRGB."""
        return tf.cond(self.changes, lambda: self._converted(pixels), lambda: pixels)

    def _converted(self, pixels: Any) -> Any:
        levels = tf.cast(pixels, tf.int32)
        linear = tf.stack([tf.gather(self.linear[:, at], levels[:, :, at]) for at in range(3)], axis=-1)
        linear = tf.clip_by_value(tf.linalg.matmul(linear, self.matrix, transpose_b=True), 0.0, 1.0)
        curved = tf.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
        return tf.cast(tf.round(255.0 * curved), tf.uint8)


def read_profile(icc: Any, space: Any) -> Profile:
    """Read a profile.

    Args:
        icc: string, the profile; empty if the file has none.
        space: string, the colour space of the file's samples: ``RGB``, ``GREY`` or ``CMYK``.
    """
    return Profile(*_READ(icc, space))


def _read(icc: Any, space: Any) -> tuple[Any, ...]:
    data = Bytes(icc)
    is_whole = data.has(36, b"acsp") & (data.number(0, 4, True) <= data.size)
    applies = is_whole & (tf.strings.substr(icc + bytes(20), 16, 4) == space)
    primaries, curves, tables, codes = tf.split(
        _tags(data, (*_PRIMARIES, *_CURVES, *_LUTS, b"cicp")), [3, 3, 2, 1]
    )
    is_hdr = tf.reduce_any((codes >= 0) & (data.at(codes + 9) == [16, 18]))  # by PQ or HLG
    has_all = tf.reduce_all((primaries >= 0) & (curves >= 0))
    is_matrix = applies & (space == RGB) & data.has(20, b"XYZ ") & has_all & tf.reduce_all(tables < 0)
    is_matrix &= ~is_hdr
    rows = _fraction(data, primaries + 8 + 4 * np.arange(3)[:, np.newaxis])
    matrix = tf.cast(tf.constant(_TO_SRGB, tf.float64) @ rows, tf.float32)
    found = Profile(~applies | is_matrix, is_matrix, tf.transpose(_curves(data, curves)), matrix)
    moved = tf.cast(found.to_srgb(tf.constant(_COLOURS)), tf.int32) - _COLOURS.astype(np.int32)
    return tuple(found._replace(changes=is_matrix & (tf.reduce_max(tf.abs(moved)) > _SAME_LEVELS)))


# The graph has this part once, and calls it for each format.
_READ = tf.function(_read, input_signature=[tf.TensorSpec([], tf.string)] * 2, autograph=False)


def _tags(data: Bytes, names: Sequence[bytes]) -> Any:
    """Return the offset of the content of each tag (bytes): int64 [names]; -1: there is none."""
    entries = 132 + 12 * tf.range(tf.minimum(data.number(128, 4, True), _MOST_TAGS))
    is_it = data.number(entries, 4, True) == [[int.from_bytes(name, "big")] for name in names]
    found = tf.where(is_it, data.number(entries + 4, 4, True), -1)
    return tf.reduce_max(tf.pad(found, [[0, 0], [0, 1]], constant_values=-1), axis=1)


def _fraction(data: Bytes, at: Any) -> Any:
    """Return signed numbers with 16 bits behind the point: float64."""
    number = data.number(at, 4, True)
    return tf.cast(tf.where(number >= 1 << 31, number - (1 << 32), number), tf.float64) / 65536


def _curves(data: Bytes, at: Any) -> Any:
    """Return the linear value of each level by the curve at each of ``at`` [N]: float32 [N, 256]."""
    at, value = at[:, tf.newaxis], tf.constant(np.arange(256) / 255, tf.float64)
    linear = tf.where(data.has(at, b"para"), _formula(data, at, value), _table(data, at, value))
    return tf.cast(tf.clip_by_value(linear, 0.0, 1.0), tf.float32)


def _table(data: Bytes, at: Any, value: Any) -> Any:
    """The values of curves of type curv (10.6): nothing, a gamma, or a table."""
    size = data.number(at + 8, 4, True)
    gamma = tf.cast(data.number(at + 12, 2, True), tf.float64) / 256
    last = tf.maximum(size - 1, 1)
    place = value * tf.cast(last, tf.float64)
    below = tf.cast(tf.floor(place), tf.int64)
    two = [data.number(at + 12 + 2 * tf.minimum(below + step, last), 2, True) for step in (0, 1)]
    first, second = (tf.cast(number, tf.float64) / 65535 for number in two)
    between = first + (second - first) * (place - tf.floor(place))
    return tf.where(size == 0, value, tf.where(size == 1, value**gamma, between))


def _formula(data: Bytes, at: Any, value: Any) -> Any:
    """The values of curves of type para (10.18), whose five forms are cases of the last one."""
    form = data.number(at + 8, 2, True)
    g, a, b, c, d, e, f = tf.split(_fraction(data, at + 12 + 4 * np.arange(7)), 7, axis=1)
    zero, one = tf.zeros_like(g), tf.ones_like(g)
    a, b = tf.where(form == 0, one, a), tf.where(form == 0, zero, b)
    begin = tf.where(form <= 2, tf.math.divide_no_nan(-b, a), d)
    offset = tf.where(form == 2, c, tf.where(form == 4, e, zero))
    slope = tf.where(form <= 2, zero, c)
    shift = tf.where(form == 2, c, tf.where(form == 4, f, zero))
    return tf.where(value >= begin, tf.maximum(a * value + b, 0.0) ** g + offset, slope * value + shift)
