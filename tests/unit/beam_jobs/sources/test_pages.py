"""Pages as images: their rows, and their bytes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra import codecs
from shardmill.infra.errors import ConfigError
from tests.samples.images.dicoms import dicom, slice_of
from tests.samples.images.photos import jpeg, write

CONFIG = PrepareConfig.model_validate({"image": {"pages": "images"}})
STACK = np.arange(3 * 16 * 20, dtype=np.uint16).reshape(3, 16, 20) * 60


@pytest.fixture
def source(tmp_path: Path) -> SourceFolder:
    frames = np.stack([slice_of(0, 0), slice_of(0, 1)])
    write(
        tmp_path,
        {"a/photo.jpg": jpeg(1), "b/frames": dicom(frames, BitsStored=12), "b/cut.tif": b"II*\x00\x08"},
    )
    tifffile.imwrite(tmp_path / "a" / "scan.TIF", STACK, photometric="minisblack")
    return SourceFolder(str(tmp_path))


def listed(source: SourceFolder) -> tuple[Listing, dict[str, dict[str, Any]]]:
    listing = list_inputs(source, CONFIG)
    return listing, {row["uri"]: row for row in listing.table.to_pylist()}


def test_rows(source: SourceFolder) -> None:
    _, rows = listed(source)
    scan = [f"a/scan.TIF#page=000000{number}" for number in range(3)]
    assert list(rows) == [
        "a/photo.jpg", "a/scan.TIF", *scan, "b/cut.tif", "b/frames", "b/frames#page=0000000",
        "b/frames#page=0000001",
    ]  # fmt: skip
    assert [rows[uri]["reason"] for uri in ("a/photo.jpg", "a/scan.TIF", "b/cut.tif", "b/frames")] == [
        None, "row_file", "truncated", "row_file",
    ]  # fmt: skip
    assert {(rows[uri]["label"], rows[uri]["group"], rows[uri]["container"]) for uri in scan} == {
        ("a", "a/scan.TIF", "a/scan.TIF")
    }
    assert rows["b/frames#page=0000001"]["group"] is None, "the file tells its series"


def test_pages_are_read(source: SourceFolder) -> None:
    listing, _ = listed(source)
    reader = pickle.loads(pickle.dumps(open_reader(source, CONFIG)))
    read = {file.uri: codecs.decode(reader.read(file), 1) for file in file_refs(listing.to_read())}
    for number in range(3):
        pixels = read[f"a/scan.TIF#page=000000{number}"].pixels[:, :, 0]
        np.testing.assert_array_equal(pixels, STACK[number] >> 8)
    assert read["b/frames#page=0000001"].pixels.shape == (40, 48, 1)
    assert read["a/photo.jpg"].source.format == "jpeg"


def test_a_file_that_changed_is_not_read(source: SourceFolder, tmp_path: Path) -> None:
    listing, _ = listed(source)
    page = next(file for file in file_refs(listing.to_read()) if file.container == "a/scan.TIF")
    tifffile.imwrite(tmp_path / "a" / "scan.TIF", STACK[::-1], photometric="minisblack")
    with pytest.raises(SourceFault) as caught:
        open_reader(source, CONFIG).read(page)
    assert caught.value.reason == "changed"


def test_members_have_no_pages(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.arange(2))
    config = PrepareConfig.model_validate({"image": {"pages": "images"}, "source": {"kind": "arrays"}})
    with pytest.raises(ConfigError, match="files of their own"):
        list_inputs(SourceFolder(str(tmp_path)), config)
