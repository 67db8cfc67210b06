"""The YOLO export: another reader finds the stored shapes in its label files, and so does our own kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from shapely import Polygon

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds import yolo
from shardmill.infra.dataset.exports.export import export
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import UsageError
from shardmill.infra.format.features import Feature, KeyPoints
from shardmill.infra.format.known_features import (
    CORNER_FEATURE,
    OBJECT_FEATURES,
    POLYGON_FEATURES,
    keypoint_features,
)
from shardmill.infra.progress import subscribe
from tests.samples.datasets.published import coloured, publish
from tests.unit.infra.dataset.exports.test_formats import with_columns

CLASSES = ["no", 'red "fox": {é\n', "3"]
POINTS = KeyPoints(names=("nose", "left eye", "right eye"), partners=(0, 2, 1))
RANDOM = np.random.default_rng(3)
EDGES = np.sort(RANDOM.random((5, 2, 2)).astype(np.float32), axis=1).reshape(5, 4)  # ymin, xmin, ymax, xmax
LENGTHS = [3, 0, 2]  # objects of each image; the third is a crowd
SQUARE = np.array([[0.1, 0.1], [0.1, 0.9], [0.9, 0.9], [0.9, 0.1]], np.float32)
RINGS: list[list[np.ndarray]] = [
    [SQUARE, SQUARE[::-1] * 0.5 + 0.25],
    [],
    [SQUARE / 2],
    [SQUARE / 4, SQUARE / 4 + 0.5],
    [SQUARE[:3]],
]
WHERE = RANDOM.random((5, 3, 2)).astype(np.float32)
SEEN = np.array([[2, 0, 1], [2, 2, 2], [1, 1, 1], [0, 0, 0], [1, 0, 2]])
CORNERS = RANDOM.random((5, 8)).astype(np.float32)
CORNERS[4] += 0.6  # its middle lies outside


def lists(values: Any, kind: pa.DataType, width: int = 1) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(LENGTHS)]) * width
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(np.ravel(values), kind))


def version_with(folder: Path, *shapes: str) -> DatasetVersion:
    """A version of three images with five objects, which have some shapes."""
    version = publish(folder, coloured({"train": {"no": 3}}), classes=CLASSES, shards_per_split=1)
    columns = {
        "objects/bbox": lists(EDGES, pa.float32(), 4),
        "objects/label": lists([0, 1, 2, 2, 1], pa.int64()),
        "objects/is_crowd": lists([0, 0, 1, 0, 0], pa.int64()),
        "objects/num_left_out": pa.array([0, 0, 0]),
    }
    features: list[Feature] = [*OBJECT_FEATURES]
    if "polygons" in shapes:
        features += POLYGON_FEATURES
        of_image = [[ring for object_ in some for ring in object_] for some in (RINGS[:3], [], RINGS[3:])]
        columns |= {
            "objects/polygons": pa.array(
                [[x for ring in some for x in ring.ravel()] for some in of_image], pa.list_(pa.float32())
            ),
            "objects/ring_points": pa.array(
                [[len(ring) for ring in some] for some in of_image], pa.list_(pa.int64())
            ),
            "objects/rings": lists([len(some) for some in RINGS], pa.int64()),
        }
    if "keypoints" in shapes:
        features += keypoint_features(POINTS)
        columns |= {
            "objects/keypoints": lists(np.where(SEEN[..., None] > 0, WHERE, 0), pa.float32(), 6),
            "objects/visibility": lists(SEEN, pa.int64(), 3),
        }
    if "corners" in shapes:
        features.append(CORNER_FEATURE)
        columns["objects/corners"] = lists(CORNERS, pa.float32(), 8)
    version = with_columns(version, columns)
    manifest = version.manifest.model_copy(update={"extra_features": features, "label_kind": "multi"})
    return DatasetVersion(version.storage, manifest)


def exported(version: DatasetVersion, folder: Path, name: str = "yolo") -> list[tuple[int, np.ndarray]]:
    """Class and numbers (float32) of each row of the label files, in the order of the records."""
    export(version, folder, name)
    ids = version.index(version.manifest.shards[0])["id"].to_pylist()
    rows = []
    for name in ids:
        assert (folder / f"images/train/{name}.jpg").is_file()
        for line in (folder / f"labels/train/{name}.txt").read_text().splitlines():
            label, *numbers = line.split()
            rows.append((int(label), np.array(numbers, np.float32)))
    return rows


def read_back(folder: Path) -> dict[str, list[Any]]:
    """What our own kind reads in an export: feature -> values of all images, in the order of their names."""
    config = PrepareConfig.model_validate({"source": {"kind": "yolo"}})
    table = yolo.list_inputs(SourceFolder(str(folder)), config).table
    images = [row for row in table.to_pylist() if row["uri"].startswith("images/")]
    assert {row["split"] for row in images} == {"train"}
    names = [name for name in table.column_names if name.startswith("feature:objects/")]
    return {name.removeprefix("feature:objects/"): [row[name] for row in images] for name in names}


def edges(numbers: np.ndarray) -> np.ndarray:
    x, y, width, height = numbers[:4].astype(np.float64)
    return np.array([y - height / 2, x - width / 2, y + height / 2, x + width / 2])


KEPT = [0, 1, 3, 4]


def test_boxes(tmp_path: Path) -> None:
    version = version_with(tmp_path / "sets")
    rows = exported(version, tmp_path / "out")
    assert [label for label, _ in rows] == [0, 1, 2, 1]
    for at, (_, numbers) in zip(KEPT, rows, strict=True):
        np.testing.assert_allclose(edges(numbers), EDGES[at], rtol=0, atol=2**-23)
    described = yaml.safe_load((tmp_path / "out/data.yaml").read_bytes())
    assert described == {
        "train": "images/train", "val": None, "test": None, "task": "detect",
        "names": dict(enumerate(CLASSES)),
    }  # fmt: skip
    ids = version.index(version.manifest.shards[0])["id"].to_pylist()
    found = read_back(tmp_path / "out")
    first, second = (sorted(ids).index(name) for name in (ids[0], ids[2]))
    assert found["label"][first] == CLASSES[:2]
    np.testing.assert_array_equal(found["bbox"][first], EDGES[:2].ravel())
    np.testing.assert_array_equal(found["bbox"][second], EDGES[3:].ravel())


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What is said to people."""
    found: list[str] = []
    end = subscribe(lambda event: found.append(str(event.get("message"))))
    yield found
    end()


def test_outlines_become_one_ring_of_the_same_area(tmp_path: Path, said: list[str]) -> None:
    rows = exported(version_with(tmp_path / "sets", "polygons"), tmp_path / "out")
    assert said == [
        "1 object left out: YOLO has no crowds", "1 object without an outline written with that of the box",
    ]  # fmt: skip
    top, left, bottom, right = EDGES[1]
    box = np.array([[top, left], [top, right], [bottom, right], [bottom, left]])
    holes = Polygon(SQUARE, [RINGS[0][1]])
    parts = Polygon(RINGS[3][0]).union(Polygon(RINGS[3][1]))
    for shape, (_, numbers) in zip((holes, Polygon(box), parts, Polygon(SQUARE[:3])), rows, strict=True):
        ring = Polygon(numbers.reshape(-1, 2)[:, ::-1]).buffer(0)
        assert ring.symmetric_difference(shape).area < 1e-6
    assert [counts for counts in read_back(tmp_path / "out")["ring_points"] if counts] in (
        [[10, 4], [10, 3]], [[10, 3], [10, 4]],
    )  # fmt: skip


def test_key_points(tmp_path: Path) -> None:
    rows = exported(version_with(tmp_path / "sets", "keypoints"), tmp_path / "out")
    for at, (_, numbers) in zip(KEPT, rows, strict=True):
        np.testing.assert_allclose(edges(numbers), EDGES[at], rtol=0, atol=2**-23)
        points = numbers[4:].reshape(3, 3)
        np.testing.assert_array_equal(points[:, 2], SEEN[at])
        np.testing.assert_array_equal(points[:, 1::-1], np.where(SEEN[at][:, None] > 0, WHERE[at], 0))
    described = yaml.safe_load((tmp_path / "out/data.yaml").read_bytes())
    assert (described["kpt_shape"], described["flip_idx"]) == ([3, 3], [0, 2, 1])
    assert described["kpt_names"] == {number: list(POINTS.names) for number in range(3)}
    assert sum(map(sum, read_back(tmp_path / "out")["visibility"])) == SEEN[KEPT].sum()


def test_oriented_boxes(tmp_path: Path, said: list[str]) -> None:
    rows = exported(version_with(tmp_path / "sets", "corners"), tmp_path / "out")
    assert "1 object left out: YOLO takes no oriented box" in said[1]
    for at, (_, numbers) in zip([0, 1, 3], rows, strict=True):
        np.testing.assert_array_equal(numbers.reshape(4, 2)[:, ::-1].ravel(), CORNERS[at])
    assert sorted(map(len, read_back(tmp_path / "out")["corners"])) == [0, 8, 16]


def test_a_version_with_several_shapes_asks_which(tmp_path: Path) -> None:
    version = version_with(tmp_path / "sets", "polygons", "keypoints")
    with pytest.raises(UsageError, match="segment and pose") as caught:
        export(version, tmp_path / "out", "yolo")
    assert "yolo-segment, or yolo-pose, or yolo-detect" in str(caught.value.remedy)
    assert len(exported(version, tmp_path / "pose", "yolo-pose")[0][1]) == 4 + 9
    assert len(exported(version, tmp_path / "detect", "yolo-detect")[0][1]) == 4
    with pytest.raises(UsageError, match="no objects/corners"):
        export(version, tmp_path / "out", "yolo-obb")


def test_a_version_without_objects_is_refused(tmp_path: Path) -> None:
    version = publish(tmp_path / "sets", coloured({"train": {"fox": 1}}))
    with pytest.raises(UsageError, match="one class an image"):
        export(version, tmp_path / "out", "yolo")
    with pytest.raises(UsageError, match="no export format"):
        export(version, tmp_path / "out", "yolo-cls")
