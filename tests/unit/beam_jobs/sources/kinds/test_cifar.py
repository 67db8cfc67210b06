"""Batches of CIFAR and STL-10: pixels as NumPy sees them, and pickles that are not executed."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.cifar import list_inputs, open_reader
from shardmill.beam_jobs.sources.kinds.cifar.pickles import plain_pickle
from shardmill.beam_jobs.sources.rows.row_files import RowFileBroken
from shardmill.infra.errors import ConfigError
from tests.samples.images.photos import write

CONFIG = PrepareConfig.model_validate({"source": {"kind": "cifar"}})
PIXELS = np.random.default_rng(7).integers(0, 256, (2, 3072), np.uint8)


def rows(source: Path) -> dict[str, tuple[str | None, str | None]]:
    """URI -> label and reason."""
    table = list_inputs(SourceFolder(str(source)), CONFIG).table.to_pylist()
    return {row["uri"]: (row["label"], row["reason"]) for row in table}


def pixels(source: Path, container: str, position: int) -> np.ndarray:
    """The image of a row."""
    folder = SourceFolder(str(source))
    mtime_ns = (source / container).stat().st_mtime_ns
    file = FileRef(f"{container}#row={position:07}", 0, mtime_ns, container, position)
    return np.asarray(Image.open(io.BytesIO(open_reader(folder, CONFIG, None).read(file))))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_pickles_of_python_3(tmp_path: Path, protocol: int) -> None:
    document = {"data": PIXELS, "labels": [3, 0]}
    write(tmp_path, {"data_batch_1": pickle.dumps(document, protocol)})
    found = rows(tmp_path)
    assert found["data_batch_1#row=0000000"] == ("3", None)
    expected = PIXELS[1].reshape(3, 32, 32).transpose(1, 2, 0)
    np.testing.assert_array_equal(pixels(tmp_path, "data_batch_1", 1), expected)


def test_binary_rows_and_columns(tmp_path: Path) -> None:
    write(tmp_path, {"test_batch.bin": b"".join(bytes([9]) + row.tobytes() for row in PIXELS)})
    expected = PIXELS[1].reshape(3, 32, 32).transpose(1, 2, 0)
    np.testing.assert_array_equal(pixels(tmp_path, "test_batch.bin", 1), expected)
    of_stl = np.random.default_rng(8).integers(0, 256, (2, 3, 96, 96), np.uint8)
    write(tmp_path, {"train_X.bin": of_stl.tobytes(), "train_y.bin": bytes([1, 2])})
    np.testing.assert_array_equal(pixels(tmp_path, "train_X.bin", 1), of_stl[1].transpose(2, 1, 0))


@pytest.mark.parametrize("order", ["<", ">"])
def test_labels_in_an_array_have_its_byte_order(tmp_path: Path, order: str) -> None:
    document = {"data": PIXELS, "labels": np.array([3, 0], f"{order}i4")}
    write(tmp_path, {"data_batch_1": pickle.dumps(document, 4)})
    assert rows(tmp_path)["data_batch_1#row=0000000"] == ("3", None)


@pytest.mark.parametrize("names", [b"cat\n\ndog\n", b"cat\ncat\n", b"caf\xe9\n"])
def test_files_of_names_that_tell_no_numbers_are_refused(tmp_path: Path, names: bytes) -> None:
    batch = b"".join(bytes([1]) + row.tobytes() for row in PIXELS)
    write(tmp_path, {"data_batch_1.bin": batch, "batches.meta.txt": b"cat\ndog\n\n"})
    assert rows(tmp_path)["data_batch_1.bin#row=0000000"] == ("dog", None)
    write(tmp_path, {"batches.meta.txt": names})
    with pytest.raises(ConfigError, match=r"batches\.meta\.txt does not name the classes"):
        rows(tmp_path)


class TooShort:
    """It is unpickled as an array of three numbers, with the bytes of one."""

    def __reduce__(self) -> tuple[object, ...]:
        make, values, _ = np.zeros(3, np.int32).__reduce__()
        return make, values, (1, (3,), np.dtype(np.int32), False, bytes(4))


class Hostile:
    """Unpickling it would make a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.place),)


def test_a_pickle_is_not_executed(tmp_path: Path) -> None:
    place = tmp_path / "made"
    good = pickle.dumps({"data": PIXELS, "labels": [3, 0]}, 4)
    bad = {
        "data_batch_2": pickle.dumps({"data": Hostile(place), "labels": [1]}, 4),
        "data_batch_3": good[:-900],
        "data_batch_4": pickle.dumps({"data": PIXELS.T.copy().T, "labels": [3, 0]}, 4),
        "data_batch_5": pickle.dumps({"data": PIXELS.astype(np.int32), "labels": [3, 0]}, 4),
        "data_batch_6": pickle.dumps({"data": PIXELS, "labels": [3]}, 4),
        "data_batch_7": pickle.dumps([1], 4),
        "data_batch_8": b"",
        "data_batch_9": pickle.dumps({"data": PIXELS, "labels": TooShort()}, 4),
        "test_batch.bin": bytes(3074),
    }
    write(tmp_path, {"data_batch_1": good, **bad})
    found = rows(tmp_path)
    assert {uri for uri, (_, reason) in found.items() if reason == "broken_container"} == set(bad)
    assert len(found) == 2 + 1 + len(bad)
    assert not place.exists()
    with pytest.raises(RowFileBroken, match="mkdir, which is not executed"):
        plain_pickle(bad["data_batch_2"])
