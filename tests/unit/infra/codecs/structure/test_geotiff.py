"""Transforms of GeoTIFFs against GDAL, which wrote the files."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
import tifffile

from shardmill.infra.codecs.metadata import read_metadata
from shardmill.infra.codecs.structure.exif import read_exif
from shardmill.infra.codecs.structure.geotiff import KEYS, no_data_in, transform_in

PIXELS = np.zeros((2, 7, 5), np.float32)


def by_gdal(**how: Any) -> bytes:
    rasterio = pytest.importorskip("rasterio", reason="GDAL is missing: GeoTIFF is NOT compared")
    with warnings.catch_warnings(), rasterio.MemoryFile() as memory:
        warnings.simplefilter("ignore")  # of a file without places
        with memory.open(driver="GTiff", height=7, width=5, count=2, dtype="float32", **how) as file:
            file.write(PIXELS)
        return bytes(memory.getbuffer())


CORNER = (499_980.25, 10.5, 0.0, 4_200_000.125, 0.0, -9.75)
TURNED = (1.0 / 3, 0.1, 0.02, 47.1, -0.03, -0.1)


@pytest.mark.parametrize("numbers", [CORNER, TURNED], ids=["scale", "matrix"])
@pytest.mark.parametrize("crs", ["EPSG:32633", "EPSG:4326"])
@pytest.mark.parametrize(
    "more", [{}, {"BIGTIFF": "YES"}, {"ENDIANNESS": "BIG"}], ids=["", "BigTIFF", "big-endian"]
)
def test_what_gdal_wrote(numbers: tuple[float, ...], crs: str, more: dict[str, str]) -> None:
    affine = pytest.importorskip("affine")
    data = by_gdal(transform=affine.Affine.from_gdal(*numbers), crs=crs, nodata=-9999.5, **more)
    found = read_metadata(data)
    assert found.geo_transform is not None
    np.testing.assert_array_equal([float(number) for number in found.geo_transform.split()], numbers)
    assert found.geo_crs == crs
    assert no_data_in(read_exif(data).values) == -9999.5


def test_a_file_without_places() -> None:
    assert read_metadata(by_gdal()).geo_transform is None
    sink = io.BytesIO()
    tifffile.imwrite(sink, PIXELS[0])
    found = read_metadata(sink.getvalue())
    assert (found.geo_transform, found.geo_crs) == (None, None)


def test_centres_of_pixels() -> None:
    # As GDAL reads it: half a pixel up and to the left.
    keys = np.array([1, 1, 0, 1, 1025, 0, 1, 2], "<u2").tobytes()
    values = {
        KEYS: keys,
        33550: np.array([10.0, 20.0, 0.0]).tobytes(),
        33922: np.array([0.0, 0, 0, 100, 200, 0]).tobytes(),
    }
    assert transform_in(values, "<") == (95.0, 10.0, 0.0, 210.0, 0.0, -20.0)


def test_damaged_tags_tell_nothing() -> None:
    for damaged in ({KEYS: b"\x01"}, {33550: b"abc", 33922: b""}, {34264: b"\xff" * 128}, {42113: b"none"}):
        assert transform_in(damaged, "<") is None
        assert no_data_in(damaged) is None
