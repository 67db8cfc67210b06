"""Where the pixels of a GeoTIFF lie on the earth (OGC 19-008), as its tags say.

The transform is GDAL's: the coordinates of the upper left corner of the upper left pixel, and of a step to
the right and down. ``x = t[0] + column * t[1] + row * t[2]``, ``y = t[3] + column * t[4] + row * t[5]``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

PIXEL_SCALE, TIE_POINT, TRANSFORMATION, KEYS, NO_DATA = 33550, 33922, 34264, 34735, 42113
TAGS = frozenset({PIXEL_SCALE, TIE_POINT, TRANSFORMATION, KEYS, NO_DATA})

_RASTER_TYPE, _GEOGRAPHIC, _PROJECTED = 1025, 2048, 3072
_PIXEL_IS_POINT = 2
_FIRST_CODE, _USER_DEFINED = 1024, 32767
_NUMBERS_OF_TIE_POINT = 6


def transform_in(values: Mapping[int, bytes], order: str) -> tuple[float, ...] | None:
    """Return the six numbers of the transform; None if the tags tell none, or several tie points.

    Args:
        values: the bytes of TAGS.
        order: "<" or ">" of struct.
    """
    matrix, scale, tie = (
        _doubles(values.get(tag), order) for tag in (TRANSFORMATION, PIXEL_SCALE, TIE_POINT)
    )
    if len(matrix) == 16:
        found = (matrix[3], matrix[0], matrix[1], matrix[7], matrix[4], matrix[5])
    elif len(scale) >= 2 and len(tie) == _NUMBERS_OF_TIE_POINT:
        column, row, _, x, y, _ = tie
        found = (x - column * scale[0], scale[0], 0.0, y + row * scale[1], 0.0, -scale[1])
    else:
        return None
    if _keys(values, order).get(_RASTER_TYPE) == _PIXEL_IS_POINT:  # coordinates are of the centres of pixels
        x, right, down, y, right_y, down_y = found
        found = (x - (right + down) / 2, right, down, y - (right_y + down_y) / 2, right_y, down_y)
    return found if np.isfinite(found).all() else None


def crs_in(values: Mapping[int, bytes], order: str) -> str | None:
    """Return the coordinate reference system, such as "EPSG:32633"; None if the file names none by a code."""
    keys = _keys(values, order)
    code = keys.get(_PROJECTED, keys.get(_GEOGRAPHIC, 0))
    return f"EPSG:{code}" if _FIRST_CODE <= code < _USER_DEFINED else None


def no_data_in(values: Mapping[int, bytes]) -> float | None:
    """Return the number that stands for no data (GDAL_NODATA); None if there is none."""
    try:
        return float(values[NO_DATA].partition(b"\x00")[0])
    except (KeyError, ValueError):
        return None


def _keys(values: Mapping[int, bytes], order: str) -> dict[int, int]:
    """Return the keys of a GeoTIFF whose value is a short number."""
    data = values.get(KEYS, b"")
    shorts = struct.unpack(f"{order}{len(data) // 2}H", data[: len(data) // 2 * 2])
    entries = zip(*(shorts[4 + part :: 4] for part in range(4)), strict=False)
    return {key: value for key, place, count, value in entries if (place, count) == (0, 1)}


def _doubles(data: bytes | None, order: str) -> tuple[float, ...]:
    return struct.unpack(f"{order}{len(data or b'') // 8}d", (data or b"")[: len(data or b"") // 8 * 8])
