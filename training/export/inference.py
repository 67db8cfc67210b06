"""Decode images of any kind inside the exported graph, to the pixels that the model was trained on.

This module repeats the steps of ``infra.codecs.decode`` with TensorFlow's own operations: it turns images
upright, puts transparent ones on white, and makes them grey for a model of grey records.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from training.export.orientation import (
    central_window,
    jpeg_orientation,
    png_orientation,
    turn_upright,
    webp_orientation,
)
from training.models.spec import Fit
from training.tf_data.preprocess import decode_jpeg_window, resize

_CMYK = 4


def decode_for_inference(image: Any, image_size: int, *, grey: bool = False, fit: Fit = "crop") -> Any:
    """Decode an image of any format that TensorFlow reads, as evaluation sees it.

    Args:
        image: string, a JPEG, PNG, WebP, BMP or GIF (its first frame). Transparency counts in PNG and WebP;
            transparent pixels of a GIF become black, and those of a PNG of less than 8 bits keep their
            stored colour.
        image_size: height and width of the result (pixels).
        grey: the model's records are grey; so is the result, in three equal channels.
        fit: the central square is seen, or the whole image.

    Returns:
        uint8 [image_size, image_size, 3].
    """
    pixels = tf.cond(tf.io.is_jpeg(image), lambda: _jpeg(image, grey, fit), lambda: _other(image, grey, fit))
    return resize(pixels, image_size)


def _jpeg(image: Any, grey: bool, fit: Fit) -> Any:
    shape = tf.io.extract_jpeg_shape(image)
    orientation = jpeg_orientation(image)
    window = _window(shape, orientation, fit)

    def in_colour() -> Any:
        return decode_jpeg_window(image, window, channels=3)

    def in_grey() -> Any:
        # The stored luminance; CMYK images have none.
        return tf.cond(
            shape[2] == _CMYK,
            lambda: _luminance(in_colour()),
            lambda: tf.tile(decode_jpeg_window(image, window, channels=1), [1, 1, 3]),
        )

    return turn_upright(in_grey() if grey else in_colour(), orientation)


def _other(image: Any, grey: bool, fit: Fit) -> Any:
    start = tf.strings.substr(image, 0, 26) + bytes(26)
    is_png = tf.strings.substr(start, 0, 8) == b"\x89PNG\r\n\x1a\n"
    is_webp = tf.strings.substr(start, 8, 4) == b"WEBP"
    is_bmp = tf.strings.substr(start, 0, 2) == b"BM"
    pixels, orientation = tf.case(
        [
            (is_png, lambda: (_png(image, start), png_orientation(image))),
            (is_webp, lambda: (_webp(image), webp_orientation(image))),
            (is_bmp, lambda: (_bmp(image), tf.constant(1, tf.int64))),
        ],
        default=lambda: (
            tf.io.decode_image(image, channels=3, expand_animations=False),
            tf.constant(1, tf.int64),
        ),
    )
    window = _window(tf.shape(pixels), orientation, fit)
    pixels = tf.slice(pixels, [window[0], window[1], 0], [window[2], window[3], 3])
    return turn_upright(_luminance(pixels) if grey else pixels, orientation)


def _window(shape: Any, orientation: Any, fit: Fit) -> Any:
    """Return the window of stored pixels that is seen: int32 [4]."""
    if fit == "stretch":
        return tf.stack([0, 0, shape[0], shape[1]])
    return central_window(shape, orientation)


def _png(image: Any, start: Any) -> Any:
    # TensorFlow garbles pixels of fewer than 8 bits if alpha is requested, so transparency is ignored there.
    # So is the transparent shade of 16-bit grey, as in Pillow.
    depth, kind = tf.strings.substr(start, 24, 1), tf.strings.substr(start, 25, 1)
    few_bits = (depth == b"\x01") | (depth == b"\x02") | (depth == b"\x04")
    deep_grey = (depth == b"\x10") & (kind == b"\x00")
    return tf.cond(
        few_bits | deep_grey,
        lambda: tf.io.decode_png(image, channels=3),
        lambda: _on_white(tf.io.decode_png(image, channels=4)),
    )


def _webp(image: Any) -> Any:
    pixels = tf.io.decode_webp(image)[0]  # the first frame
    return tf.cond(tf.shape(pixels)[2] == 4, lambda: _on_white(pixels), lambda: pixels)


def _bmp(image: Any) -> Any:
    """Decode a BMP. TensorFlow returns palette indices of 8-bit images as grey; look them up."""
    pixels = tf.io.decode_bmp(image)

    def colours() -> Any:
        header = tf.io.decode_raw(tf.strings.substr(image, 14, 4), tf.int32)[0]
        table = tf.strings.substr(image, 14 + header, 4 * 256) + bytes(4 * 256)
        palette = tf.reshape(tf.io.decode_raw(tf.strings.substr(table, 0, 4 * 256), tf.uint8), [256, 4])
        return tf.gather(palette[:, 2::-1], tf.cast(pixels[:, :, 0], tf.int32))

    return tf.cond(tf.shape(pixels)[2] == 1, colours, lambda: pixels[:, :, :3])


def _on_white(pixels: Any) -> Any:
    """Composite uint8 [h, w, 4] on white: uint8 [h, w, 3], bit for bit like Pillow's ``alpha_composite``."""
    values = tf.cast(pixels, tf.int32)
    alpha = values[:, :, 3:]
    scaled = 128 * (values[:, :, :3] * alpha + 255 * (255 - alpha)) + 128 * 128
    return tf.cast((scaled // 256 + scaled) // 256 // 128, tf.uint8)


def _luminance(pixels: Any) -> Any:
    """Convert uint8 [h, w, 3] to grey in three equal channels (ITU-R BT.601 in Pillow's fixed point)."""
    weights = tf.constant([19595, 38470, 7471], tf.int32)
    grey = (tf.reduce_sum(tf.cast(pixels, tf.int32) * weights, axis=2, keepdims=True) + 0x8000) // 0x10000
    return tf.tile(tf.cast(grey, tf.uint8), [1, 1, 3])
