"""Polygons, key points and oriented boxes stand in the batches of every reader as their images show them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.training.augment.kind import ImageAugmentation
from shardmill.training.augment.kinds.flips import Flips
from shardmill.training.augment.parameters import AugmentParameters
from shardmill.training.config import AugmentSettings, TrainConfig
from shardmill.training.reading.batch import Batch
from shardmill.training.tasks.detection import DetectionKind
from shardmill.training.tasks.keypoints import KeyPointsKind
from tests.samples.images.shape_pictures import LEFT_EAR, NOSE, draw_shapes, filled, shapes_of
from tests.samples.training.forms_elsewhere import check_forms

SIZE = 96
FEATURES = [
    "objects/label", "objects/polygons", "objects/ring_points", "objects/rings", "objects/keypoints",
    "objects/visibility", "objects/corners",
]  # fmt: skip
PLAIN: dict[str, Any] = {"batch_size": 6, "image_size": SIZE, "features": FEATURES}
MOVED: dict[str, Any] = {"vertical_flip": True, "quarter_turns": True, "scale": (0.4, 1.0)}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("shapes")
    draw_shapes(folder / "source", folder / "root")
    return open_dataset("d", folder / "root")


def lists(batch: Batch, row: int) -> dict[str, Any]:
    """The features of one example, without padding."""
    padded = {name: batch.features[name] for name in FEATURES}
    return {name: column.values[row, : column.lengths[row]] for name, column in padded.items()}


def rings_of(found: dict[str, Any], size: int = SIZE) -> list[list[npt.NDArray[np.float64]]]:
    """The rings of each object of an example (pixels)."""
    ends = np.cumsum(found["objects/ring_points"])[:-1]
    points = np.split(found["objects/polygons"].reshape(-1, 2).astype(float) * size, ends)
    rings = iter(points if found["objects/ring_points"].size else [])
    return [[next(rings) for _ in range(count)] for count in found["objects/rings"]]


def are_alike(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]) -> bool:
    """Whether two pictures show the same within a pixel."""
    near = np.ones((3, 3), np.uint8)
    shown = [(picture > 127).astype(np.uint8) for picture in (one, other)]
    pairs = (shown, shown[::-1])
    return not any((cv2.erode(inner, near) > outer).any() for inner, outer in pairs)


WHOLE = MOVED | {"random_resized_crop": False}


@pytest.mark.parametrize(
    ("options", "epochs"),
    [({"augment": MOVED}, 4), ({"augment": WHOLE, "fit": "stretch"}, 2), ({"augment": WHOLE}, 2)],
)
def test_pictures_show_each_shape_where_its_features_say(
    dataset: Dataset, options: dict[str, Any], epochs: int
) -> None:
    polygons = corners = points = hidden = 0
    names = dict(zip(dataset.table("train").ids(np.arange(12)), _uris(dataset), strict=True))
    for epoch in range(epochs):
        batches = dataset.batches("train", epoch=epoch, **options, **PLAIN)
        for batch in batches:
            mirrored = are_mirrored(batches.maker.parameters(batches.order.step(epoch, batch.step)))
            for row, record in enumerate(dataset.table("train").ids(batch.ordinals)):
                found, image = lists(batch, row), batch.images[row]
                bars = found["objects/corners"].reshape(-1, 4, 2) * SIZE
                for at, (kind, rings) in enumerate(zip(found["objects/label"], rings_of(found), strict=True)):
                    if dataset.classes[kind] == "bar":
                        assert not rings
                        assert are_alike(filled([bars[at]], (SIZE, SIZE)), image[..., 1])
                        corners += 1
                        continue
                    assert are_alike(filled(rings, (SIZE, SIZE)), image[..., 0])
                    # The outer ring turns as it was drawn, its hole the other way.
                    assert [np.sign(area(ring)) for ring in rings] in ([1, -1], [1])
                    polygons += 1
                    number = int(Path(names[record]).stem)
                    which = LEFT_EAR if number % 2 else NOSE
                    own = found["objects/keypoints"].reshape(-1, 3, 2)[at] * SIZE
                    seen = found["objects/visibility"].reshape(-1, 3)[at]
                    at_mark = np.argwhere(image[..., 2] > 127)
                    slot = 2 if which == LEFT_EAR and mirrored[row] else which
                    if not seen[slot]:
                        hidden += 1
                        assert not own[slot].any()
                        continue
                    assert seen[slot] == (1 if which == LEFT_EAR else 2)
                    top, left = at_mark.min(0) - 1
                    bottom, right = at_mark.max(0) + 2
                    assert top <= own[slot, 0] <= bottom
                    assert left <= own[slot, 1] <= right
                    points += 1
    assert min(polygons, corners, points) > 10
    assert hidden or options["augment"] == WHOLE


def area(ring: npt.NDArray[np.float64]) -> float:
    after = np.roll(ring, -1, axis=0)
    return float((ring[:, 0] * after[:, 1] - ring[:, 1] * after[:, 0]).sum())


class Lean(ImageAugmentation[Any]):
    """Turns images about their middles by ``angle`` [B] and enlarges them, as somebody else's may do."""

    name, is_on, turn = "augment.lean", True, 90
    objects_follow = True

    def draw(self, keys: Any, image_size: int) -> Any:
        return {"angle": np.linspace(-1, 1, len(keys))}

    def apply(self, image: Any, drawn: Any, row: int) -> None:
        angle, middle = drawn["angle"][row], len(image) / 2
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])  # of x, y
        matrix = 1.5 * turn
        shift = middle - 0.5 - matrix @ np.full(2, middle - 0.5)
        cv2.warpAffine(image.copy(), np.c_[matrix, shift], image.shape[1::-1], dst=image)

    def move_points(self, points: Any, drawn: Any) -> Any:
        at = (points[..., 1] - 0.5 + 1j * (points[..., 0] - 0.5)) * np.exp(-1j * drawn["angle"])[:, None]
        at = 1.5 * at
        return np.stack([at.imag, at.real], axis=-1) + 0.5


def test_every_shape_follows_an_augmentation_that_says_how_points_move(dataset: Dataset) -> None:
    names = ["objects/bbox", *FEATURES]
    batches = dataset.batches("train", augment=False, fit="stretch", **(PLAIN | {"features": names}))
    plan = batches.order.step(0, 0)
    windows = batches.maker.parameters(plan).windows
    lean = Lean(AugmentSettings())
    drawn = lean.draw(np.zeros(len(windows), np.uint64), SIZE)
    plain = batches.maker.make(plan)
    batch = batches.maker.make(plan, AugmentParameters(windows, ((lean, drawn),)))
    cut = 0
    for row in range(len(batch)):
        found, image = lists(batch, row), batch.images[row]
        rings, bars = rings_of(found), found["objects/corners"].reshape(-1, 4, 2) * SIZE
        boxes = batch.features["objects/bbox"]
        for at, kind in enumerate(found["objects/label"]):
            is_bar = dataset.classes[kind] == "bar"
            picture = filled([bars[at]] if is_bar else rings[at], (SIZE, SIZE))
            assert are_alike(picture, image[..., 1 if is_bar else 0])
            # Its box is around the turned corners of the box that it had, and within the picture.
            own = lists(plain, row)["objects/label"].tolist().index(kind)
            top, left, bottom, right = plain.features["objects/bbox"].values[row].reshape(-1, 4)[own]
            corners = np.array([[[top, left], [top, right], [bottom, right], [bottom, left]]])
            turned = lean.move_points(corners, {"angle": drawn["angle"][[row]]})[0]
            box = boxes.values[row].reshape(-1, 4)[at]
            np.testing.assert_allclose(box, np.r_[turned.min(0), turned.max(0)].clip(0, 1), atol=1e-6)
            cut += bool((turned < 0).any() or (turned > 1).any())
    assert cut


def are_mirrored(parameters: AugmentParameters) -> Any:
    """Whether an odd number of flips was drawn, of each image."""
    flips = next(drawn for one, drawn in parameters.images if isinstance(one, Flips))
    return flips["left_right"] ^ flips["top_bottom"]


def _uris(dataset: Dataset) -> list[str]:
    return [
        uri
        for shard in dataset.version.shards("train")
        for uri in dataset.version.index(shard)["source_uri"].to_pylist()
    ]


def test_whole_images_have_the_stored_shapes(dataset: Dataset) -> None:
    (batch,) = dataset.batches("train", training=False, **(PLAIN | {"image_size": None, "batch_size": 12}))
    for row, uri in enumerate(_uris(dataset)):
        drawn, found = shapes_of(int(Path(uri).stem)), lists(batch, row)
        size = batch.sizes[row]
        wanted = np.concatenate([drawn["star"], drawn["hole"]]) / size
        np.testing.assert_allclose(found["objects/polygons"].reshape(-1, 2), wanted, atol=1e-6)
        np.testing.assert_allclose(
            found["objects/corners"].reshape(-1, 4, 2)[1], drawn["corners"] / size, atol=1e-6
        )
        np.testing.assert_allclose(
            found["objects/keypoints"].reshape(-1, 2)[:3], drawn["points"] / size, atol=1e-6
        )
        assert found["objects/visibility"].tolist() == [2, 1, 2, 0, 0, 0]
        assert found["objects/rings"].tolist() == [2, 0]


@pytest.mark.parametrize(("decoder", "ragged"), [("turbo", True), ("tensorflow", False)])
def test_tensorflow_reads_the_same_shapes(dataset: Dataset, decoder: Any, ragged: bool) -> None:
    pytest.importorskip("tensorflow")
    there = Dataset(dataset.version, dataset.reading.model_copy(update={"decoder": decoder}))
    asked = PLAIN | {"augment": MOVED, "batch_size": 5, "last_batch": "pad"}
    wanted = dataset.batches("train", **asked)
    for (beside, *_), batch in zip(there.tf("train", ragged=ragged, **asked), wanted, strict=True):
        for name, column in batch.features.items():
            values = beside[name]
            if ragged:
                assert values.row_lengths().numpy().tolist() == column.lengths.tolist()
            for row, length in enumerate(column.lengths):
                np.testing.assert_array_equal(values[row][:length], column.values[row, :length])
            if not ragged:
                np.testing.assert_array_equal(values, column.values)


@pytest.mark.parametrize("reading", [{"cache": "memory", "cache_form": "decoded"}, {"staging_dir": ""}])
def test_caches_and_staged_shards_change_no_shape(
    dataset: Dataset, tmp_path: Path, reading: dict[str, Any]
) -> None:
    asked = PLAIN | {"augment": MOVED}
    reading = {name: value or str(tmp_path) for name, value in reading.items()}
    there = Dataset(dataset.version, type(dataset.reading)(**reading))
    for batch, wanted in zip(there.batches("train", **asked), dataset.batches("train", **asked), strict=True):
        for name, column in wanted.features.items():
            np.testing.assert_array_equal(batch.features[name].values, column.values)


@pytest.mark.slow
def test_jax_and_grain_have_the_same_shapes(dataset: Dataset) -> None:
    root = str(Path(dataset.version.storage.uri).parent)
    check_forms((root, "d", "train", {"augment": MOVED, **PLAIN}))


def test_one_of_the_features_is_enough(dataset: Dataset) -> None:
    asked = {"batch_size": 12, "image_size": SIZE, "augment": MOVED}
    (every,) = dataset.batches("train", features=FEATURES, **asked)
    for name in FEATURES:
        (batch,) = dataset.batches("train", features=name, **asked)
        assert [*batch.features] == [name]
        np.testing.assert_array_equal(batch.features[name].values, every.features[name].values)


def test_a_damaged_record_repeats_the_shapes_of_another(dataset: Dataset, tmp_path: Path) -> None:
    root = shutil.copytree(Path(dataset.version.storage.uri), tmp_path / "root" / "d").parent
    path, offset, length = dataset.table("train").place(3)
    with (root / "d" / path).open("r+b") as shard:
        shard.seek(offset + length // 2)
        shard.write(b"damaged")
    there = open_dataset("d", root, max_bad_records=1)
    asked = PLAIN | {"batch_size": 12, "augment": MOVED}
    (batch,), (whole,) = there.batches("train", **asked), dataset.batches("train", **asked)
    (bad,) = np.flatnonzero(batch.ordinals != whole.ordinals)
    donor = next(row for row in range(12) if row != bad)
    for name in FEATURES:
        np.testing.assert_array_equal(lists(batch, bad)[name], lists(batch, donor)[name])
        np.testing.assert_array_equal(lists(batch, donor)[name], lists(whole, donor)[name])
    np.testing.assert_array_equal(batch.images[bad], batch.images[donor])


def test_the_detector_says_which_shapes_it_does_not_learn(dataset: Dataset) -> None:
    (note,) = DetectionKind().notes(dataset.version)
    assert "boxes alone" in note
    assert "data.objects = 'keypoints'" in note


def test_mirrors_are_refused_where_nothing_tells_left_from_right(tmp_path: Path) -> None:
    draw_shapes(tmp_path / "source", tmp_path / "root", 4, partners=False)
    there = open_dataset("d", tmp_path / "root")
    with pytest.raises(ConfigError, match=r"mirrored by augment\.horizontal_flip .*, and nothing tells"):
        there.batches("train", batch_size=2, image_size=SIZE, features="objects/keypoints")
    turned = {"horizontal_flip": False, "quarter_turns": True}
    asked = {"batch_size": 2, "image_size": SIZE, "augment": turned, "features": "objects/keypoints"}
    assert sum(len(batch) for batch in there.batches("train", **asked)) == 4
    assert there.batches("train", batch_size=2, image_size=SIZE, features="objects/corners")


def test_an_augmentation_that_moves_boxes_alone_is_refused_by_its_name(dataset: Dataset) -> None:
    class Shift(Flips):
        name = "augment.shift"
        move_points = ImageAugmentation.move_points

        def move_boxes(self, boxes: Any, drawn: Any) -> Any:
            return boxes

    assert Flips.moves_points()
    assert not Shift.moves_points()
    settings = AugmentSettings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardmill.training.augment.settings.kinds", lambda: (Shift,))
        settings.check_objects_follow()
        with pytest.raises(ConfigError, match=r"augment\.shift moves boxes or masks"):
            settings.check_objects_follow(points=True)


def test_shapes_that_are_not_there_are_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match="has no feature 'objects/keypoint'"):
        dataset.batches("train", batch_size=2, features="objects/keypoint")


def test_data_sets_read_together_keep_the_shapes_that_all_have(dataset: Dataset, tmp_path: Path) -> None:
    for name in ("d", "e"):
        shutil.copytree(Path(dataset.version.storage.uri), tmp_path / name)
    (manifest,) = (tmp_path / "e" / "manifests").glob("*.json")
    document = json.loads(manifest.read_text("utf-8"))
    document["dataset"] = "e"
    del document["checksum"]
    points = next(each["points"] for each in document["extra_features"] if each.get("points"))
    points["names"][0] = "tail"
    manifest.write_text(json.dumps(document), "utf-8")
    joined = open_dataset(["d", "e"], tmp_path)
    kept = [name for name in FEATURES if name not in ("objects/keypoints", "objects/visibility")]
    (batch,) = joined.batches("train", **PLAIN | {"batch_size": 24, "features": kept, "training": False})
    (alone,) = dataset.batches("train", **PLAIN | {"batch_size": 12, "features": kept, "training": False})
    for name in kept:
        for half in (0, 12):
            found = [each.features[name] for each in (batch, alone)]
            np.testing.assert_array_equal(found[0].lengths[half : half + 12], found[1].lengths)
            np.testing.assert_array_equal(found[0].values[half : half + 12], found[1].values)
    for name in ("objects/keypoints", "objects/visibility"):
        with pytest.raises(UsageError, match=rf"has no feature '{name}' alike: d@1 has .*; e@1 has .*tail"):
            joined.batches("train", **PLAIN | {"features": [name]})
    with pytest.raises(UsageError, match="the objects of d@1; e@1 have no key points alike: d@1 has"):
        KeyPointsKind().task(joined.version, TrainConfig(), None)  # type: ignore[arg-type]
