"""Pixels of one image in TensorFlow, the same for training, evaluation and export."""

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
    return resize(tf.io.decode_and_crop_jpeg(image, window, channels=3), image_size)


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


def decode_for_inference(image: Any, image_size: int) -> Any:
    """Decode a whole image of any format TensorFlow reads, as evaluation sees it: its central square.

    Args:
        image: string, a JPEG, PNG, GIF or BMP.

    Returns:
        uint8 [image_size, image_size, 3].
    """

    def from_jpeg() -> Any:
        shape = tf.io.extract_jpeg_shape(image)
        return decode_window(image, _central_window(shape), image_size)

    def from_other() -> Any:
        pixels = tf.io.decode_image(image, channels=3, expand_animations=False)
        window = _central_window(tf.shape(pixels))
        pixels = tf.image.crop_to_bounding_box(pixels, window[0], window[1], window[2], window[3])
        return resize(pixels, image_size)

    return tf.cond(tf.io.is_jpeg(image), from_jpeg, from_other)


def _central_window(shape: Any) -> Any:
    """int32 [4] of a shape [h, w, ...]; equals ``augment.central_windows``."""
    height, width = shape[0], shape[1]
    side = tf.minimum(height, width)
    return tf.stack([(height - side) // 2, (width - side) // 2, side, side])
