"""Prepare images inside the exported graph, and show of them what evaluation shows of records.

The steps are those of ``shardmill.training.export.model_input``: decode, cut, scale, lay on the canvas,
store, look. Three of them are not the same to the bit. Of a JPEG that becomes a JPEG the preparation scales
the stored chroma, which is known here only as decoded. Scaling and encoding round otherwise. A lossy WebP is
not encoded here, so its loss is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from shardmill.infra.codecs.jpeg.scales import SEEN
from shardmill.infra.preparation import Preparation, Sizing
from shardmill.training.export.model_input import ModelInput
from shardmill.training.tensorflow.data.preprocess import resize, to_grey
from shardmill.training.tensorflow.export.graph.decoding import decode_in_graph


def see_in_graph(image: Any, given: ModelInput) -> tuple[Any, Any]:
    """Return what the model sees of an image file.

    Args:
        image: string, the file; see ``decode_in_graph``.
        given: what the model sees.

    Returns:
        uint8 [S, S, C]; and the edges of the model's input, relative to the upright picture: float32 [4],
        top, left, bottom, right. Where records are padded they lie outside of 0 to 1.
    """
    how, size = given.preparation, given.image_size
    decoded = decode_in_graph(image, how)
    to = _geometry(tf.shape(decoded.pixels)[:2], how.sizing)
    if how.encoding == "jpeg" and how.resample == "area" and how.channels == 3:
        prepared = tf.cond(
            decoded.has_planes,
            lambda: _fitted_planes(decoded.pixels, to, how),
            lambda: _fitted(decoded.pixels, to, how),
        )
    else:
        prepared = _fitted(decoded.pixels, to, how)
    start, sides = _window(to.canvas, given)
    if how.encoding == "jpeg":
        is_copied = decoded.may_be_copied & to.changes_nothing() if how.passthrough else tf.constant(False)
        file = tf.cond(is_copied, lambda: image, lambda: _encoded(prepared, how))
        pixels = _decoded_window(file, start, sides, given)
    else:
        pixels = resize(_cut(prepared, start, start + sides), size)
    return to_grey(pixels) if given.image_shape[-1] == 1 else pixels, to.edges(start, sides)


# Full-range YCbCr of JFIF, with chroma around 0 instead of 128.
_TO_YCBCR = np.array(
    [[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]], np.float32
)


@dataclass(frozen=True)
class _GraphGeometry:
    """``shardmill.infra.codecs.geometry.Geometry`` as tensors: int32 [2] each, height first."""

    upright: Any
    start: Any
    sides: Any
    scaled: Any
    canvas: Any
    offset: Any

    def changes_nothing(self) -> Any:
        """Return whether the stored image is the picture itself: bool."""
        same = [tf.reduce_all(self.upright == each) for each in (self.sides, self.scaled, self.canvas)]
        return same[0] & same[1] & same[2]

    def edges(self, start: Any, sides: Any) -> Any:
        """Return the edges of a window of the stored image, relative to the picture: float32 [4]."""
        scale = _float(self.sides) / _float(self.scaled)
        ends = [_float(self.start) + _float(end - self.offset) * scale for end in (start, start + sides)]
        return tf.cast(tf.concat([end / _float(self.upright) for end in ends], 0), tf.float32)


def _float(value: Any) -> Any:
    return tf.cast(value, tf.float64)


def _geometry(upright: Any, sizing: Sizing) -> _GraphGeometry:
    """Return what ``shardmill.infra.codecs.geometry.geometry`` does, of a picture of int32 [2] pixels."""
    sides, whole = _float(upright), tf.zeros([2], tf.int32)
    if sizing.mode in ("pad", "crop"):
        return _exact(upright, sizing)
    measure = {"short": tf.reduce_min, "long": tf.reduce_max}.get(sizing.mode)
    ratio = sizing.height / measure(sides) if measure else tf.constant(1.0, tf.float64)
    ratio = ratio if sizing.upscale else tf.minimum(tf.constant(1.0, tf.float64), ratio)
    scaled = _within(sides * ratio)
    return _GraphGeometry(upright, whole, upright, scaled, scaled, whole)


def _exact(upright: Any, sizing: Sizing) -> _GraphGeometry:
    canvas = tf.constant([sizing.height, sizing.width])
    ratios = _float(canvas) / _float(upright)
    wanted = tf.reduce_min(ratios) if sizing.mode == "pad" else tf.reduce_max(ratios)
    ratio = wanted if sizing.upscale else tf.minimum(tf.constant(1.0, tf.float64), wanted)
    window = upright
    if sizing.mode == "crop":
        window = tf.minimum(_within(_float(canvas) / ratio), upright)
    scaled = tf.minimum(_within(_float(window) * ratio), canvas)
    if sizing.mode == "crop":
        scaled = tf.where(ratio == wanted, canvas, scaled)
    return _GraphGeometry(
        upright, _centre(upright - window), window, scaled, canvas, _centre(canvas - scaled)
    )


def _within(lengths: Any) -> Any:
    return tf.maximum(1, tf.cast(tf.round(lengths), tf.int32))


def _centre(rest: Any) -> Any:
    return rest // 4 * 2


def _fitted(pixels: Any, to: _GraphGeometry, how: Preparation) -> Any:
    """Cut and scale a picture, and lay it on its canvas, as ``shardmill.infra.codecs.prepare`` does."""
    cut = _cut(pixels, to.start, to.start + to.sides)
    scaled = (_averaged if how.resample == "area" else _lanczos)(cut, to.scaled)
    behind = tf.constant([[how.color_behind]], tf.uint8)
    if how.channels == 1:
        behind = tf.tile(to_grey(behind), [1, 1, 3])
    return tf.cast(_on_canvas(tf.cast(scaled, tf.int32), to.canvas, to.offset, behind), tf.uint8)


def _fitted_planes(pixels: Any, to: _GraphGeometry, how: Preparation) -> Any:
    """Do the same with luma and chroma (half the size), as ``shardmill.infra.codecs.jpeg.planes`` does."""
    cut = tf.cast(_cut(pixels, to.start, to.start + to.sides), tf.float32)
    planes = tf.tensordot(cut, _TO_YCBCR, [[2], [1]])
    behind = tf.tensordot(tf.constant([[how.color_behind]], tf.float32), _TO_YCBCR, [[2], [1]])
    luma = _on_canvas(_rounded_levels(planes[..., :1], to.scaled), to.canvas, to.offset, behind[..., :1])
    # A last sample of chroma that sticks out covers a part of the source that does so too.
    covered = _within(_float((to.scaled + to.scaled % 2) * to.sides) / _float(to.scaled))
    rows, columns = (tf.minimum(tf.range(covered[axis]), to.sides[axis] - 1) for axis in (0, 1))
    chroma = tf.gather(tf.gather(planes[..., 1:], rows), columns, axis=1)
    chroma = _rounded_levels(chroma, (to.scaled + 1) // 2)
    chroma = _on_canvas(chroma, (to.canvas + 1) // 2, to.offset // 2, tf.round(behind[..., 1:]))
    chroma = _cut(tf.repeat(tf.repeat(chroma, 2, 0), 2, 1), tf.zeros([2], tf.int32), to.canvas)
    together = tf.concat([luma, chroma], axis=2)
    return _rounded(tf.tensordot(together, np.linalg.inv(_TO_YCBCR).astype(np.float32), [[2], [1]]))


def _on_canvas(picture: Any, canvas: Any, offset: Any, behind: Any) -> Any:
    """Lay a picture on a canvas of a colour, [1, 1, C]."""
    room = tf.stack([offset, canvas - tf.shape(picture)[:2] - offset], axis=1)  # [2, before and after]
    around = tf.concat([room, tf.zeros([1, 2], tf.int32)], axis=0)
    behind = tf.cast(behind, picture.dtype)
    return tf.pad(picture - behind, around) + behind


def _averaged(pixels: Any, size: Any) -> Any:
    return tf.saturate_cast(_rounded_levels(pixels, size), tf.uint8)


def _rounded_levels(values: Any, size: Any) -> Any:
    """Average the sides that shrink, and interpolate those that grow: whole numbers, float32 [*size, C]."""
    shrunk = tf.minimum(tf.shape(values)[:2], size)
    averaged = tf.round(tf.image.resize(values, shrunk, method="area"))
    return tf.round(tf.image.resize(averaged, size, method="bilinear"))


def _lanczos(pixels: Any, size: Any) -> Any:
    # Pillow scales rows first, and rounds between.
    for to in (tf.stack([tf.shape(pixels)[0], size[1]]), size):
        pixels = _rounded(tf.image.resize(pixels, to, method="lanczos3", antialias=True))
    return pixels


def _rounded(values: Any) -> Any:
    return tf.saturate_cast(tf.round(values), tf.uint8)


def _encoded(pixels: Any, how: Preparation) -> Any:
    """Return the stored JPEG: string. TensorFlow encodes with another cosine transform than preparation."""
    if how.channels == 1:
        return tf.io.encode_jpeg(pixels[:, :, :1], "grayscale", quality=how.quality)
    return tf.io.encode_jpeg(pixels, "rgb", quality=how.quality)


def _decoded_window(file: Any, start: Any, sides: Any, given: ModelInput) -> Any:
    """Decode a window of a stored JPEG at the fraction that ``shardmill.training.reading.decode`` takes.

    Returns:
        uint8 [S, S, 3].
    """
    size = given.image_size

    def at(scale: int) -> Any:
        pixels = tf.io.decode_jpeg(file, channels=3, ratio=scale, dct_method="INTEGER_ACCURATE")
        if scale == 1:
            return resize(_cut(pixels, start, start + sides), size)
        return _window_averaged(pixels, _float(start) / scale, _float(sides) / scale, size)

    if given.decoding == "whole":
        return at(1)
    scales = sorted(SEEN)
    leasts = [int(SEEN[scale] * size) for scale in scales]
    fraction = tf.reduce_sum([tf.cast(tf.reduce_min(sides) >= least, tf.int32) for least in leasts])
    return tf.switch_case(fraction, [lambda scale=scale: at(scale) for scale in (1, *scales)])


def _window_averaged(pixels: Any, start: Any, sides: Any, size: int) -> Any:
    """Average a window whose edges may lie inside pixels, as ``shardmill.infra.native.area`` does."""
    averaged = tf.cast(pixels, tf.float32)
    for axis in (0, 1):  # down the rows, then along them
        step = sides[axis] / size
        begins = (start[axis] + tf.range(size, dtype=tf.float64) * step)[:, tf.newaxis]
        places = tf.range(tf.shape(pixels)[axis])[tf.newaxis]
        covered = tf.minimum(begins + step, _float(places + 1)) - tf.maximum(begins, _float(places))
        shares = tf.maximum(covered, 0.0)
        shares = tf.cast(shares / tf.reduce_sum(shares, axis=1, keepdims=True), tf.float32)
        averaged = tf.transpose(tf.tensordot(shares, averaged, [[1], [0]]), [1, 0, 2])
    return _rounded(averaged)


def _cut(pixels: Any, start: Any, end: Any) -> Any:
    return pixels[start[0] : end[0], start[1] : end[1]]


def _window(canvas: Any, given: ModelInput) -> tuple[Any, Any]:
    """Return start and sides of the part of a stored image that evaluation sees: int32 [2] each."""
    if given.fit == "stretch":
        return tf.zeros([2], tf.int32), canvas
    side = tf.fill([2], tf.reduce_min(canvas))
    return (canvas - side) // 2, side
