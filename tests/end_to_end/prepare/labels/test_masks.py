"""Masks through the whole of prepare: where stored images show them, what is refused, later versions."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.dry_run import dry_run
from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.reasons import REASONS
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.summaries import forecast_lines
from shardmill.infra.codecs.masks import decode_stored_mask
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.compare import diff
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.examples import parser_code
from shardmill.infra.format.known_features import MASK_BYTES, MASK_PIXELS, MASK_SHA256, MASK_URI
from tests.samples.datasets.contents import indexed_records
from tests.samples.images.masks import (
    CLASSES,
    COLORS,
    IGNORED,
    add_pair,
    config,
    encoded,
    make_masked,
    painted,
)
from tests.samples.preparing.prepared import rows, run, stored_bytes


def opened(root: Path, number: int = 1) -> DatasetVersion:
    return Catalog(str(root)).open(f"d@{number}")


def records(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    """File -> its stored pixels and mask, and the row of the index."""
    found = {}
    for _, row, record, features in indexed_records(version):
        assert record.mask is not None
        pixels = np.asarray(Image.open(io.BytesIO(record.image)).convert("RGB"))
        mask = decode_stored_mask(record.mask)
        assert features["labels"].values == row["labels"]
        found[row["source_uri"]] = row | {"pixels": pixels, "mask": mask}
    return found


def shown(pixels: np.ndarray) -> np.ndarray:
    """The class that each pixel's color is nearest to."""
    far = np.abs(pixels[:, :, np.newaxis].astype(int) - COLORS).sum(-1)
    nearest = far.argmin(-1)
    return np.where(nearest == 3, IGNORED, nearest)


@pytest.mark.parametrize(
    "image",
    [
        {"resize": "none"},
        {"resize": "short", "size": 48},
        {"resize": "crop", "size": 64},
        pytest.param({"resize": "pad", "height": 80, "width": 64}, marks=pytest.mark.slow),
        pytest.param({"resize": "long", "size": 200, "upscale": True}, marks=pytest.mark.slow),
        pytest.param({"resize": "crop", "size": 256}, marks=pytest.mark.slow),
    ],
)
def test_masks_follow_their_images(tmp_path: Path, image: dict[str, Any]) -> None:
    source = make_masked(tmp_path / "photos", 8)
    settings = config(image={"encoding": "png", "background": "#fafafa", **image})
    run(source, tmp_path / "root", **settings)
    version = opened(tmp_path / "root")
    assert verify(version).problems == []
    manifest = version.manifest
    assert (manifest.label_kind, manifest.classes) == ("mask", list(CLASSES))
    assert manifest.mask is not None
    assert manifest.mask.ignore == IGNORED
    found = records(version)
    assert len(found) == 8
    for row in found.values():
        agrees = shown(row["pixels"]) == row["mask"]
        assert agrees.all() if image["resize"] == "none" else agrees.mean() > 0.93
        classes, counts = np.unique(row["mask"][row["mask"] != IGNORED], return_counts=True)
        assert (row["labels"], row[MASK_PIXELS]) == (classes.tolist(), counts.tolist())
    if image["resize"] == "none":
        assert found["images/000.png"]["mask"].tolist() == painted(0)[1].tolist()


def test_every_input_is_accounted_for(tmp_path: Path) -> None:
    source = make_masked(tmp_path / "photos", 10)
    (source / "masks" / "000.png").unlink()
    (source / "images" / "001.png").unlink()
    (source / "masks" / "002.png").write_bytes(encoded(painted(2)[1])[:60])
    shutil.copy(source / "masks" / "004.png", source / "masks" / "004.tif")
    pixels = painted(3, 50, 40)[1]
    (source / "masks" / "003.png").write_bytes(encoded(pixels))
    add_pair(source, "bad_value", 20, mask=np.full((96, 128), 9, np.uint8))
    add_pair(source, "lossy", 21)
    (source / "masks" / "lossy.png").unlink()
    (source / "masks" / "lossy.jpg").write_bytes(encoded(painted(21)[1], "JPEG"))
    add_pair(source, "broken", 22)
    (source / "images" / "broken.png").write_bytes(b"no image at all")
    (source / "notes.xyz").write_text("read me")
    run(source, tmp_path / "root", **config(failure_budget=0.7))
    version = opened(tmp_path / "root")
    assert verify(version).problems == []
    found = rows(version)
    reasons = {uri: row["reason"] for uri, row in found.items() if row["reason"]}
    expected = {
        "images/000.png": "no_mask",
        "masks/001.png": "mask_without_image",
        "images/002.png": "broken_mask",
        "images/003.png": "other_mask_size",
        "images/004.png": "several_masks",
        "masks/004.png": "several_masks",
        "masks/004.tif": "several_masks",
        "images/bad_value.png": "unknown_mask_value",
        "images/lossy.png": "lossy_mask",
        "images/broken.png": "unknown_format",
        "notes.xyz": "other_file",
    }
    masks = {uri for uri, reason in reasons.items() if reason == "mask"}
    assert {uri: reason for uri, reason in reasons.items() if uri not in masks} == expected
    assert {uri for uri, row in found.items() if row["outcome"] == "record"} == {
        f"images/{number:03}.png" for number in range(5, 10)
    }
    assert {"masks/005.png", "masks/002.png", "masks/lossy.jpg"} <= masks
    assert set(reasons.values()) <= set(REASONS)
    assert "masks/003.png: 40×50 pixels" in found["images/003.png"]["message"]


def test_a_table_names_masks(tmp_path: Path) -> None:
    source = make_masked(tmp_path / "photos", 8)
    (source / "masks").rename(source / "made")
    lines = ["path,mask,split"]
    lines += [f"images/{n:03}.png,made/{n:03}.png,{'train' if n < 6 else 'test'}" for n in range(6)]
    lines += ["images/006,./made//006,val", "images/007.png,made/nothing.png,test", ",made/000.png,"]
    (source / "labels.csv").write_text("\n".join(lines))
    settings = config()
    settings["source"] = {
        "kind": "table",
        "table": {"file": "labels.csv"},
        "columns": {"mask": "mask", "split": "split"},
        "masks": settings["source"]["masks"],
    }
    run(source, tmp_path / "root", **settings)
    version = opened(tmp_path / "root")
    assert verify(version).problems == []
    found = rows(version)
    assert Counter(row["reason"] for row in found.values()) == {
        None: 7, "mask": 7, "missing_mask": 1, "not_in_table": 1, "bad_path": 1, "table": 1,
    }  # fmt: skip
    assert found["made/007.png"]["reason"] == "not_in_table"
    assert "there is no file made/nothing.png" in found["images/007.png"]["message"]
    assert version.manifest.splits["validation"].num_examples == 1
    assert records(version)["images/006.png"][MASK_URI] == "made/006.png"


@pytest.mark.parametrize("layout", ["above", "below"])
def test_folders_give_splits(tmp_path: Path, layout: str) -> None:
    source = tmp_path / "photos"
    for number, split in enumerate(("train", "train", "val", "test")):
        if layout == "above":
            add_pair(source / split, f"{number}", number)
        else:
            add_pair(source, f"{split}/{number}", number)
    run(source, tmp_path / "root", **config())
    splits = opened(tmp_path / "root").manifest.splits
    assert {name: split.num_examples for name, split in splits.items()} == {
        "train": 2, "validation": 1, "test": 1,
    }  # fmt: skip


def test_pascal_voc_and_cityscapes_folders(tmp_path: Path) -> None:
    source = tmp_path / "VOC2012"
    for number in range(4):
        pixels, numbers = painted(number)
        for path, data in {
            f"JPEGImages/2007_{number}.jpg": encoded(pixels, "JPEG"),
            f"SegmentationClass/2007_{number}.png": encoded(numbers),
            f"city/leftImg8bit/train/a/a_{number}_leftImg8bit.png": encoded(pixels[:, ::-1]),
            f"city/gtFine/train/a/a_{number}_gtFine_labelIds.png": encoded(numbers[:, ::-1]),
            f"city/gtFine/train/a/a_{number}_gtFine_color.png": encoded(pixels),
        }.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(data)
    (source / "JPEGImages" / "unlabelled.jpg").write_bytes(encoded(painted(9)[0], "JPEG"))
    masks = {"classes": list(CLASSES), "unmasked": "leave_out"}
    voc = {"images": "JPEGImages", "masks": "SegmentationClass"}
    run(source, tmp_path / "voc", **config(source={"kind": "masks", "masks": masks | voc}))
    assert opened(tmp_path / "voc").manifest.accounting.num_records == 4
    found = rows(opened(tmp_path / "voc"))
    assert found["JPEGImages/unlabelled.jpg"]["reason"] == "unmasked"
    city = {
        "images": "leftImg8bit", "masks": "gtFine",
        "image_suffix": "_leftImg8bit", "mask_suffix": "_gtFine_labelIds",
    }  # fmt: skip
    run(source, tmp_path / "city", **config(source={"kind": "masks", "masks": masks | city}))
    version = opened(tmp_path / "city")
    assert version.manifest.splits["train"].num_examples == 4
    assert version.manifest.accounting.num_quarantined == 0


def test_a_changed_mask_makes_a_new_version(tmp_path: Path) -> None:
    source, root = make_masked(tmp_path / "photos"), tmp_path / "root"
    first = run(source, root, **config())
    assert run(source, root, **config())["unchanged"]
    changed = painted(3)[1]
    changed[50:60, :30] = 2
    (source / "masks" / "000.png").write_bytes(encoded(changed))
    add_pair(source, "more", 50)
    second = run(source, root, **config())
    assert (second["version"], second["num_encoded"]) == (2, 2)
    assert second["known"]["files"] == first["num_records"] - 1
    version = opened(root, 2)
    assert verify(version).problems == []
    assert 2 in records(version)["images/000.png"]["labels"]
    found = diff(opened(root), version)
    (change,) = found.features_changed.examples
    assert (change.uri, change.feature, found.features_changed.count) == ("images/000.png", MASK_SHA256, 1)
    assert change.after == hashlib.sha256(encoded(changed)).hexdigest() != change.before
    page = (root / "d" / str(version.manifest.report)).read_text()
    assert "with another mask, other boxes or features" in page
    before, after = records(opened(root)), records(version)
    for uri in before.keys() - {"images/000.png"}:
        assert before[uri]["mask"].tolist() == after[uri]["mask"].tolist()
    # A renamed source has the same contents; nothing is decoded.
    source = source.rename(tmp_path / "moved")
    third = run(source, root, **config())
    assert (third["num_encoded"], third["known"]["contents"]) == (0, 13)
    assert verify(opened(root, 3)).problems == []
    # Other classes change what masks store.
    settings = config()
    settings["source"]["masks"] = {"classes": {"ground": 0, "thing": [1, 2]}}
    fourth = run(source, root, **settings)
    assert fourth["num_encoded"] == 13
    version = opened(root, 4)
    assert version.manifest.classes == ["ground", "thing"]
    assert verify(version).problems == []
    compact(Catalog(str(root)), "d")
    assert verify(opened(root, version.version)).problems == []


def test_copies_with_other_masks_are_one_record_and_a_conflict(tmp_path: Path) -> None:
    source = make_masked(tmp_path / "photos", 6)
    for folder in ("images", "masks"):
        shutil.copy(source / folder / "000.png", source / folder / "same.png")
        shutil.copy(source / folder / "000.png", source / folder / "other.png")
    other = np.asarray(Image.open(source / "masks" / "000.png")).copy()
    other[10:20, 10:20] = 2
    (source / "masks" / "other.png").write_bytes(encoded(other))
    run(source, tmp_path / "root", **config())
    version = opened(tmp_path / "root")
    assert version.manifest.accounting.num_duplicates == 2
    (conflict,) = version.manifest.label_conflicts
    assert conflict.uris == ["images/000.png", "images/other.png", "images/same.png"]
    second = run(source, tmp_path / "root", **config(seed=2))
    assert second["num_encoded"] <= 1
    assert verify(opened(tmp_path / "root", 2)).problems == []


def test_the_same_bytes_whatever_the_workers(tmp_path: Path) -> None:
    source = make_masked(tmp_path / "photos", 20)
    run(source, tmp_path / "a", **config(runner={"processes": 1, "block_images": 4}))
    run(source, tmp_path / "b", **config(runner={"processes": 2, "block_images": 7}))
    assert stored_bytes(tmp_path / "a") == stored_bytes(tmp_path / "b")


def test_a_dataset_of_classes_becomes_one_of_masks(tmp_path: Path) -> None:
    source, root = make_masked(tmp_path / "photos", 8), tmp_path / "root"
    run(source, root, **config(source={"kind": "image_folder", "layout": "classes"}))
    run(source, root, **config())
    run(source, root, **config(source={"kind": "image_folder", "layout": "classes"}))
    for number in (1, 2, 3):
        assert verify(opened(root, number)).problems == []
    assert [opened(root, number).manifest.label_kind for number in (1, 2, 3)] == ["class", "mask", "class"]


def test_exports_hold_the_masks(tmp_path: Path) -> None:
    run(make_masked(tmp_path / "photos", 6), tmp_path / "root", **config())
    version = opened(tmp_path / "root")
    found = {row["id"]: row["mask"] for row in records(version).values()}
    for name in ("webdataset", "parquet", "huggingface", "folder"):
        export(version, tmp_path / name, name)
    tars = {}
    for path in (tmp_path / "webdataset").glob("*.tar"):
        with tarfile.open(path) as tar:
            tars |= {
                member.name.partition(".")[0]: decode_stored_mask(tar.extractfile(member).read())  # type: ignore[union-attr]
                for member in tar
                if member.name.endswith(".seg.png")
            }
    plain = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "parquet").glob("*.parquet")])
    hub = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "huggingface/data").iterdir()])
    in_parquet = dict(zip(plain["id"].to_pylist(), plain["mask"].to_pylist(), strict=True))
    in_hub = {row["id"]: row["mask"]["bytes"] for row in hub.select(["id", "mask"]).to_pylist()}
    in_folder = {path.stem: path.read_bytes() for path in (tmp_path / "folder").glob("*/masks/*.png")}
    for masks in (in_parquet, in_hub, in_folder):
        assert masks.keys() == found.keys()
        for number, data in masks.items():
            assert (decode_stored_mask(data) == found[number]).all()
    assert {key: mask.tolist() for key, mask in tars.items()} == {
        key: mask.tolist() for key, mask in found.items()
    }
    # An export as image files is a source again.
    run(tmp_path / "folder", tmp_path / "again", **config(image={"encoding": "png", "resize": "none"}))
    again = records(opened(tmp_path / "again"))
    assert sorted(row["labels"] for row in again.values()) == sorted(
        row["labels"] for row in records(version).values()
    )
    with pytest.raises(UsageError, match="a mask of classes for each image"):
        export(version, tmp_path / "tfds", "tfds")


def test_a_parser_reads_masks(tmp_path: Path) -> None:
    run(make_masked(tmp_path / "photos", 3), tmp_path / "root", **config())
    code = parser_code(opened(tmp_path / "root").manifest)
    assert '"mask/encoded": tf.io.FixedLenFeature([], tf.string)' in code
    assert '"mask/pixels": tf.io.RaggedFeature(tf.int64)' in code
    compile(code, "parser", "exec")


def test_a_dry_run_counts_the_bytes_of_masks(tmp_path: Path) -> None:
    for number in range(12):
        noise = np.random.default_rng(number).integers(0, len(CLASSES), (96, 128)).astype(np.uint8)
        add_pair(tmp_path / "source", f"{number:02}", number, mask=noise)
    settings = PrepareConfig.model_validate(config(image={"encoding": "png", "size": 96}))
    request = JobRequest(
        source=str(tmp_path / "source"), dataset="d", root=str(tmp_path / "root"), config=settings
    )
    foreseen = dry_run(request)
    first = foreseen["first_inputs"][0]
    assert (first["uri"], first["mask"]) == ("images/00.png", "masks/00.png")
    assert (first["height"], first["width"]) == (96, 128)
    assert sum(first["shares"].values()) == pytest.approx(1, abs=1e-3)
    run(tmp_path / "source", tmp_path / "root", **settings.model_dump(exclude_defaults=True))
    stored = [row["stored_bytes"] + row[MASK_BYTES] for row in records(opened(tmp_path / "root")).values()]
    assert foreseen["sample"]["stored_bytes"] == round(sum(stored) / len(stored))


def test_a_dry_run_tells_of_masks_that_would_be_left_out(tmp_path: Path) -> None:
    source = make_masked(tmp_path / "source", 3)
    (source / "masks" / "001.png").write_bytes(encoded(np.full((96, 128), 9, np.uint8)))
    settings = PrepareConfig.model_validate(config())
    foreseen = dry_run(JobRequest(source=str(source), dataset="d", root=str(tmp_path), config=settings))
    said = "unknown_mask_value: its mask masks/001.png: 12,288 of its pixels have values that stand for "
    said += "no class: 9"
    assert foreseen["first_inputs"][1]["problem"] == said
    assert foreseen["sample"]["left_out"] == {"unknown_mask_value": 1}
    lines = "\n".join(forecast_lines(foreseen))
    assert f"images/001.png: mask masks/001.png, left out: {said}" in lines
    assert re.search(r"images/000.png: mask masks/000.png, 64×48 pixels stored: ground \d", lines)
    assert "left out of these: unknown_mask_value 1" in lines


def test_the_report_shows_masks_over_their_images_with_a_legend(tmp_path: Path) -> None:
    run(make_masked(tmp_path / "photos", 4), tmp_path / "root", **config())
    version = opened(tmp_path / "root")
    page = (tmp_path / "root" / "d" / str(version.manifest.report)).read_text()
    legend = dict(re.findall(r'fill="(#[0-9a-f]{6})"/></svg>([a-z]+)', page))
    assert legend == {"#800000": "ground", "#008000": "disc", "#808000": "box"}
    jpegs = [base64.b64decode(data) for data in re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)]
    assert len(jpegs) >= 4
    for data in jpegs:
        pixels = np.asarray(Image.open(io.BytesIO(data))).astype(int)
        of_ground = np.abs(pixels - (0.55 * np.array([128, 0, 0]) + 0.45 * COLORS[0])).sum(2) < 60
        of_disc = np.abs(pixels - (0.55 * np.array([0, 128, 0]) + 0.45 * COLORS[1])).sum(2) < 60
        assert 0.4 < of_ground.mean() < 0.95
        assert of_disc.mean() > 0.03
