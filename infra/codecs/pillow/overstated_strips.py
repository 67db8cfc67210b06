"""Decode TIFFs whose strips are said to be longer than the file.

Some writers state the size of a compressed strip before its compression. libtiff then refuses to read it,
although its data is all there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from infra.codecs.formats import ImageRejected
from infra.codecs.structure.tiff_strips import bytes_beyond_end

_PADDINGS = (b"\x00", b"\xff")


class _HasPixels(Protocol):
    @property
    def pixels(self) -> npt.NDArray[Any]: ...


Picture = TypeVar("Picture", bound=_HasPixels)


def decode_overstated_strips(
    image: Image.Image, data: bytes, decode: Callable[[bytes], Picture]
) -> Picture | None:
    """Decode a TIFF whose last strips reach beyond the end of the file, if nothing of the picture is missing.

    The file is decoded twice, padded with zeros and with ones. If the pixels are the same, the padding is no
    part of them.

    Args:
        image: opened, not loaded.
        data: the file.
        decode: decodes a whole file.

    Returns:
        The picture, or None if it depends on the missing bytes, or is compressed in another way than by LZW,
        deflate or PackBits.
    """
    missing = bytes_beyond_end(dict(getattr(image, "tag_v2", {})), len(data))
    if missing is None:
        return None
    try:
        first, second = (decode(data + padding * missing) for padding in _PADDINGS)
    except ImageRejected:
        return None
    return first if np.array_equal(first.pixels, second.pixels) else None
