"""Masks inside archives and rows of files give the records that the same masks in folders give."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.compare import diff
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.examples import parse_whole_example
from shardmill.infra.format.known_features import MASK_URI
from shardmill.infra.format.records import iter_records
from tests.samples.images.masks import CLASSES, config, encoded, make_masked, painted
from tests.samples.preparing.prepared import rows, run
from tests.samples.sources.image_server import running_server, status, versioned

MASKS = {"classes": list(CLASSES)}


def masks_of(version: DatasetVersion) -> dict[str, bytes]:
    """Record id -> its stored mask."""
    found = {}
    for shard in version.manifest.shards:
        for _, _, payload in iter_records(version.storage, shard.path, version.manifest.container):
            record = parse_whole_example(payload)[0]
            assert record.mask is not None
            found[record.id] = record.mask
    return found


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_masked(tmp_path_factory.mktemp("masked") / "photos", 8)


@pytest.fixture(scope="module")
def wanted(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("root")
    run(folders, root, **config())
    return masks_of(Catalog(str(root)).open("d"))


def members(folders: Path, kind: str) -> dict[str, bytes]:
    """Name -> content, of images and masks in folders or side by side."""
    found = {}
    for path in sorted((folders / "images").iterdir()):
        mask = (folders / "masks" / path.name).read_bytes()
        images, masks = {
            "folders": (f"images/{path.name}", f"masks/{path.name}"),
            "mask": (f"{path.stem}.png", f"{path.stem}.mask.png"),
            "seg": (f"a/{path.stem}.png", f"a/{path.stem}.SEG.png"),
            "named": (f"{path.stem}.png", f"{path.stem}_labels.png"),
        }[kind]
        found |= {images: path.read_bytes(), masks: mask}
    return found


def write_tar(path: Path, contents: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def write_zip(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("name", "kind", "settings"),
    [
        ("a.tar", "folders", {}),
        ("a.zip", "folders", {}),
        ("a.tar", "mask", {}),
        ("a.tar.gz", "seg", {}),
        ("a.zip", "named", {"mask_suffix": "_labels"}),
    ],
)
def test_archives(
    folders: Path, wanted: dict[str, bytes], tmp_path: Path, name: str, kind: str, settings: dict[str, Any]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    write = write_zip if name.endswith(".zip") else write_tar
    write(source / name, members(folders, kind) | {"note.xyz": b"hello"})
    result = run(source, tmp_path / "root", **config(source={"kind": "archive", "masks": MASKS | settings}))
    version = Catalog(str(tmp_path / "root")).open("d")
    assert masks_of(version) == wanted
    assert verify(version).problems == []
    reasons = Counter(row["reason"] for row in rows(version).values())
    left = "sidecar" if kind in ("mask", "seg", "named") else "other_file"
    assert reasons == {None: 8, "mask": 8, left: 1}
    assert result["num_inputs"] == 17
    assert run(source, tmp_path / "root", **config(source={"kind": "archive", "masks": MASKS | settings}))[
        "unchanged"
    ]


def test_images_and_masks_in_archives_of_their_own_and_splits_by_name(
    folders: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    contents = members(folders, "folders")
    for at, split in enumerate(("train", "val")):
        (tmp_path / "source" / split).mkdir(parents=True)
        for folder in ("images", "masks"):
            some = {name.split("/")[1]: data for name, data in contents.items() if name.startswith(folder)}
            half = dict(list(some.items())[4 * at : 4 * at + 4])
            write_tar(tmp_path / "source" / split / f"{folder}.tar.gz", half)
    run(tmp_path / "source", tmp_path / "root", **config(source={"kind": "archive", "masks": MASKS}))
    version = Catalog(str(tmp_path / "root")).open("d")
    assert masks_of(version) == wanted
    assert {name: split.num_examples for name, split in version.manifest.splits.items()} == {
        "train": 4, "validation": 4,
    }  # fmt: skip


def test_members_are_accounted_for_and_later_versions_see_a_changed_mask(
    folders: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    source.mkdir()
    contents = members(folders, "mask")
    lost = dict(contents)
    del lost["000.mask.png"]
    del lost["001.png"]
    lost["002.mask.png"] = lost["002.mask.png"][:60]
    lost["003.mask.png"] = encoded(np.zeros((9, 9), np.uint8))
    lost["004.seg.png"] = lost["004.mask.png"]
    settings = config(source={"kind": "archive", "masks": MASKS}, failure_budget=1.0)
    write_tar(source / "a.tar", lost)
    run(source, root, **settings)
    catalog = Catalog(str(root))
    outcomes = {uri.partition("#")[2]: row["reason"] for uri, row in rows(catalog.open("d")).items()}
    assert {name: reason for name, reason in outcomes.items() if reason not in (None, "mask")} == {
        "000.png": "no_mask",
        "001.mask.png": "mask_without_image",
        "002.png": "broken_mask",
        "003.png": "other_mask_size",
        "004.png": "several_masks",
        "004.mask.png": "several_masks",
        "004.seg.png": "several_masks",
    }
    changed = dict(contents)
    numbers = painted(5)[1]
    numbers[60:70, :30] = 2
    changed["005.mask.png"] = encoded(numbers)
    write_tar(source / "a.tar", changed)
    os.utime(source / "a.tar", (2e9, 2e9))
    second = run(source, root, **settings)
    assert second["num_encoded"] == 6, "five that were lost, and the one whose mask has changed"
    found = masks_of(catalog.open("d"))
    assert [record_id for record_id in wanted if found[record_id] != wanted[record_id]] == [
        row["record_id"] for uri, row in rows(catalog.open("d")).items() if uri.endswith("#005.png")
    ]
    (change,) = diff(catalog.open("d@1"), catalog.open("d@2")).features_changed.examples
    assert change.uri == "a.tar#005.png"


def write_parquet(path: Path, folders: Path, *, is_struct: bool, masks: list[bytes | None]) -> None:
    images = [image.read_bytes() for image in sorted((folders / "images").iterdir())]

    def column(values: list[bytes | None]) -> pa.Array:
        if not is_struct:
            return pa.array(values, pa.binary())
        structs = [None if value is None else {"bytes": value, "path": None} for value in values]
        return pa.array(structs, pa.struct({"bytes": pa.binary(), "path": pa.string()}))

    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"image": column(list(images)), "seg": column(masks)}), path, row_group_size=3)


@pytest.mark.parametrize("is_struct", [False, True])
def test_rows_of_parquet(folders: Path, wanted: dict[str, bytes], tmp_path: Path, is_struct: bool) -> None:
    masks: list[bytes | None] = [path.read_bytes() for path in sorted((folders / "masks").iterdir())]
    source, root = tmp_path / "source", tmp_path / "root"
    write_parquet(source / "train.parquet", folders, is_struct=is_struct, masks=masks)
    settings = config(
        source={"kind": "parquet", "columns": {"mask": "seg"}, "masks": MASKS}, failure_budget=1.0
    )
    run(source, root, **settings)
    catalog = Catalog(str(root))
    version = catalog.open("d")
    assert masks_of(version) == wanted
    assert verify(version).problems == []
    index = version.index(version.manifest.shards[0])
    assert index[MASK_URI][0].as_py() == index["source_uri"][0].as_py().replace("#row=", "#mask=")
    assert run(source, root, **settings)["unchanged"]
    # The same file beside a new one: nothing of it is read again.
    write_parquet(source / "z.parquet", folders, is_struct=is_struct, masks=[None, b"no mask", *masks[2:]])
    second = run(source, root, **settings)
    assert second["known"]["files"] == 8
    reasons = {uri: row["reason"] for uri, row in rows(catalog.open("d")).items() if uri.startswith("z.")}
    assert reasons["z.parquet#row=0000000"] == "no_mask"
    assert reasons["z.parquet#row=0000001"] == "broken_mask"
    assert Counter(reasons.values())["same_bytes"] == 6
    settings["source"]["masks"] = MASKS | {"unmasked": "leave_out"}
    run(source, root, **settings)
    row = rows(catalog.open("d"))["z.parquet#row=0000000"]
    assert (row["outcome"], row["reason"]) == ("filtered", "unmasked")


def test_pascal_voc_is_recognised_with_its_lists(tmp_path: Path) -> None:
    """Palette PNGs, masks of some images only, and lists that give the splits."""
    source, root = tmp_path / "VOC2012", tmp_path / "root"
    palette = [0, 0, 0, 128, 0, 0, 0, 128, 0] + [0] * (3 * 252) + [224, 224, 192]
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (source / folder).mkdir(parents=True)
    for number in range(6):
        pixels, numbers = painted(number)
        Image.fromarray(pixels).save(source / "JPEGImages" / f"2007_{number}.jpg", quality=95)
        if number < 5:
            mask = Image.fromarray(numbers).convert("P")
            mask = Image.fromarray(numbers, "P") if mask.mode != "P" else mask
            mask.putdata(numbers.ravel().tolist())
            mask.putpalette(palette)
            mask.save(source / "SegmentationClass" / f"2007_{number}.png")
    lists = {
        "train.txt": "2007_0\n2007_1\n2007_4\n",
        "val.txt": "2007_2\n2007_3\n2007_4\n",
        "trainval.txt": "",
    }
    for name, text in lists.items():
        (source / "ImageSets" / "Segmentation" / name).write_text(text)
    settings = config(source={"kind": "auto", "masks": MASKS}, failure_budget=1.0)
    found = settled(
        JobRequest(
            source=str(source), dataset="d", root=str(root), config=PrepareConfig.model_validate(settings)
        )
    ).config.source
    assert found.kind == "masks"
    assert found.masks.image_sets == "ImageSets/Segmentation"
    assert found.masks.unmasked == "leave_out"
    settings["source"] = found.model_dump(exclude_defaults=True)
    run(source, root, **settings)
    version = Catalog(str(root)).open("d")
    outcomes = rows(version)
    splits = {uri: row["split"] for uri, row in outcomes.items() if row["outcome"] == "record"}
    assert splits == {
        "JPEGImages/2007_0.jpg": "train",
        "JPEGImages/2007_1.jpg": "train",
        "JPEGImages/2007_2.jpg": "validation",
        "JPEGImages/2007_3.jpg": "validation",
    }
    assert outcomes["JPEGImages/2007_4.jpg"]["reason"] == "broken_row"
    assert outcomes["JPEGImages/2007_4.jpg"]["message"] == "it is in train.txt and in val.txt"
    assert outcomes["JPEGImages/2007_5.jpg"]["reason"] == "unmasked"
    assert outcomes["ImageSets/Segmentation/train.txt"]["reason"] in ("table", "ignored")
    assert outcomes["SegmentationClass/2007_4.png"]["reason"] == "mask"
    lists = [
        labels for shard in version.manifest.shards for labels in version.index(shard)["labels"].to_pylist()
    ]
    assert set().union(*lists) == {0, 1, 2}, "255 is no class"


def test_masks_on_the_web_are_fetched_with_their_images(
    folders: Path, wanted: dict[str, bytes], tmp_path: Path
) -> None:
    source, root = tmp_path / "lists", tmp_path / "root"
    source.mkdir()
    table, columns = {"file": "t.csv"}, {"image": "url", "mask": "mask"}
    urls = {"allow_private_hosts": True, "backoff_seconds": 0.01, "retries": 0}
    settings = config(
        source={"kind": "urls", "table": table, "columns": columns, "urls": urls, "masks": MASKS},
        failure_budget=1.0,
    )
    catalog = Catalog(str(root))
    with running_server() as server:
        pairs = []
        for path in sorted((folders / "images").iterdir()):
            both = (f"{folder}/{path.name}" for folder in ("images", "masks"))
            given = [
                server.give(f"/{name}", versioned((folders / name).read_bytes(), '"1"')) for name in both
            ]
            pairs.append((given[0], given[1]))
        images = [image for image, _ in pairs]
        lines = [f"{image},{mask}" for image, mask in pairs]
        lines[0] = f"{images[0]},{server.give('/gone', status(404))}"
        lines[1] = f"{images[1]},"
        lines[2] = f"{images[2]},no address"
        lines[3] = f"{server.give('/lost', status(404))},{pairs[3][1]}"
        (source / "t.csv").write_text("\n".join(["url,mask", *lines]))
        run(source, root, **settings)
        found = rows(catalog.open("d"))
        reasons = {uri.removeprefix(server.url): row["reason"] for uri, row in found.items()}
        assert {uri: reason for uri, reason in reasons.items() if reason != "mask"} == {
            "/images/000.png": "missing_mask", "/images/001.png": "no_mask",
            "/images/002.png": "missing_mask", "/lost": "not_found", "/gone": "not_found",
            **{f"/images/00{number}.png": None for number in range(4, 8)},
        }  # fmt: skip
        assert "not_found" not in found[images[0]]["message"]
        assert "/gone: " in found[images[0]]["message"]
        assert "of its mask: " in found[images[2]]["message"]
        assert found[pairs[3][1]]["message"] == "the mask of an image that is not read"
        kept = masks_of(catalog.open("d"))
        assert kept == {record_id: wanted[record_id] for record_id in kept}
        assert len(kept) == 4
        assert run(source, root, **settings)["unchanged"]
        changed = painted(5)[1]
        changed[60:70, :30] = 2
        server.give("/masks/005.png", versioned(encoded(changed), '"2"'))
        later = run(source, root, **settings)
        assert (later["version"], later["num_encoded"]) == (2, 1)
        (change,) = diff(catalog.open("d@1"), catalog.open("d@2")).features_changed.examples
        assert change.uri == images[5]
        smaller = run(source, root, **{**settings, "image": {"encoding": "png", "size": 24}})
        assert (smaller["version"], smaller["num_records"]) == (3, 4)
    assert verify(catalog.open("d")).problems == []
