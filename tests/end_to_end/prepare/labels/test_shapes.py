"""Polygons, key points and oriented boxes through all of prepare, and masks drawn from polygons."""

from __future__ import annotations

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from shardmill.infra.codecs.masks import class_colors
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.compare import diff
from shardmill.infra.dataset.thumbnails import read_small
from shardmill.infra.dataset.verify import verify
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.infra.format.features import KeyPoints
from shardmill.infra.format.known_features import POLYGONS, key_points
from shardmill.infra.storage.range_reader import RangeReader
from tests.samples.datasets.contents import indexed_records
from tests.samples.images.photos import picture
from tests.samples.preparing.prepared import rows, run
from tests.samples.sources import drawn_shapes

HEIGHT, WIDTH = 96, 160
EYES = {"names": ["left", "right", "tail"], "skeleton": [[0, 2]], "partners": [1, 0, 2]}
TRIANGLE = [[10, 10], [60, 10], [60, 50]]  # x, y
CLASSES = ["background", "cat", "dog", "hat"]


def write(folder: Path, images: dict[str, Any], orientation: int = 1) -> Path:
    """Write pictures, all turned by an orientation, and their shapes."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(images):
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(picture(number + 1, HEIGHT, WIDTH)).save(folder / name, exif=exif)
    document = {"points": {"cat": EYES}, "images": images}
    (folder / drawn_shapes.FILE).write_text(json.dumps(document))
    return folder


def described(*objects: dict[str, Any]) -> dict[str, Any]:
    return {"size": [HEIGHT, WIDTH], "objects": list(objects)}


def config(**source: Any) -> dict[str, Any]:
    return {
        "source": {"kind": drawn_shapes.KIND, "labels": "multi", **source},
        "image": {"encoding": "png", "size": 48},
        "groups": {"near_duplicates": False},
        "failure_budget": 0.3,
        "shards": {"num_shards": 1},
    }


def records(version: DatasetVersion) -> dict[str, dict[str, Any]]:
    found = {}
    for _, row, record, features in indexed_records(version):
        values = {name: value.values for name, value in features.items()}
        found[row["source_uri"]] = {**values, "mask": record.mask}
    return found


def thumbnail(version: DatasetVersion, uri: str) -> np.ndarray:
    """The picture of a record in the report."""
    for shard, row, _, _ in indexed_records(version):
        if row["source_uri"] == uri:
            with closing(RangeReader(version.storage)) as reader:
                place = row["offset_bytes"], row["length_bytes"]
                return read_small(reader, version.manifest, shard.path, *place)[1]
    raise AssertionError(uri)


def test_shapes_are_in_every_record_and_change_without_decoding(tmp_path: Path) -> None:
    cat = {
        "name": "cat",
        "rings": [TRIANGLE],
        "keypoints": [20, 20, 30, 30, 400, 30],
        "visibility": [2, 1, 2],
    }
    dog = {"name": "dog", "box": [5, 5, 50, 60], "corners": [[-16, 0], [40, 0], [40, 48], [-16, 48]]}
    flat = {"name": "dog", "box": [5, 5, 50, 60], "rings": [[[1, 1], [2, 2], [3, 3]], [[1, 1]]]}
    images = {f"{number}.png": described(cat, dog) for number in range(3)} | {"none.png": described()}
    images["1.png"] = described(
        flat, {"name": "cat", "keypoints": [5, 5, 9, 90, 60, 5], "visibility": [2, 2, 0]}
    )
    folder, root = write(tmp_path / "source", images), tmp_path / "root"
    run(folder, root, **config())
    catalog = Catalog(str(root))
    version = catalog.open("d@1")
    assert verify(version).problems == []
    assert key_points(version.manifest.extra_features) == KeyPoints.model_validate(EYES)
    assert Catalog(str(root)).open("d").manifest == version.manifest  # as it is read from its file
    found = records(version)
    corners = [[-16 / 160, 0], [40 / 160, 0], [40 / 160, 48 / 96], [-16 / 160, 48 / 96]]
    first = found["0.png"]
    assert first["objects/rings"] == [1, 0]
    assert first["objects/ring_points"] == [3]
    points = np.array(first["objects/polygons"]).reshape(-1, 2)
    assert sorted(points.tolist()) == pytest.approx(
        np.array(sorted([y / HEIGHT, x / WIDTH] for x, y in TRIANGLE)), abs=1e-7
    )
    assert first["objects/visibility"] == [2, 1, 0, 0, 0, 0]  # one lies outside, and the dog has none
    assert first["objects/keypoints"] == pytest.approx([20 / 96, 20 / 160, 30 / 96, 30 / 160, *[0] * 8])
    assert first["objects/corners"][8:] == pytest.approx([number for x, y in corners for number in (y, x)])
    assert found["1.png"]["objects/rings"] == [0, 0]
    assert found["1.png"]["objects/bbox"][4:] == pytest.approx([5 / 96, 5 / 160, 90 / 96, 9 / 160])
    names = ("polygons", "ring_points", "rings", "keypoints", "visibility", "corners")
    assert all(found["none.png"][f"objects/{name}"] == [] for name in names)

    in_picture = thumbnail(version, "0.png")
    for y, x in [*points, *np.array(first["objects/corners"]).reshape(-1, 4, 2)[1, 1:3]]:
        at = [min(int(part * side), side - 1) for part, side in zip((y, x), in_picture.shape, strict=False)]
        near = in_picture[max(at[0] - 2, 0) : at[0] + 3, max(at[1] - 2, 0) : at[1] + 3].reshape(-1, 3)
        assert {*map(tuple, near.tolist())} & {*map(tuple, class_colors(2).tolist())}

    assert run(folder, root, **config())["unchanged"]
    images["2.png"]["objects"][0] = {**cat, "rings": [[[0, 0], [70, 0], [70, 60]]]}
    second = run(write(folder, images), root, **config())
    assert (second["version"], second["num_encoded"]) == (2, 0)
    change = diff(catalog.open("d@1"), catalog.open("d@2")).features_changed
    assert (change.count, change.examples[0].uri) == (1, "2.png")
    assert change.examples[0].feature in (POLYGONS, "objects/bbox")
    described_points = {**EYES, "skeleton": [[0, 1], [1, 2]]}
    document = json.loads((folder / drawn_shapes.FILE).read_text())
    (folder / drawn_shapes.FILE).write_text(json.dumps(document | {"points": {"cat": described_points}}))
    third = run(folder, root, **config())
    assert (third["version"], third["num_encoded"]) == (3, 0)
    known = key_points(catalog.open("d@3").manifest.extra_features)
    assert known is not None
    assert known.skeleton == ((0, 1), (1, 2))
    assert diff(catalog.open("d@2"), catalog.open("d@3")).features_changed.count == 0


def drawn(size: tuple[int, int], *polygons: tuple[int, list[list[float]]]) -> np.ndarray:
    """Class numbers drawn with Pillow at eight times the size, and the middles of the pixels taken."""
    height, width = size
    fine = Image.new("L", (width * 8, height * 8))
    for number, points in polygons:
        scaled = [(x / WIDTH * width * 8 - 0.5, y / HEIGHT * height * 8 - 0.5) for x, y in points]
        ImageDraw.Draw(fine).polygon(scaled, fill=number)
    return np.asarray(fine)[4::8, 4::8]


def test_masks_are_drawn_from_polygons(tmp_path: Path) -> None:
    cat = {"name": "cat", "rings": [TRIANGLE]}
    crowd = {"name": "dog", "is_crowd": True, "rings": [[[100, 60], [150, 60], [150, 90], [100, 90]]]}
    boxed = {"name": "dog", "box": [50, 50, 80, 100]}
    hat = {"name": "hat", "rings": [[[30, 5], [200, 5], [200, 15], [30, 15]]]}  # over the cat, and the edge
    images = {f"{number}.png": described(cat) for number in range(4)}
    images["0.png"] = described(cat, crowd, boxed, hat)
    images["3.png"] = {"size": [7, 7], "objects": [cat]}
    folder, root = write(tmp_path / "source", images), tmp_path / "root"
    with pytest.raises(ConfigError) as refused:
        run(folder, root, **config(labels="mask"))
    assert """source.masks.classes="['background', 'cat', 'dog', 'hat']\"""" in str(refused.value)
    with pytest.raises(ConfigError, match="lacks 'dog'"):
        run(folder, root, **config(labels="mask", masks={"classes": ["cat", "hat"]}))
    settings = config(labels="mask", masks={"classes": CLASSES})
    run(folder, root, **settings)
    catalog = Catalog(str(root))
    version = catalog.open("d@1")
    assert verify(version).problems == []
    assert (version.manifest.label_kind, version.manifest.classes) == ("mask", CLASSES)
    assert rows(version)["3.png"]["reason"] == "other_mask_size"
    found = records(version)
    masks = {uri: np.asarray(Image.open(io.BytesIO(record["mask"]))) for uri, record in found.items()}
    box = [[50, 50], [100, 50], [100, 80], [50, 80]]
    polygons = [(1, TRIANGLE), (255, crowd["rings"][0]), (255, box), (3, hat["rings"][0])]
    expected = drawn((48, 80), *polygons)
    differ = masks["0.png"] != expected
    assert differ.sum() <= 12  # beside the slanted edge
    assert not differ[:, 31:].any()
    assert found["0.png"]["labels"] == [0, 1, 3]
    assert found["0.png"]["mask/source_uri"] == [b"shapes.json#image=0.png"]

    assert run(folder, root, **settings)["unchanged"]
    images["3.png"]["size"] = [HEIGHT, WIDTH]
    images["1.png"]["objects"] = [hat]
    second = run(write(folder, images), root, **settings)
    assert (second["version"], second["num_encoded"]) == (2, 2)
    later = records(catalog.open("d@2"))
    assert later["1.png"]["labels"] == [0, 3]
    assert later["2.png"] == found["2.png"]
    assert later.keys() == images.keys()


def test_drawn_masks_turn_with_their_images(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "source",
        {f"{at}.png": described({"name": "cat", "rings": [TRIANGLE]}) for at in (1, 2)},
        6,
    )
    run(folder, tmp_path / "root", **config(labels="mask", masks={"classes": ["background", "cat"]}))
    (record, _) = records(Catalog(str(tmp_path / "root")).open("d")).values()
    mask = np.asarray(Image.open(io.BytesIO(record["mask"])))
    assert mask.shape == (80, 48)
    expected = np.rot90(drawn((48, 80), (1, TRIANGLE)), -1)  # 6: a quarter to the right
    assert (mask != expected).sum() <= 12
    assert (mask == 1).sum() > 200
