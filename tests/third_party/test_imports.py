"""Datasets that other libraries wrote become ours, with the bytes and labels that these libraries read."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.infra.codecs import decode
from shardmill.infra.codecs.metadata import without_metadata
from shardmill.infra.dataset.catalog import Catalog
from tests.samples.preparing.imports import imported, records_by_split, stored_images
from tests.third_party.test_readers import interpreter

pytestmark = pytest.mark.slow


def written(python: Path, program: str, *arguments: str) -> list[Any]:
    """Run a program that writes a dataset below the folder of its first argument; what it read of it."""
    done = subprocess.run(
        [python, Path(__file__).with_name(program), *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[Any] = pickle.loads((Path(arguments[0]) / "read.pickle").read_bytes())
    return found


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_what_tensorflow_datasets_wrote(tmp_path: Path, file_format: str) -> None:
    if file_format == "array_record":
        pytest.importorskip("array_record.python.array_record_module")
    python = interpreter("TensorFlow Datasets", "tfds")
    read = written(python, "write_tfds.py", str(tmp_path), file_format)
    result = imported(tmp_path / "animals" / "1.0.0", tmp_path / "datasets")
    assert result["stored_from"] == {"planes": 0, "pixels": 0, "source": 40}
    assert result["quarantine"] == {}
    version = Catalog(str(tmp_path / "datasets")).open("d")
    # TensorFlow writes a density of 300 dpi into the header; such metadata are removed.
    own = {image: without_metadata(image, "jpeg") for _, _, image, *_ in read}
    assert stored_images(version) == {(split, label, own[image]) for split, label, image, *_ in read}
    for image, stored in own.items():
        assert np.array_equal(decode(image).pixels, decode(stored or b"").pixels)
    names = ("caption", "tags", "score", "place_height", "objects_bbox")
    features = {
        row["id"]: tuple(row[name] for name in names)
        for row in version.scan(["id", *names]).to_table().to_pylist()
    }
    by_image = {own[image]: tuple(more) for _, _, image, *more in read}
    for records in records_by_split(version).values():
        for record in records:
            assert features[record.id] == by_image[record.image]


def test_what_webdataset_wrote(tmp_path: Path) -> None:
    read = written(interpreter("WebDataset", "webdataset"), "write_webdataset.py", str(tmp_path))
    result = imported(tmp_path / "shards", tmp_path / "datasets")
    assert result["stored_from"] == {"planes": 0, "pixels": 0, "source": 36}
    version = Catalog(str(tmp_path / "datasets")).open("d")
    splits = {"train": "train", "val": "validation"}
    assert stored_images(version) == {(splits[split], str(label), image) for split, label, image in read}
