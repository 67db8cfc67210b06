"""From a folder to a batch in every stored form and size, with and without libturbojpeg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.codecs.jpeg.turbojpeg import library
from shardmill.infra.dataset.version import DatasetVersion
from tests.samples.images.photos import jpeg, make_photos, rotated_jpeg, write
from tests.samples.preparing.runs import run


def index_rows(version: DatasetVersion) -> list[dict[str, Any]]:
    files = [version.storage.local_path(shard.index_path) for shard in version.manifest.shards]
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def prepared(tmp_path: Path, **image: Any) -> Dataset:
    source = make_photos(tmp_path / "source", {"a": 6, "b": 6}, 90, 120)
    run(source, tmp_path / "root", image=image, splits={"train": 1, "validation": 0, "test": 0})
    return open_dataset("d", root=tmp_path / "root")


@pytest.mark.parametrize(
    ("image", "size"),
    [
        ({"encoding": "jpeg", "size": 48}, (48, 64)),
        ({"encoding": "webp", "size": 48, "resample": "lanczos"}, (48, 64)),
        pytest.param({"encoding": "png", "size": 48, "resize": "long"}, (36, 48), marks=pytest.mark.slow),
        ({"encoding": "png", "size": 48, "channels": 1}, (48, 64)),
        ({"encoding": "raw", "resize": "crop", "height": 40, "width": 30}, (40, 30)),
        ({"encoding": "raw", "resize": "pad", "size": 64, "channels": 1, "background": "#102030"}, (64, 64)),
        pytest.param(
            {"encoding": "jpeg", "resize": "crop", "size": 128, "upscale": True},
            (128, 128),
            marks=pytest.mark.slow,
        ),
        ({"encoding": "jpeg", "resize": "none", "passthrough": True}, (90, 120)),
    ],
)
def test_from_a_folder_to_a_batch(tmp_path: Path, image: dict[str, Any], size: tuple[int, int]) -> None:
    dataset = prepared(tmp_path, **image)
    assert dataset.version.manifest.image_encoding == image["encoding"]
    rows = index_rows(dataset.version)
    assert {(row["height"], row["width"]) for row in rows} == {size}
    assert len({row["perceptual_hash"] for row in rows}) == len(rows) == 12
    channels = image.get("channels", 3)
    assert {len(row["pixel_mean"]) for row in rows} == {len(row["pixel_std"]) for row in rows} == {channels}
    side = min(size)
    ((images, _),) = dataset.tf("train", image_size=side, batch_size=12, training=False)
    if size[0] == size[1]:  # the batch is all of each image
        found = images.numpy().astype(float).mean(axis=(0, 1, 2))
        told = np.mean([row["pixel_mean"] for row in rows], axis=0)
        assert np.abs(found - told).max() < 1.5
    if image.get("passthrough"):
        kept = {row["source_uri"].rpartition(".")[2]: row["stored_from"] for row in rows}
        assert kept == {"jpg": "source", "png": "pixels"}


def test_passthrough_keeps_the_picture_and_not_what_is_said_of_it(tmp_path: Path) -> None:
    plain = jpeg(1)
    secret = b"\xff\xfe\x00\x12found at 51.5 N\x00"
    with_comment = plain[:2] + secret + plain[2:]
    source = write(tmp_path / "source", {"a/1.jpg": with_comment, "a/2.jpg": rotated_jpeg(2, 6)})
    config = {"image": {"resize": "none", "passthrough": True}, "shards": {"container": "none"}}
    run(source, tmp_path / "root", **config)
    rows = {row["source_uri"]: row for row in index_rows(open_dataset("d", root=tmp_path / "root").version)}
    assert rows["a/1.jpg"]["stored_from"] == "source"
    assert rows["a/2.jpg"]["stored_from"] == ("planes" if library() else "pixels"), "it lies on its side"
    stored = b"".join(
        path.read_bytes() for path in (tmp_path / "root").rglob("*.tfrecord*") if path.is_file()
    )
    assert b"51.5 N" not in stored
    assert plain[-200:] in stored
