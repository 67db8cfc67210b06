"""Pixels of one record in TensorFlow, the same for training, evaluation and export."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def decode_window(image: Any, window: Any, image_size: int) -> Any:
    """Decode only a window of a JPEG, and resize it.

    Args:
        image: string, a JPEG.
        window: int32 [4]: y, x, height, width (pixels).
        image_size: height and width of the result (pixels).

    Returns:
        uint8 [image_size, image_size, 3].
    """
    return resize(decode_jpeg_window(image, window, channels=3), image_size)


def decode_jpeg_window(image: Any, window: Any, *, channels: int) -> Any:
    """A window of a JPEG, uint8 [height, width, channels].

    The default of TensorFlow is the fast cosine transform, which is no faster here, and up to four grey
    levels off what every other reader decodes.
    """
    return tf.io.decode_and_crop_jpeg(image, window, channels=channels, dct_method="INTEGER_ACCURATE")


def resize(pixels: Any, image_size: int) -> Any:
    """Resize without aliasing: what shrinks is averaged, what grows is interpolated.

    Args:
        pixels: uint8 [h, w, 3].

    Returns:
        uint8 [image_size, image_size, 3].
    """
    shape = tf.shape(pixels)
    size = [image_size, image_size]

    def average() -> Any:
        # As fast as plain bilinear, which aliases; the antialiased kernel takes twice as long.
        return tf.image.resize(pixels, size, method="area")

    def interpolate() -> Any:
        return tf.image.resize(pixels, size, method="bilinear")

    def shrink_one_side() -> Any:
        return tf.image.resize(pixels, size, method="bilinear", antialias=True)

    resized = tf.case(
        [
            (tf.reduce_min(shape[:2]) >= image_size, average),
            (tf.reduce_max(shape[:2]) <= image_size, interpolate),
        ],
        default=shrink_one_side,
        exclusive=False,
    )
    resized = tf.saturate_cast(tf.round(resized), tf.uint8)
    return tf.ensure_shape(resized, [image_size, image_size, 3])
