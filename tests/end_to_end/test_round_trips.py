"""Exports of every kind of labels come back with the same images, labels and splits, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.digests import sha256_hex
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.known_features import labels_feature
from tests.samples.datasets.contents import indexed_records
from tests.samples.datasets.published import coloured, publish
from tests.samples.images.masks import CLASSES, encoded, painted
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.imports import imported
from tests.samples.preparing.prepared import run

COUNTS = {"train": 6, "val": 2, "test": 2}
TAGS: tuple[tuple[int, ...], ...] = ((0, 1), (2,), ())
KEPT: dict[str, Any] = {"resize": "none", "passthrough": True}
COMPARED = ("label", "labels", "targets", "objects/bbox", "objects/label", "objects/is_crowd", "mask/pixels")


def from_a_table(place: Path, header: str, cells: Callable[[int], str], **source: Any) -> Path:
    """Prepare photographs of given splits with one more column of labels."""
    images = {f"{split}{row}.jpg": jpeg(50 * number + row)
              for number, (split, count) in enumerate(COUNTS.items()) for row in range(count)}  # fmt: skip
    write(place / "photos", images)
    rows = [f"{name},{name.rstrip('.jpg0123456789')},{cells(row)}" for row, name in enumerate(images)]
    (place / "photos.csv").write_text("\n".join([f"path,split,{header}", *rows, ""]))
    source["columns"] = {"split": "split", **source.get("columns", {})}
    source |= {"kind": source.get("kind", "table"), "table": {"file": str(place / "photos.csv")}}
    run(place / "photos", place / "root", source=source, image={"size": 32})
    return place / "root"


def with_several(place: Path) -> Path:
    """Some of the images have no label at all."""
    pictures = [
        replace(one, label_name="", values=TAGS[row % 3])
        for row, one in enumerate(coloured({"train": {"a": 6}, "validation": {"a": 2}, "test": {"a": 2}}))
    ]
    classes, feature = ["hat", "späte Eule", "cap"], labels_feature(None)
    publish(place / "root", pictures, name="d", classes=classes, feature=feature)
    return place / "root"


def with_numbers(place: Path) -> Path:
    columns = {"target_columns": ["a", "b"]}
    return from_a_table(place, "a,b", lambda row: f"{row / 3:.6f},{-row}", columns=columns)


def with_classes(place: Path) -> Path:
    return from_a_table(place, "label", lambda row: ("red fox", "owl")[row % 2])


def without_labels(place: Path) -> Path:
    return from_a_table(place, "x", lambda row: "1", labels="none")


def with_masks(place: Path) -> Path:
    files = {}
    for number, (split, count) in enumerate(COUNTS.items()):
        for row in range(count):
            pixels, classes = painted(50 * number + row, 48, 64)
            files[f"{split}/images/{split}{row}.jpg"] = encoded(pixels, "JPEG")
            files[f"{split}/masks/{split}{row}.png"] = encoded(classes)
    source = {"kind": "masks", "masks": {"classes": list(CLASSES)}}
    run(write(place / "photos", files), place / "root", source=source, image={"size": 32})
    return place / "root"


def with_objects(place: Path) -> Path:
    files = {}
    for number, (split, count) in enumerate(COUNTS.items()):
        for row in range(count):
            files[f"{split}/{split}{row}.jpg"] = jpeg(50 * number + row)
    write(place / "photos", files)
    boxes = [f"{name},1,2,20,30,{('cat', 'dog')[row % 2]}" for row, name in enumerate(sorted(files))]
    (place / "boxes.csv").write_text("\n".join(["path,xmin,ymin,xmax,ymax,label", *boxes, ""]))
    objects = {"annotations": [{"file": str(place / "boxes.csv")}]}
    run(
        place / "photos", place / "root", source={"kind": "box_table", "objects": objects}, image={"size": 32}
    )
    return place / "root"


MADE = {
    "class": with_classes,
    "multi": with_several,
    "targets": with_numbers,
    "none": without_labels,
    "mask": with_masks,
    "objects": with_objects,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], DatasetVersion]:
    """The version with labels of a kind."""
    roots: dict[str, Path] = {}

    def version(kind: str) -> DatasetVersion:
        if kind not in roots:
            roots[kind] = MADE[kind](tmp_path_factory.mktemp(kind))
        return Catalog(str(roots[kind])).open("d")

    return version


def contents(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    """SHA-256 of each stored image -> its split, labels by their names, boxes and mask."""
    names, found = version.manifest.classes, {}
    for shard, row, record, _ in indexed_records(version):
        said = {name: row[name] for name in COMPARED if name in row}
        for name in ("labels", "objects/label"):
            if name in said:
                said[name] = [names[number] for number in said[name]]
        said["label"] = names[row["label"]] if version.manifest.label_kind == "class" else None
        said["split"], said["mask"] = shard.split, record.mask
        found[sha256_hex(record.image)] = said
    return found


def again(folder: Path, root: Path, form: str, **source: Any) -> DatasetVersion:
    """Prepare an export, with further settings of the source; every image is copied as it is."""
    if form in ("tfds", "webdataset"):
        result = imported(folder, root, source=source)
    else:
        result = run(folder, root, image=KEPT, source={"kind": "parquet", **source})
    assert result["stored_from"]["source"] == result["num_records"] == sum(COUNTS.values())
    return Catalog(str(root)).open("d")


# What must be said, where the export alone does not tell it: settings of the source.
ASKED: dict[str, dict[str, Any]] = {
    "multi": {"labels": "multi"},
    "targets": {"labels": "targets"},
    "none": {"labels": "none"},
    "mask": {"columns": {"mask": "mask"}, "masks": {"classes": list(CLASSES)}},
}
REFUSED = {("webdataset", "objects"), ("parquet", "objects"), ("huggingface", "objects"), ("tfds", "mask")}


FORMS = ("webdataset", "tfds", "parquet", "huggingface")
SLOW = {("huggingface", kind) for kind in ("class", "multi", "none")} | {
    ("parquet", "none"),
    ("tfds", "class"),
}


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param(form, kind, marks=[pytest.mark.slow] if (form, kind) in SLOW else [])
        for form in FORMS
        for kind in MADE
    ],
)
def test_an_export_comes_back_or_is_refused(
    form: str, kind: str, made: Callable[[str], DatasetVersion], tmp_path: Path
) -> None:
    before, out = made(kind), tmp_path / "out"
    if (form, kind) == ("tfds", "mask"):
        with pytest.raises(UsageError, match="cannot say so"):
            export(before, out, form)
        return
    export(before, out, form)
    settings = ASKED.get(kind) if form in ("parquet", "huggingface") else None
    if settings is not None or (form, kind) in REFUSED:
        with pytest.raises((UsageError, ConfigError)) as refusal:
            again(out, tmp_path / "refused", form)
        assert "--set source.labels=" in (refusal.value.remedy or "")
        if settings is None:
            return
    after = again(out, tmp_path / "root", form, **(settings or {}))
    assert contents(after) == contents(before)
