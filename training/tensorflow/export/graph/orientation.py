"""Search an image file in a TensorFlow graph: its orientation, which is undone, profile and transparency.

An exported model runs without this project, so this module repeats with TensorFlow's own operations the
steps of ``shardmill.infra.codecs``. EXIF 2.32 is a TIFF structure: byte order, then a directory of
12-byte entries; tag 274 is the orientation. JPEG keeps it in an APP1 segment, PNG in an ``eXIf`` chunk,
WebP in an ``EXIF`` chunk. Without an entry, or with a broken one, the image counts as upright.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from shardmill.infra.codecs.color.stated import SAME_CHROMATICITY, SAME_GAMMA, SRGB

_TAG = 274
_EXIF, _ICC = b"Exif\x00\x00", b"ICC_PROFILE\x00"
_SEARCHED_FOR_ICC = 1 << 18  # profiles stand behind EXIF and XMP
_SEARCHED_BYTES = 1 << 16  # first bytes of a JPEG that are searched, as in shardmill.infra.codecs
_SHORTS, _LONGS = (3, 8), (4, 9)  # TIFF types: unsigned and signed


def turn_upright(pixels: Any, orientation: Any) -> Any:
    """Turn pixels upright, like ``shardmill.infra.codecs.apply_orientation``.

    Args:
        pixels: uint8 [h, w, C].
        orientation: int64, 1 to 8.
    """
    pixels = tf.cond(orientation >= 5, lambda: tf.transpose(pixels, [1, 0, 2]), lambda: pixels)
    pixels = tf.cond(_upside_down(orientation), lambda: tf.reverse(pixels, [0]), lambda: pixels)
    return tf.cond(_mirrored(orientation), lambda: tf.reverse(pixels, [1]), lambda: pixels)


def _upside_down(orientation: Any) -> Any:
    return _is_one_of(orientation, (3, 4, 7, 8))


def _mirrored(orientation: Any) -> Any:
    return _is_one_of(orientation, (2, 3, 6, 7))


def jpeg_orientation(image: Any) -> Any:
    """Return the orientation of a JPEG by its EXIF segment: int64, 1 to 8."""
    data = Bytes(tf.strings.substr(image, 0, 2 * _SEARCHED_BYTES))
    exif, end = _segment(data, 0xE1, _EXIF, _SEARCHED_BYTES)
    return _in_exif(data, exif, end)


def jpeg_profile(image: Any) -> tuple[Any, Any]:
    """Return the ICC profile of a JPEG: string, empty without one.

    Also return whether it lies in one segment: bool. Those of several segments are not put together.
    """
    data = Bytes(tf.strings.substr(image, 0, _SEARCHED_FOR_ICC + _SEARCHED_BYTES))
    start, end = _segment(data, 0xE2, _ICC, _SEARCHED_FOR_ICC)
    # The number of the segment and of all segments come before the profile.
    size = tf.where(start >= 0, tf.maximum(end - start - 2, 0), _int(0))
    profile = tf.strings.substr(image, tf.clip_by_value(start + 2, _int(0), data.size), size)
    return profile, (start < 0) | (data.at(start + 1) == 1)


def png_profile(image: Any) -> Any:
    """Return the ICC profile of a PNG, in front of its picture: string, empty without one."""
    (start, length), (picture, _) = _find_chunk(image, b"iCCP", _PNG), _find_chunk(image, b"IDAT", _PNG)
    palette, _ = _find_chunk(image, b"PLTE", _PNG)
    in_place = (start >= 0) & (start < picture) & ((palette < 0) | (start < palette))

    def inflated() -> Any:
        content = tf.strings.substr(image, start, length)
        name = tf.strings.length(tf.strings.split(tf.strings.substr(content, 0, 81), b"\x00")[0])
        return tf.io.decode_compressed(tf.strings.substr(content, name + 2, -1), "ZLIB")

    return tf.cond(in_place, inflated, lambda: tf.constant(b""))


def webp_profile(image: Any) -> Any:
    """Return the ICC profile of a WebP: string, empty without one."""
    start, length = _find_chunk(image, b"ICCP", _WEBP)
    return tf.strings.substr(image, tf.maximum(start, 0), tf.where(start < 0, _int(0), length))


def _segment(data: Bytes, wanted: int, begins: bytes, searched: int) -> tuple[Any, Any]:
    """Find a segment of a JPEG.

    Args:
        data: the file.
        wanted: its marker.
        begins: its first bytes.
        searched: bytes of the file in which it begins.

    Returns:
        The place behind its first bytes, -1 without one, and its end: int64.
    """
    limit = tf.minimum(data.size, _int(searched))

    def undecided(position: Any, exif: Any, _end: Any) -> Any:
        return (exif < 0) & (position + 10 <= limit)

    def step(position: Any, _exif: Any, _end: Any) -> tuple[Any, Any, Any]:
        marker, length = data.at(position + 1), data.number(position + 2, 2, True)
        stray = (data.at(position) != 0xFF) | (marker == 0xFF)
        bare = (marker < 0xC0) | ((marker >= 0xD0) & (marker <= 0xD9))
        segment = ~stray & ~bare
        found = segment & (marker == wanted) & data.has(position + 4, begins)
        after = tf.where(stray, _int(1), tf.where(bare, _int(2), 2 + tf.maximum(length, 2)))
        scan = segment & (marker == 0xDA)
        following = tf.where(scan, limit, position + after)
        return following, tf.where(found, position + 4 + len(begins), _int(-1)), position + 2 + length

    begin = (_int(2), _int(-1), _int(0))
    _, exif, end = tf.while_loop(undecided, step, begin)
    return exif, tf.minimum(end, data.size)


def png_orientation(image: Any) -> Any:
    """Return the orientation of a PNG by its ``eXIf`` chunk: int64, 1 to 8."""
    return _in_chunk(image, _find_chunk(image, b"eXIf", _PNG))


def webp_orientation(image: Any) -> Any:
    """Return the orientation of a WebP by its ``EXIF`` chunk: int64, 1 to 8."""
    return _in_chunk(image, _find_chunk(image, b"EXIF", _WEBP))


def png_has_chunk(image: Any, name: bytes) -> Any:
    """Return whether a PNG has a chunk: bool."""
    return _find_chunk(image, name, _PNG)[0] >= 0


def png_gamma_is_srgb(image: Any) -> Any:
    """Return whether gAMA and cHRM, if a PNG has them, are near those of sRGB: bool.

    "Near" is that of ``shardmill.infra.codecs.color.stated``.
    """
    near = []
    for name, stated, most in (
        (b"gAMA", [1 / 2.2], SAME_GAMMA / 2.2),
        (b"cHRM", SRGB, SAME_CHROMATICITY),
    ):
        wanted = [round(value * _PNG_ONE) for value in stated]
        at, length = _find_chunk(image, name, _PNG)
        content = Bytes(tf.strings.substr(image, tf.maximum(at, 0), tf.where(at < 0, _int(0), length)))
        values = content.number(4 * np.arange(len(wanted)), 4, True)
        near.append((at < 0) | tf.reduce_all(tf.abs(values - wanted) <= int(most * _PNG_ONE)))
    return near[0] & near[1]


_PNG_ONE = 100_000  # in gAMA and cHRM


def gif_is_opaque(image: Any) -> Any:
    """Return whether the first frame of a GIF fills it and has no transparent pixels: bool."""
    data = Bytes(image)
    packed = data.at(_int(10))
    colours = tf.where(packed >= 128, 3 * 2 ** (packed % 8 + 1), _int(0))
    screen = [data.number(at, 2, False) for at in (6, 8)]

    # Extensions begin with 0x21 and their kind, then come their parts, each with its length, 0 for the end.
    def undecided(position: Any, _in_parts: Any, _opaque: Any) -> Any:
        return (position < data.size) & (data.at(position) != 0x2C)

    def step(position: Any, in_parts: Any, opaque: Any) -> tuple[Any, Any, Any]:
        length = data.at(position)
        is_control = ~in_parts & (data.at(position + 1) == 0xF9)
        shows_through = is_control & (data.at(position + 3) % 2 == 1)
        after = tf.where(in_parts, position + 1 + length, position + 2)
        return after, ~in_parts | (length != 0), opaque & ~shows_through

    def searched(position: Any, in_parts: Any, opaque: Any) -> Any:
        return in_parts | undecided(position, in_parts, opaque)

    begin = (13 + colours, tf.constant(False), tf.constant(True))
    position, _, opaque = tf.while_loop(searched, step, begin)
    sides = [data.number(position + at, 2, False) for at in (5, 7)]
    return opaque & (sides[0] == screen[0]) & (sides[1] == screen[1])


class _Chunks(NamedTuple):
    """How a file of chunks is laid out.

    Attributes:
        first: offset of the first chunk (bytes).
        name_at, length_at: offsets of the name and of the length in a chunk (bytes).
        big: lengths are big-endian.
        beyond: bytes of a chunk besides its content; eight of them come before it.
    """

    first: int
    name_at: int
    length_at: int
    big: bool
    beyond: int


_PNG, _WEBP = _Chunks(8, 4, 0, True, 12), _Chunks(12, 0, 4, False, 8)


def _find_chunk(image: Any, name: bytes, chunks: _Chunks) -> tuple[Any, Any]:
    """Return the offset of the content of the first chunk ``name``, -1 without one, and its length: int64."""
    size = tf.cast(tf.strings.length(image), tf.int64)

    def undecided(position: Any, found_at: Any, _length: Any) -> Any:
        return (found_at < 0) & (position + 8 <= size)

    def step(position: Any, _found_at: Any, _length: Any) -> tuple[Any, Any, Any]:
        header = Bytes(tf.strings.substr(image, position, 8))
        length = header.number(chunks.length_at, 4, chunks.big)
        padding = 0 if chunks.big else length % 2  # chunks of RIFF begin at even places
        found = header.has(chunks.name_at, name)
        after = position + chunks.beyond + length + padding
        return after, tf.where(found, position + 8, _int(-1)), length

    _, found_at, length = tf.while_loop(undecided, step, (_int(chunks.first), _int(-1), _int(0)))
    return found_at, length


def _in_chunk(image: Any, chunk: tuple[Any, Any]) -> Any:
    """Return the orientation by the chunk that holds EXIF: int64, 1 to 8."""
    exif, length = chunk
    size = tf.cast(tf.strings.length(image), tf.int64)
    start = tf.clip_by_value(exif, _int(0), size)
    data = Bytes(tf.strings.substr(image, start, tf.minimum(length, _int(_SEARCHED_BYTES))))
    prefix = tf.where(data.has(0, _EXIF), _int(len(_EXIF)), _int(0))
    return _in_exif(data, tf.where(exif < 0, exif, prefix), data.size)


class Bytes:
    """Bytes that the graph reads numbers from, at computed positions. Beyond the end there are zeros."""

    def __init__(self, text: Any) -> None:
        self.size = tf.cast(tf.strings.length(text), tf.int64)
        self._values = tf.concat([tf.io.decode_raw(text, tf.uint8), tf.zeros([1], tf.uint8)], axis=0)

    def at(self, position: Any) -> Any:
        """Return the bytes at ``position``: int64 of its shape."""
        position = tf.convert_to_tensor(position, tf.int64)
        inside = (position >= 0) & (position < self.size)
        return tf.cast(tf.gather(self._values, tf.where(inside, position, self.size)), tf.int64)

    def number(self, position: Any, num_bytes: int, big: Any) -> Any:
        """Return the unsigned number at ``position``: int64. ``big``: it is big-endian."""
        worth = 256 ** np.arange(num_bytes)
        if isinstance(big, bool):
            factors = worth[::-1] if big else worth
        else:
            factors = tf.where(big, worth[::-1], worth)
        return tf.reduce_sum(self._run(position, num_bytes) * factors, axis=-1)

    def has(self, position: Any, text: bytes) -> Any:
        """Return whether the bytes at ``position`` are ``text``: bool of its shape."""
        return tf.reduce_all(self._run(position, len(text)) == list(text), axis=-1)

    def _run(self, position: Any, num_bytes: int) -> Any:
        """Return the bytes from ``position`` on: int64 of its shape, and one axis more."""
        first = tf.expand_dims(tf.convert_to_tensor(position, tf.int64), -1)
        return self.at(first + np.arange(num_bytes))


def _in_exif(data: Bytes, start: Any, end: Any) -> Any:
    """Return the orientation in the TIFF structure ``data[start:end]``; 1 if ``start`` is negative."""
    big = data.has(start, b"MM")
    magic = data.has(start + 2, b"\x00*") | data.has(start + 2, b"*\x00")
    sound = (start >= 0) & (big | data.has(start, b"II")) & magic
    directory = start + data.number(start + 4, 4, big)
    numbers = tf.range(tf.where(sound, data.number(directory, 2, big), _int(0)))
    entries = directory + 2 + 12 * numbers
    kind, count = data.number(entries + 2, 2, big), data.number(entries + 4, 4, big)
    # A value of up to four bytes stands in the entry itself, at its beginning.
    short = _is_one_of(kind, _SHORTS) & ((count == 1) | (count == 2))
    long = _is_one_of(kind, _LONGS) & (count == 1)
    value = tf.where(short, data.number(entries + 8, 2, big), data.number(entries + 8, 4, big))
    ours = (data.number(entries, 2, big) == _TAG) & (short | long) & (entries + 12 <= end)
    # If the tag comes twice the later one counts, as in Pillow.
    last = tf.reduce_max(tf.where(ours, numbers, _int(-1)))
    found = tf.reduce_sum(tf.where(ours & (numbers == last), value, _int(0)))
    return tf.where((found >= 1) & (found <= 8), found, _int(1))


def _int(value: int) -> Any:
    """Return a constant of the graph; int64, since operations do not mix it with other types."""
    return tf.constant(value, tf.int64)


def _is_one_of(value: Any, wanted: tuple[int, ...]) -> Any:
    return tf.reduce_any([value == each for each in wanted], axis=0)
