"""Decode and resize records in TensorFlow, the same for training, evaluation and export."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from shardmill.infra.errors import ConfigError
from shardmill.training.reading.decode import INTERPOLATED_UP_TO, LUMA_ONE, LUMA_SHARES


def decode_window(image: Any, shape: Any, window: Any, image_size: int, encoding: str = "jpeg") -> Any:
    """Decode a window of a stored image, and resize it.

    Args:
        image: string, the stored image.
        shape: int32 [3]: height, width, channels of the stored image.
        window: int32 [4]: y, x, height, width (pixels).
        image_size: height and width of the result (pixels).
        encoding: the manifest's ``image_encoding``.

    Returns:
        uint8 [image_size, image_size, 3]; grey in three equal channels.
    """
    if encoding == "jpeg":  # the only encoding that allows decoding a single window
        return resize(decode_jpeg_window(image, window, channels=3), image_size)
    pixels = decode_image(image, shape, encoding)
    pixels = tf.slice(pixels, [window[0], window[1], 0], [window[2], window[3], 3])
    return resize(tf.ensure_shape(pixels, [None, None, 3]), image_size)


def decode_image(image: Any, shape: Any, encoding: str) -> Any:
    """Decode a whole stored image: uint8 [height, width, 3]; grey in three equal channels.

    Args:
        image: string, the stored image.
        shape: int32 [3]: height, width, channels of the stored image.
        encoding: the manifest's ``image_encoding``.
    """
    if encoding == "jpeg":
        return tf.io.decode_jpeg(image, channels=3, dct_method="INTEGER_ACCURATE")
    if encoding == "png":
        return tf.io.decode_png(image, channels=3)
    if encoding == "webp":
        # The first frame. Bytes copied from a source may have an opaque alpha channel, which is cut off.
        return tf.io.decode_webp(image)[0, :, :, :3]
    if encoding == "raw":
        pixels = tf.reshape(tf.io.decode_raw(image, tf.uint8), shape)
        return tf.cond(shape[2] == 1, lambda: tf.image.grayscale_to_rgb(pixels), lambda: pixels)
    raise ConfigError(f"images stored as {encoding!r} cannot be read", "use a newer release of Shardmill")


def decode_jpeg_window(image: Any, window: Any, *, channels: int) -> Any:
    """Decode a window of a JPEG: uint8 [height, width, channels].

    The default of TensorFlow is the fast cosine transform, which is no faster here, and up to four grey
    levels off what every other reader decodes.
    """
    return tf.io.decode_and_crop_jpeg(image, window, channels=channels, dct_method="INTEGER_ACCURATE")


def to_grey(pixels: Any) -> Any:
    """Return the luma of pixels, as ``reading.decode.luma`` does: uint8 [..., 3] to [..., 1]."""
    sums = tf.reduce_sum(tf.cast(pixels, tf.int32) * tf.constant(LUMA_SHARES), axis=-1, keepdims=True)
    return tf.cast((sums + LUMA_ONE // 2) // LUMA_ONE, tf.uint8)


def resize(pixels: Any, image_size: int) -> Any:
    """Resize without visible aliasing, as ``shardmill.training.reading.decode`` does outside TensorFlow.

    Args:
        pixels: uint8 [h, w, 3].
        image_size: height and width of the result (pixels).

    Returns:
        uint8 [image_size, image_size, 3].
    """
    shape = tf.shape(pixels)[:2]
    size = tf.constant([image_size, image_size])

    def average() -> Any:
        # As fast as plain bilinear, which aliases; the antialiased kernel takes twice as long. Averaging does
        # not change a side that does not shrink.
        averaged = tf.image.resize(pixels, tf.minimum(shape, size), method="area")
        return tf.image.resize(averaged, size, method="bilinear")

    def interpolate() -> Any:
        return tf.image.resize(pixels, size, method="bilinear")

    shrinks = tf.cast(tf.reduce_max(shape), tf.float32) > INTERPOLATED_UP_TO * image_size
    resized = tf.saturate_cast(tf.round(tf.cond(shrinks, average, interpolate)), tf.uint8)
    return tf.ensure_shape(resized, [image_size, image_size, 3])
