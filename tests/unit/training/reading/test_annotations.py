"""Objects stand in the batches of every reader as their images show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill import Dataset, open_dataset
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import ConfigError
from shardmill.training.config import AugmentSettings
from shardmill.training.reading import BatchMaker
from shardmill.training.reading.records.annotations import load_objects
from tests.samples.images.drawn_objects import draw_objects, objects_config
from tests.samples.preparing.prepared import run
from tests.samples.training.forms_elsewhere import check_forms

SIZE = 64
FEATURES = ["objects/bbox", "objects/label", "objects/is_crowd"]
PLAIN: dict[str, Any] = {"batch_size": 8, "image_size": SIZE, "features": FEATURES}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("objects")
    source = draw_objects(folder / "source", {"train": 20, "validation": 9}, seed=3)
    run(source, folder / "root", **objects_config(["train", "validation"]))
    return open_dataset("d", folder / "root")


def lists(features: dict[str, Any], row: int) -> list[np.ndarray[Any, Any]]:
    """The values of one record of numpy batches, without padding."""
    return [features[name].values[row, : features[name].lengths[row]] for name in FEATURES]


def stored(version: DatasetVersion) -> dict[str, Any]:
    rows = [row for shard in version.manifest.shards for row in version.index(shard).to_pylist()]
    return {row["id"]: row for row in rows}


def test_whole_images_have_the_stored_boxes(dataset: Dataset) -> None:
    known = stored(dataset.version)
    for options in ({"fit": "stretch"}, {"image_size": None}):
        for batch in dataset.batches("validation", **(PLAIN | options)):
            for row, record_id in enumerate(dataset.table("validation").ids(batch.ordinals)):
                boxes, labels, crowds = lists(batch.features, row)
                np.testing.assert_allclose(boxes, known[record_id]["objects/bbox"], atol=1e-6)
                assert labels.tolist() == known[record_id]["objects/label"]
                assert crowds.tolist() == known[record_id]["objects/is_crowd"]


def test_objects_of_several_data_sets_have_the_classes_of_all(dataset: Dataset) -> None:
    first, *_, last = dataset.classes
    root, known = str(Path(dataset.version.storage.uri).parent), stored(dataset.version)
    both = open_dataset(["d", "d?width > 0"], root, classes={first: last})
    assert both.classes == list(dict.fromkeys([last, *dataset.classes[1:]]))
    seen = 0
    for batch in both.batches("validation", fit="stretch", **PLAIN):
        for row, record_id in enumerate(both.table("validation").ids(batch.ordinals)):
            own = [dataset.classes[label] for label in known[record_id]["objects/label"]]
            boxes, labels, _ = lists(batch.features, row)
            assert [both.classes[label] for label in labels] == [last if n == first else n for n in own]
            assert len(boxes) == 4 * len(labels)
            seen += 1
    assert seen == 2 * len(dataset.table("validation"))


@pytest.mark.slow
def test_jax_and_grain_have_the_same_objects(dataset: Dataset) -> None:
    root = str(Path(dataset.version.storage.uri).parent)
    check_forms((root, "d", "train", {"augment": {"vertical_flip": True}, **PLAIN}))


def test_augmented_boxes_are_around_what_the_image_shows(dataset: Dataset) -> None:
    """Augment an image of the boxes themselves in the same way, and look for them."""
    from shardmill.training.augment.geometry import move_mask

    augment = AugmentSettings(vertical_flip=True, scale=(0.3, 1.0))
    batches = dataset.batches("train", augment=augment, **PLAIN)
    seen = moved = 0
    for batch in batches:
        plan = batches.order.step(batch.epoch, batch.step)
        parameters = batches.maker.parameters(plan)
        objects = load_objects(dataset.version, "train")
        table = dataset.table("train")
        for row, ordinal in enumerate(batch.ordinals.tolist()):
            boxes, labels, _ = lists(batch.features, row)
            sides = np.array([table.height[ordinal], table.width[ordinal]] * 2)
            own = slice(*objects.starts[ordinal : ordinal + 2])
            corners = np.rint(objects.boxes[own] * sides).astype(int)
            before = list(zip(corners, objects.classes[own], strict=True))
            found = list(zip(boxes.reshape(-1, 4), labels.tolist(), strict=True))
            for (top, left, bottom, right), kind in before:
                mask = np.zeros(sides[:2], np.bool_)
                mask[top:bottom, left:right] = True
                new = move_mask(mask, parameters, row, SIZE)
                share = new.sum() * np.prod(parameters.windows[row, 2:]) / SIZE**2 / mask.sum()
                if share < 0.2:
                    continue
                moved += 1
                rows, columns = np.flatnonzero(new.any(axis=1)), np.flatnonzero(new.any(axis=0))
                around = np.array([rows[0], columns[0], rows[-1] + 1, columns[-1] + 1]) / SIZE
                near = [other == kind and np.abs(box - around).max() < 1 / SIZE for box, other in found]
                assert any(near) or share < 0.3
                seen += any(near)
    assert seen > 10
    assert seen > 0.9 * moved


@pytest.mark.parametrize("decoder", ["turbo", "tensorflow"])
@pytest.mark.parametrize("ragged", [True, False])
def test_tensorflow_reads_the_same_objects(dataset: Dataset, decoder: Any, ragged: bool) -> None:
    pytest.importorskip("tensorflow")
    there = Dataset(dataset.version, dataset.reading.model_copy(update={"decoder": decoder}))
    wanted = dataset.batches("train", **PLAIN)
    for (beside, labels), batch in zip(there.tf("train", ragged=ragged, **PLAIN), wanted, strict=True):
        np.testing.assert_array_equal(labels, batch.labels)
        for name in FEATURES:
            padded = beside[name].to_tensor(batch.features[name].values.max()) if ragged else beside[name]
            for row, length in enumerate(batch.features[name].lengths):
                np.testing.assert_array_equal(padded[row][:length], batch.features[name].values[row, :length])
            if ragged:
                assert beside[name].row_lengths().numpy().tolist() == batch.features[name].lengths.tolist()


def test_streams_and_mixed_examples_have_no_objects(dataset: Dataset) -> None:
    pytest.importorskip("tensorflow")
    there = Dataset(dataset.version, dataset.reading.model_copy(update={"mode": "streaming"}))
    with pytest.raises(ConfigError, match="read from the indexes"):
        there.tf("train", **PLAIN)
    with pytest.raises(ConfigError, match=r"augment\.randaugment"):
        dataset.tf("train", augment=AugmentSettings(randaugment={"num_ops": 1}), **PLAIN)


def test_whoever_makes_batches_refuses_augmentation_that_boxes_cannot_follow(dataset: Dataset) -> None:
    """``.torch`` made batches whose boxes stayed where they were."""
    objects, mixed = load_objects(dataset.version, "train"), AugmentSettings(mixup=0.2)
    with pytest.raises(ConfigError, match=r"augment\.mixup would move or mix images without their boxes"):
        BatchMaker(dataset.reader("train"), image_size=SIZE, augment=mixed, objects=objects)


def test_a_padded_last_batch_and_slices_of_ranks_are_those_of_the_whole(dataset: Dataset) -> None:
    whole = list(dataset.batches("train", last_batch="pad", **PLAIN))
    halves = [
        list(dataset.batches("train", last_batch="pad", rank=rank, num_ranks=2, **PLAIN)) for rank in (0, 1)
    ]
    for batch, one, other in zip(whole, *halves, strict=True):
        for row in range(4):
            for mine, half in zip(lists(batch.features, row), lists(one.features, row), strict=True):
                np.testing.assert_array_equal(mine, half)
            for mine, half in zip(lists(batch.features, row + 4), lists(other.features, row), strict=True):
                np.testing.assert_array_equal(mine, half)
