"""Boxes through the whole of prepare: where they are drawn in the stored images, and in later versions."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.flows.cli.datasets.print_version import print_version
from shardmill.infra.codecs.formats import apply_orientation
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.compare import diff
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.features import are_same, feature_values
from shardmill.infra.format.known_features import BOXES
from tests.samples.datasets.contents import indexed_records
from tests.samples.images.photos import picture
from tests.samples.preparing.prepared import rows, run
from tests.samples.sources.columns import with_columns

HEIGHT, WIDTH = 96, 160
NAMES = ("cat", "dog", "hat")
COLORS = {"cat": (255, 0, 0), "dog": (0, 255, 0), "hat": (0, 0, 255)}

Drawn = tuple[str, tuple[int, int, int, int]]  # name, ymin, xmin, ymax, xmax


@dataclass
class Annotated:
    """A folder of images with drawn boxes, and its COCO file."""

    folder: Path
    images: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, drawn: list[Drawn], orientation: int = 1, **size: int) -> None:
        """Draw boxes into an image whose file is turned by an orientation; boxes are of the file's pixels."""
        number = len(self.images)
        pixels = picture(number + 1, HEIGHT, WIDTH) // 4 + 90
        for kind, (top, left, bottom, right) in drawn:
            pixels[max(top, 0) : bottom, max(left, 0) : right] = COLORS[kind]
            bbox = [left, top, right - left, bottom - top]
            entry = {"image_id": number, "category_id": NAMES.index(kind), "bbox": bbox}
            self.annotations.append(entry)
        exif = Image.Exif()
        exif[0x0112] = orientation
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, "PNG", exif=exif)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(sink.getvalue())
        sizes = {"height": HEIGHT, "width": WIDTH} | size
        self.images.append({"id": number, "file_name": name, **sizes})

    def write(self) -> Path:
        categories = [{"id": at, "name": name} for at, name in enumerate(NAMES)]
        document = {"images": self.images, "annotations": self.annotations, "categories": categories}
        (self.folder / "instances.json").write_text(json.dumps(document))
        return self.folder

    def write_table(self, name: str) -> Path:
        """Write the boxes as a table with a row an object, relative to the files as Open Images has them."""
        with (self.folder / name).open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"])
            for entry in self.annotations:
                left, top, width, height = entry["bbox"]
                image = self.images[entry["image_id"]]["file_name"].removesuffix(".png")
                wide, high = (left / WIDTH, (left + width) / WIDTH), (top / HEIGHT, (top + height) / HEIGHT)
                writer.writerow([image, NAMES[entry["category_id"]], *wide, *high])
        return self.folder


def config(**image: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "coco", "objects": {"annotations": "instances.json"}},
        "image": {"encoding": "png", "size": 48, **image},
        "groups": {"near_duplicates": False},
        "failure_budget": 0.2,
        "shards": {"num_shards": 2},
    }


def records(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    """File -> its stored pixels, and the features of the record."""
    found = {}
    for _, row, record, features in indexed_records(version):
        pixels = np.asarray(Image.open(io.BytesIO(record.image)).convert("RGB"))
        assert are_same(features, feature_values(version.manifest.extra_features, row))
        found[row["source_uri"]] = {"pixels": pixels, **{name: row[name] for name in features}}
    return found


def box_around(pixels: np.ndarray, color: tuple[int, int, int]) -> list[float]:
    """The edges of all that is nearly of a colour, relative to the image."""
    near = np.abs(pixels.astype(int) - color).max(-1) < 90
    high, wide = np.flatnonzero(near.any(1)), np.flatnonzero(near.any(0))
    height, width = near.shape
    return [high[0] / height, wide[0] / width, (high[-1] + 1) / height, (wide[-1] + 1) / width]


@pytest.fixture
def annotated(tmp_path: Path) -> Annotated:
    """Images of every orientation, with a box each and a second one on some."""
    made = Annotated(tmp_path / "photos")
    for orientation in range(1, 9):
        boxes: list[Drawn] = [(NAMES[orientation % 3], (10, 24, 50, 70))]
        if orientation % 2:
            boxes.append((NAMES[(orientation + 1) % 3], (60, 90, 200, 140)))
        made.add(f"{orientation}.png", boxes, orientation)
    made.add("none.png", [])
    return made


@pytest.mark.parametrize(
    "image",
    [
        {},
        {"resize": "crop", "upscale": True},
        pytest.param({"resize": "none"}, marks=pytest.mark.slow),
        pytest.param({"resize": "pad", "height": 64, "width": 48}, marks=pytest.mark.slow),
    ],
)
def test_boxes_are_where_the_stored_images_show_them(
    annotated: Annotated, tmp_path: Path, image: dict[str, Any]
) -> None:
    run(annotated.write(), tmp_path / "root", **config(**image))
    version = Catalog(str(tmp_path / "root")).open("d@1")
    assert verify(version).problems == []
    assert version.manifest.label_kind == "multi"
    classes = version.manifest.classes
    found = records(version)
    assert len(found) == 9
    num_boxes = 0
    for uri, record in found.items():
        boxes = np.array(record.get("objects/bbox", []), np.float64).reshape(-1, 4)
        names = [classes[number] for number in record.get("objects/label", [])]
        assert sorted({*record.get("labels", [])}) == sorted({*record.get("objects/label", [])})
        assert len(boxes) == len(names) == len(record.get("objects/is_crowd", []))
        pixels = 1 / np.tile(record["pixels"].shape[:2], 2)
        for box, name in zip(boxes, names, strict=True):
            assert (np.abs(box - box_around(record["pixels"], COLORS[name])) <= 1.5 * pixels).all(), uri
        num_boxes += len(boxes)
        shown = 2 if uri[0] in "1357" else 0 if uri == "none.png" else 1
        assert len(boxes) + record["objects/num_left_out"] == shown
    assert num_boxes == 12 or image.get("resize") == "crop"


def test_later_versions_change_only_the_records_whose_boxes_change(
    annotated: Annotated, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    run(annotated.write(), root, **config())
    assert run(annotated.folder, root, **config())["unchanged"]
    annotated.annotations[0]["bbox"] = [0, 0, WIDTH, HEIGHT]
    annotated.images[3] |= {"height": 7, "width": 7}
    second = run(annotated.write(), root, **config())
    assert (second["version"], second["num_encoded"]) == (2, 0)
    catalog = Catalog(str(root))
    outcome = rows(catalog.open("d@2"))["4.png"]
    assert (outcome["outcome"], outcome["reason"]) == ("quarantined", "other_size")
    assert outcome["message"] == "the annotation is of an image of 7×7 pixels, and this has 160×96"
    change = diff(catalog.open("d@1"), catalog.open("d@2")).features_changed
    assert (change.count, change.examples[0].uri, change.examples[0].feature) == (1, "1.png", BOXES)
    found = records(catalog.open("d@2"))
    assert found["1.png"]["objects/bbox"][:4] == [0, 0, 1, 1]
    assert "4.png" not in found
    annotated.images[3] |= {"height": HEIGHT, "width": WIDTH}
    run(annotated.write(), root, **config())
    assert set(records(catalog.open("d@3"))) == set(found) | {"4.png"}
    compact(catalog, "d")
    assert verify(catalog.open("d")).problems == []
    assert records(catalog.open("d")).keys() == found.keys() | {"4.png"}


def test_a_table_of_relative_boxes_gives_the_same_records_as_coco(
    annotated: Annotated, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    run(annotated.write(), root, **config())
    catalog = Catalog(str(root))
    expected = records(catalog.open("d@1"))
    (annotated.folder / "instances.json").unlink()
    annotated.write_table("boxes.csv")
    (annotated.folder / "all.txt").write_text("\n".join(image["file_name"] for image in annotated.images))
    columns = {
        "image": "ImageID",
        "label": "LabelName",
        "box_columns": ["XMin", "YMin", "XMax", "YMax"],
        "units": "relative",
    }
    part = {"file": "boxes.csv", "image_list": "all.txt"}
    source = {"kind": "box_table", **with_columns("objects", {"annotations": part, "table": columns})}
    table = config() | {"source": source}
    assert run(annotated.folder, root, **table)["num_encoded"] == 0
    found = records(catalog.open("d@2"))
    assert found.keys() == expected.keys()
    for uri, record in found.items():
        for name in ("objects/label", "objects/is_crowd", "objects/num_left_out", "labels"):
            assert record.get(name) == expected[uri].get(name)
        assert record.get("objects/bbox", []) == pytest.approx(
            expected[uri].get("objects/bbox", []), abs=1e-6
        )
    assert run(annotated.folder, root, **table)["unchanged"]
    annotated.annotations[0]["bbox"] = [0, 0, WIDTH, HEIGHT]
    annotated.write_table("boxes.csv")
    third = run(annotated.folder, root, **table)
    assert (third["version"], third["num_encoded"]) == (3, 0)
    changed = records(catalog.open("d@3"))
    assert changed["1.png"]["objects/bbox"][:4] == [0, 0, 1, 1]
    same = {uri: record.get("objects/bbox") for uri, record in changed.items() if uri != "1.png"}
    assert same == {uri: record.get("objects/bbox") for uri, record in found.items() if uri != "1.png"}
    assert verify(catalog.open("d@3")).problems == []


def test_the_size_of_the_annotated_image_tells_what_boxes_are_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is turned by 90 degrees, annotated as viewers show it."""
    made = Annotated(tmp_path / "photos")
    made.add("turned.png", [("cat", (10, 24, 50, 70))], 6, height=WIDTH, width=HEIGHT)
    top, left, bottom, right = 10, 24, 50, 70
    # The same box, as edges of the upright image: 90 degrees to the right.
    made.annotations[0]["bbox"] = [HEIGHT - bottom, left, bottom - top, right - left]
    made.add("other.png", [])
    drawn = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
    drawn[top:bottom, left:right] = 1
    upright = np.argwhere(apply_orientation(drawn, 6)[..., 0])
    assert upright.min(0).tolist() == [left, HEIGHT - bottom]
    run(made.write(), tmp_path / "root", **config())
    version = Catalog(str(tmp_path / "root")).open("d@1")
    print_version(version)
    assert "None" not in capsys.readouterr().out  # where a feature comes from no column
    record = records(version)["turned.png"]
    pixels = 1 / np.tile(record["pixels"].shape[:2], 2)
    difference = np.abs(record["objects/bbox"] - np.array(box_around(record["pixels"], COLORS["cat"])))
    assert (difference <= 1.5 * pixels).all()


def test_the_report_shows_the_objects_that_are_left_out(tmp_path: Path) -> None:
    source = Annotated(tmp_path / "source")
    for number in range(6):
        source.add(f"{number}.png", [("cat", (10, 10, 40, 60)), ("dog", (20, 70, 60, 120))])
    source.annotations += [
        {"image_id": 2, "category_id": 0, "bbox": [5, 5, 0, 9]},
        {"image_id": 2, "category_id": 77, "bbox": [5, 5, 9, 9]},
        {"image_id": 4, "category_id": 1, "bbox": [900, 5, 9, 9]},
    ]
    folder = source.write()
    outcome = run(folder, tmp_path / "root", **config())
    page = Path(outcome["report"]).read_text(encoding="utf-8")
    assert "12 objects in the records" in page
    assert "3 objects of the annotations of 2 records are left out" in page
    assert "<tr><td><code>2.png</code></td><td>2</td><td>2</td></tr>" in page
