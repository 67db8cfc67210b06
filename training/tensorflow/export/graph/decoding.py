"""Decode images in the exported graph: upright, opaque, grey or RGB, as ``shardmill.infra.codecs`` does.

TensorFlow has decoders of five formats. A kind of file that they decode to other pixels than the preparation
is refused, as are colour profiles (ICC) that a graph cannot convert, and PNGs that state colours other than
sRGB by chunks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from shardmill.infra.preparation import Preparation
from shardmill.training.tensorflow.data.preprocess import to_grey
from shardmill.training.tensorflow.export.graph.orientation import (
    gif_is_opaque,
    jpeg_orientation,
    jpeg_profile,
    png_gamma_is_srgb,
    png_has_chunk,
    png_orientation,
    png_profile,
    turn_upright,
    webp_orientation,
    webp_profile,
)
from shardmill.training.tensorflow.export.graph.profiles import CMYK, GREY, RGB, Profile, read_profile

_REMEDY = "make the pixels with model-input.json, and call the signature 'pixels'"
_CMYK = 4
_PROFILE = "a colour profile of grey, inks or HDR, or with tables"


class Decoded(NamedTuple):
    """A decoded image file.

    Attributes:
        pixels: uint8 [h, w, 3], upright; grey in three equal channels.
        has_planes: whether it is to be scaled in YCbCr, as a JPEG that becomes a JPEG is: bool. Then each
            stored sample of chroma stands in all pixels that it covers.
        may_be_copied: whether it is a JPEG that was not turned: bool.
    """

    pixels: Any
    has_planes: Any
    may_be_copied: Any


def decode_in_graph(image: Any, how: Preparation) -> Decoded:
    """Decode an image file.

    Args:
        image: string, a JPEG, PNG, WebP, BMP or GIF (its first frame). Others are an error of TensorFlow, and
            so are files that its decoders read otherwise: see ``_other``.
        how: the preparation of the records.
    """
    is_jpeg = tf.io.is_jpeg(image)
    pixels, orientation, has_planes = tf.cond(
        is_jpeg, lambda: _jpeg(image, how), lambda: (*_other(image, how), tf.constant(False))
    )
    return Decoded(turn_upright(pixels, orientation), has_planes, is_jpeg & (orientation == 1))


def _jpeg(image: Any, how: Preparation) -> tuple[Any, Any, Any]:
    shape, orientation = tf.io.extract_jpeg_shape(image), jpeg_orientation(image)
    image = _of_few_pixels(image, shape, how)
    is_cmyk = shape[2] == _CMYK
    icc, is_whole = jpeg_profile(image)
    profile = read_profile(icc, tf.where(is_cmyk, CMYK, tf.where(shape[2] == 1, GREY, RGB)))
    image = _checked(image, is_whole & profile.known, _PROFILE)
    # Planes with halved chroma are turned only if no sample sticks out at a side.
    has_planes = ~is_cmyk & ~profile.changes & ((orientation == 1) | tf.reduce_all(shape[:2] % 2 == 0))
    if how.channels == 1:
        # The stored luminance; CMYK images have none.
        grey = tf.cond(
            is_cmyk | profile.changes,
            lambda: _luminance(profile.to_srgb(_jpeg_pixels(image, 3))),
            lambda: tf.tile(_jpeg_pixels(image, 1), [1, 1, 3]),
        )
        return grey, orientation, tf.constant(False)
    if how.encoding != "jpeg" or how.resample != "area":
        return profile.to_srgb(_jpeg_pixels(image, 3)), orientation, tf.constant(False)
    pixels = tf.cond(
        has_planes,
        lambda: _jpeg_pixels(image, 3, smooth_chroma=False),
        lambda: profile.to_srgb(_jpeg_pixels(image, 3)),
    )
    return pixels, orientation, has_planes


def _jpeg_pixels(image: Any, channels: int, *, smooth_chroma: bool = True) -> Any:
    # The default cosine transform is up to four grey levels off what every other reader decodes.
    return tf.io.decode_jpeg(
        image, channels=channels, fancy_upscaling=smooth_chroma, dct_method="INTEGER_ACCURATE"
    )


def _other(image: Any, how: Preparation) -> tuple[Any, Any]:
    start = tf.strings.substr(image, 0, 54) + bytes(54)
    upright = tf.constant(1, tf.int64)

    def begins(at: int, text: bytes) -> Any:
        return tf.strings.substr(start, at, len(text)) == text

    pixels, orientation = tf.case(
        [
            (begins(0, b"\x89PNG\r\n\x1a\n"), lambda: (_png(image, start, how), png_orientation(image))),
            (begins(8, b"WEBP"), lambda: (_webp(image, how), webp_orientation(image))),
            (begins(0, b"BM"), lambda: (_bmp(image, start), upright)),
        ],
        default=lambda: (_gif(image, begins(0, b"GIF8")), upright),
    )
    pixels = _of_few_pixels(pixels, tf.shape(pixels), how)
    return _luminance(pixels) if how.channels == 1 else pixels, orientation


def _png(image: Any, start: Any, how: Preparation) -> Any:
    # TensorFlow garbles pixels of fewer than 8 bits if alpha is requested.
    depth, kind = tf.strings.substr(start, 24, 1), tf.strings.substr(start, 25, 1)
    is_deep = depth == b"\x10"
    few_bits = (depth == b"\x01") | (depth == b"\x02") | (depth == b"\x04")
    has_key = png_has_chunk(image, b"tRNS")
    has_odd_key = has_key & (few_bits | is_deep)
    image = _checked(image, ~has_odd_key, "a PNG with a transparent colour and not 8 bits a sample")
    has_odd_white = is_deep & (kind == b"\x00") & png_has_chunk(image, b"sBIT")
    image = _checked(image, ~has_odd_white, "a grey PNG of 16 bits with sBIT")
    image = _checked(image, ~png_has_chunk(image, b"cICP"), "a PNG that states its colours by cICP")
    icc = png_profile(image)
    has_odd_colours = (icc == b"") & ~png_has_chunk(image, b"sRGB") & ~png_gamma_is_srgb(image)
    image = _checked(image, ~has_odd_colours, "a PNG that states its colours by gAMA or cHRM")
    profile = read_profile(icc, tf.where((kind == b"\x00") | (kind == b"\x04"), GREY, RGB))
    image = _checked(image, profile.known, _PROFILE)
    return tf.cond(
        few_bits,
        lambda: profile.to_srgb(tf.io.decode_png(image, channels=3)),
        lambda: _opaque(tf.io.decode_png(image, channels=4), how, profile),
    )


def _webp(image: Any, how: Preparation) -> Any:
    profile = read_profile(webp_profile(image), tf.constant(RGB))
    image = _checked(image, profile.known, _PROFILE)
    pixels = tf.io.decode_webp(image)[0]  # the first frame
    return tf.cond(
        tf.shape(pixels)[2] == 4, lambda: _opaque(pixels, how, profile), lambda: profile.to_srgb(pixels)
    )


def _bmp(image: Any, start: Any) -> Any:
    """Decode a BMP. TensorFlow returns palette indices of 8-bit images as grey; look them up."""
    bits, packing = _number(start, 28, tf.uint16), _number(start, 30, tf.int32)
    header = _number(start, 14, tf.int32)
    is_plain = (header >= 40) & (packing == 0) & ((bits == 8) | (bits == 24) | (bits == 32))
    image = _checked(image, is_plain, "a BMP that is packed, or not of 8, 24 or 32 bits a pixel")
    pixels = tf.io.decode_bmp(image)

    def colours() -> Any:
        table = tf.strings.substr(image, 14 + header, 4 * 256) + bytes(4 * 256)
        palette = tf.reshape(tf.io.decode_raw(tf.strings.substr(table, 0, 4 * 256), tf.uint8), [256, 4])
        return tf.gather(palette[:, 2::-1], tf.cast(pixels[:, :, 0], tf.int32))

    return tf.cond(tf.shape(pixels)[2] == 1, colours, lambda: pixels[:, :, :3])


def _gif(image: Any, is_gif: Any) -> Any:
    image = _checked(image, is_gif, "a file that is none of JPEG, PNG, WebP, BMP and GIF")
    told = "a GIF with transparent pixels, or whose first frame does not fill it"
    image = _checked(image, gif_is_opaque(image), told)
    return tf.io.decode_gif(image)[0]


def _number(text: Any, at: int, kind: Any) -> Any:
    return tf.cast(tf.io.decode_raw(tf.strings.substr(text, at, kind.size), kind)[0], tf.int32)


def _of_few_pixels(checked: Any, shape: Any, how: Preparation) -> Any:
    pixels = tf.reduce_prod(tf.cast(shape[:2], tf.int64))
    return _checked(checked, pixels <= how.max_pixels, f"an image of more than {how.max_pixels:,} pixels")


def _checked(checked: Any, holds: Any, found: str) -> Any:
    """Return a tensor, but refuse the image at run time unless a condition holds."""
    told = f"{found} is not decoded here as it was for training: {_REMEDY}"
    with tf.control_dependencies([tf.debugging.Assert(holds, [told])]):
        return tf.identity(checked)


def _opaque(pixels: Any, how: Preparation, profile: Profile) -> Any:
    """Lay uint8 [h, w, 4] on the background: uint8 [h, w, 3], as Pillow's ``alpha_composite`` does."""
    values = tf.cast(profile.to_srgb(pixels[:, :, :3]), tf.int32)
    alpha, behind = tf.cast(pixels[:, :, 3:], tf.int32), tf.constant(how.color_behind, tf.int32)
    scaled = 128 * (values * alpha + behind * (255 - alpha)) + 128 * 128
    return tf.cast((scaled // 256 + scaled) // 256 // 128, tf.uint8)


def _luminance(pixels: Any) -> Any:
    """Convert uint8 [h, w, 3] to grey in three equal channels (ITU-R BT.601 in Pillow's fixed point)."""
    return tf.tile(to_grey(pixels), [1, 1, 3])
