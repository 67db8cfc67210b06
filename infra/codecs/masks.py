"""Segmentation masks: images whose pixels say which class each pixel of another image shows.

A mask is read without loss: its samples are numbers or colours that stand for classes (``ClassValues``). It
is stored as a grey PNG of class numbers, of 8 or 16 bits. The largest number of the type is no class: it
marks pixels that belong to none, and what is around a padded image.

To people a mask is shown as a colour for each class, those of Pascal VOC (Everingham et al. 2010) without
black: the bits of a number, three at a time from the lowest, become the highest bits of red, green and blue.
So neighbouring numbers differ most, and a class has the same colour in every picture.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from shardmill.infra.codecs.formats import ImageRejected, Pixels, SourceFacts, check_format
from shardmill.infra.codecs.geometry import Geometry
from shardmill.infra.codecs.pillow.decode import decode_samples

Numbers = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
# Returns the number of each value, or _UNKNOWN: int32 [H, W].
_Find = Callable[[npt.NDArray[Any]], npt.NDArray[np.int32]]

_LOSSLESS_FORMATS = ("png", "tiff", "bmp", "gif")
_SHOWN = 5  # unknown values in a message
_PNG_LEVEL = 6
_UNKNOWN = -1
_PIXELS_AT_ONCE = 1 << 18  # each takes some 40 bytes while its class is looked up


@dataclass(frozen=True)
class ClassValues:
    """The values or colours of masks that stand for each class.

    Attributes:
        of_class: values of each class, by its number; a colour is 0xRRGGBB.
        ignored: values of pixels that belong to no class.
        in_color: masks are in colour, and values are colours.
        ignores_unknown: all other values are ignored too.
        ignore: stored number of pixels that belong to no class: the largest of 8 or of 16 bits.
    """

    of_class: tuple[tuple[int, ...], ...]
    ignored: tuple[int, ...] = ()
    in_color: bool = False
    ignores_unknown: bool = False
    ignore: int = 255

    @property
    def dtype(self) -> type[np.uint8] | type[np.uint16]:
        """The type of stored class numbers."""
        return np.uint8 if self.ignore == np.iinfo(np.uint8).max else np.uint16


def decode_mask(data: bytes, max_pixels: int, in_color: bool) -> tuple[npt.NDArray[Any], SourceFacts]:
    """Decode the samples of a mask, turned upright if the file says how.

    Args:
        data: the file.
        max_pixels: refuse larger masks by their header.
        in_color: return the colours of a mask with a palette, not the indexes.

    Returns:
        uint8 or uint16 [H, W, 1], or uint8 [H, W, 3] of a mask in colour, and the facts about the file.

    Raises:
        ImageRejected: the file is not a whole mask, or of a format that may change pixels ("lossy_mask").
    """
    found = check_format(data)
    if found not in _LOSSLESS_FORMATS:
        raise ImageRejected(
            "lossy_mask", f"a {found.upper()} may have changed the numbers of pixels; save masks as PNG"
        )
    if found == "tiff":
        from shardmill.infra.codecs.tiff.decode import decode_tiff_samples

        return decode_tiff_samples(data, max_pixels, in_color)
    return decode_samples(data, found, max_pixels, in_color)


def class_numbers(samples: npt.NDArray[Any], values: ClassValues) -> Numbers:
    """Return the class of each pixel: uint8 or uint16 [H, W], ``values.ignore`` where there is none.

    Args:
        samples: uint8 or uint16 [H, W, 1], or uint8 [H, W, 3].
        values: value of each class in masks.

    Raises:
        ImageRejected: a value stands for no class ("unknown_mask_value").
    """
    find = _in_color(values) if values.in_color else _in_table(values, samples.dtype)
    result = np.empty(samples.shape[:2], values.dtype)
    strange = _StrangeValues(values.in_color)
    rows = max(1, _PIXELS_AT_ONCE // max(1, samples.shape[1]))
    for start in range(0, len(samples), rows):
        codes = _codes(samples[start : start + rows], values)
        found = find(codes)
        unknown = found == _UNKNOWN
        if unknown.any():
            if not values.ignores_unknown:
                strange.add(codes[unknown])
            found[unknown] = values.ignore
        result[start : start + rows] = found
    if strange.num_pixels:
        raise ImageRejected("unknown_mask_value", str(strange))
    return cast(Numbers, result)


def _in_color(values: ClassValues) -> _Find:
    """Return a function from colours to class numbers, by binary search."""
    known, numbers = _lookup(values)

    def find(codes: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        places = np.minimum(np.searchsorted(known, codes), max(0, len(known) - 1))
        return np.where(known[places] == codes, numbers[places], np.int32(_UNKNOWN))

    return find


def _in_table(values: ClassValues, dtype: np.dtype[Any]) -> _Find:
    """Return a function from numbers of a type to class numbers, by a table of all numbers of the type."""
    known, numbers = _lookup(values)
    table = np.full(1 << 16 if dtype == np.uint16 else 1 << 8, _UNKNOWN, np.int32)
    fits = known < len(table)
    table[known[fits]] = numbers[fits]
    return lambda codes: table[codes]


def _codes(samples: npt.NDArray[Any], values: ClassValues) -> npt.NDArray[Any]:
    """Return the values of pixels as one number each: [H, W]."""
    if samples.shape[2] == 1:
        if values.in_color:
            samples = np.repeat(samples, 3, axis=2)
        else:
            return samples[:, :, 0]
    if values.in_color:
        red, green, blue = (samples[:, :, at].astype(np.int32) for at in range(3))
        return red << 16 | green << 8 | blue
    if not (samples == samples[:, :, :1]).all():
        raise ImageRejected(
            "unknown_mask_value", "it is in colour, and source.masks.classes gives classes by numbers"
        )
    return samples[:, :, 0]


def _lookup(values: ClassValues) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return the known values, rising, and the number that each becomes."""
    pairs = [(value, number) for number, group in enumerate(values.of_class) for value in group]
    pairs += [(value, values.ignore) for value in values.ignored]
    known, numbers = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
    return np.ascontiguousarray(known), numbers.astype(np.int32)


class _StrangeValues:
    """Collects values that stand for no class, for a message.

    Attributes:
        num_pixels: that have such a value.
    """

    def __init__(self, in_color: bool) -> None:
        self.num_pixels = 0
        self._in_color = in_color
        self._seen = np.zeros(1 << 24 if in_color else 1 << 16, np.bool_)

    def add(self, codes: npt.NDArray[Any]) -> None:
        self.num_pixels += len(codes)
        self._seen[codes] = True

    def __str__(self) -> str:
        found = np.flatnonzero(self._seen).tolist()
        shown = [f"#{value:06x}" if self._in_color else str(value) for value in found[:_SHOWN]]
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        return (
            f"{self.num_pixels:,} of its pixels have values that stand for no class: {', '.join(shown)}{more}"
        )


def fit_mask(numbers: Numbers, to: Geometry, ignore: int) -> Numbers:
    """Cut and scale a mask like its image, and pad it like its image.

    Args:
        numbers: [H, W], upright.
        to: window, scale and place on the canvas.
        ignore: number of the pixels around it.

    Returns:
        [h, w] of the same type.
    """
    top, left, height, width = to.window
    scaled = _scale_mask(numbers[top : top + height, left : left + width], to.scaled)
    if to.canvas == to.scaled:
        return cast(Numbers, scaled)
    whole = np.full(to.canvas, ignore, numbers.dtype)
    top, left = to.offset
    whole[top : top + to.scaled[0], left : left + to.scaled[1]] = scaled
    return cast(Numbers, whole)


def _scale_mask(numbers: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
    """Scale a mask by nearest neighbour.

    A pixel of the result has the class of the pixel that its centre lies in, or below and to the right of
    its centre.

    Args:
        numbers: [H, W].
        size: h, w (pixels).

    Returns:
        [h, w] of the same type.
    """
    rows, columns = (
        (2 * np.arange(new, dtype=np.int64) + 1) * old // (2 * new)
        for old, new in zip(numbers.shape, size, strict=True)
    )
    return np.asarray(numbers[rows[:, np.newaxis], columns])


def encode_mask(numbers: Numbers) -> bytes:
    """Encode class numbers, uint8 or uint16 [H, W], as a grey PNG of 8 or 16 bits."""
    sink = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(numbers)).save(sink, "PNG", compress_level=_PNG_LEVEL)
    return sink.getvalue()


def decode_stored_mask(data: bytes) -> Numbers:
    """Decode a stored mask: uint8 or uint16 [H, W].

    Raises:
        ImageRejected: the bytes are no grey PNG of 8 or 16 bits.
    """
    numbers = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
    if numbers is None or numbers.ndim != 2 or numbers.dtype not in (np.uint8, np.uint16):
        raise ImageRejected("corrupt", "not a grey PNG of 8 or 16 bits")
    return cast(Numbers, numbers)


def classes_shown(numbers: Numbers, ignore: int) -> tuple[list[int], list[int]]:
    """Return the classes of a mask, rising, and the number of pixels of each; ``ignore`` is no class."""
    counts = np.bincount(numbers.reshape(-1))[:ignore]
    present = np.flatnonzero(counts)
    return present.tolist(), counts[present].tolist()


_BITS = 8
_SHARE = 0.55  # share of the color in a pixel that has a class


def class_colors(num_classes: int) -> Pixels:
    """Return the color of each class: uint8 [C, 3]. Of more than 255 classes some have the same color."""
    numbers = np.arange(num_classes) % ((1 << _BITS) - 1) + 1
    colors = np.zeros((num_classes, 3), np.uint8)
    for bit in range(_BITS):
        for channel in range(3):
            colors[:, channel] |= ((numbers >> channel & 1) << (_BITS - 1 - bit)).astype(np.uint8)
        numbers >>= 3
    return colors


def legend(classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the name and the color (#rrggbb) of each class."""
    colors = class_colors(len(classes)).tolist()
    return [
        (name, f"#{red:02x}{green:02x}{blue:02x}")
        for name, (red, green, blue) in zip(classes, colors, strict=True)
    ]


def lay_over(pixels: Pixels, mask: npt.NDArray[Any], num_classes: int) -> Pixels:
    """Scale a mask to its image, and lay the colors of its classes over the image.

    Args:
        pixels: uint8 [H, W, 1 or 3].
        mask: integers [h, w], the class of each pixel; a pixel with a number behind the last class is not
            colored.
        num_classes: the number of classes.

    Returns:
        uint8 [H, W, 3].
    """
    base = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    numbers = _scale_mask(mask, pixels.shape[:2])
    has_class = (numbers < num_classes)[:, :, np.newaxis]
    colors = class_colors(num_classes)[np.minimum(numbers, num_classes - 1)]
    mixed = np.rint(_SHARE * colors + (1 - _SHARE) * base).astype(np.uint8)
    return np.where(has_class, mixed, base)
