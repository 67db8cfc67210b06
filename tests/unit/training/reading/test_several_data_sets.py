"""Several data sets read as one: classes, splits, views, containers, and what cannot be joined."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from shardmill import open_dataset
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.errors import ConfigError, CorruptDataError, DataError, ShardmillError, UsageError
from shardmill.infra.format.features import Feature
from shardmill.training.models.spec import pixels_of
from tests.samples.datasets.published import (
    Picture,
    coloured,
    measured,
    publish,
    publish_patterned,
)
from tests.samples.images.photos import picture

PHOTOS = {"train": {"hat": 12, "shoe": 7}, "validation": {"hat": 4}, "test": {"shoe": 3}}
WEB = {"train": {"bag": 5, "hat": 20}, "validation": {"bag": 2, "hat": 3}}
BLUE, GREEN = (np.full((20, 24, 3), colour, np.uint8) for colour in ((0, 0, 200), (0, 160, 0)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("datasets")
    publish(root, coloured(PHOTOS), name="photos")
    publish(root, coloured(WEB, size=(30, 44)), name="web", container="none", shards_per_split=3)
    publish(root, measured("uint16", 5, {"train": {"a": 3}}), name="deep")
    publish(root, coloured({"train": {"hat": 3}, "test": {"bag": 2}}), name="lossless", encoding="png")
    publish(root, coloured({"train": {"hat": 3}}), name="raw", encoding="raw")
    publish_patterned(root, {"train": 9}, several=True, name="colours")
    other = [Picture("train", "", BLUE + np.uint8(n), (n % 2,)) for n in range(3)]
    feature = Feature(name="labels", dtype="int64", shape="variable", column="colours")
    publish(root, other, name="shades", classes=["blue", "grey"], feature=feature)
    publish_patterned(root, {"train": 4}, several=False, name="numbers")
    return root


def names_of(root: Path, *refs: str, split: str = "train", **options: Any) -> Counter[tuple[int, str]]:
    """Read the records of a split, check that their labels agree with the index, and count the labels."""
    dataset = open_dataset([*refs], root, **options)
    reader, table = dataset.reader(split), dataset.table(split)
    records = [reader.read(number) for number in range(len(table))]
    assert [record.label for record in records] == table.label.tolist()
    assert [dataset.classes[record.label] for record in records] == [record.label_name for record in records]
    assert dataset.version.count_classes(split) == {
        name: number
        for name in dataset.classes
        if (number := sum(record.label_name == name for record in records))
    }
    assert dataset.version.num_examples(split) == len(table) == sum(table.set_sizes)
    return Counter((record.label, record.label_name) for record in records)


def test_classes_are_joined_by_name(root: Path) -> None:
    assert names_of(root, "photos", "web") == {(0, "hat"): 32, (1, "shoe"): 7, (2, "bag"): 5}
    assert names_of(root, "web", "photos") == {(1, "hat"): 32, (2, "shoe"): 7, (0, "bag"): 5}


def test_classes_are_joined_by_a_map(root: Path) -> None:
    assert names_of(root, "photos", "web", classes={"shoe": "bag"}) == {(0, "hat"): 32, (1, "bag"): 12}
    with pytest.raises(UsageError, match="'shoes', which is no class"):
        open_dataset(["photos", "web"], root, classes={"shoes": "bag"})


@pytest.mark.parametrize("label", [-2, 2, 57])
def test_a_label_that_is_no_class_is_damaged(root: Path, label: int) -> None:
    version = open_dataset(["web", "photos"], root).version
    assert [version.joined_label(1, number) for number in (-1, 0, 1)] == [-1, 1, 2]
    with pytest.raises(CorruptDataError, match=f"the label {label} is none of 2 classes"):
        version.joined_label(1, label)


def test_views_and_splits(root: Path) -> None:
    refs = "photos@1?label == 'hat'", "web?label == 'bag'"
    assert names_of(root, *refs) == {(0, "hat"): 12, (2, "bag"): 5}
    assert names_of(root, *refs, split="validation") == {(0, "hat"): 4, (2, "bag"): 2}
    dataset = open_dataset([*refs], root)
    assert dataset.splits == ["train", "validation"], "no hat is in the test split"
    assert len(dataset) == 23
    again = open_dataset(dataset.version.ref, root)
    assert again.version.ref == dataset.version.ref == "photos@1?label == 'hat'; web@1?label == 'bag'"
    assert len(again) == 23


def test_one_in_train_only(root: Path) -> None:
    dataset = open_dataset(["photos", "train += web"], root)
    assert len(dataset.table("train")) == 44
    assert len(dataset.table("validation")) == 4
    assert dataset.version.manifest.splits["validation"].num_examples == 4
    with pytest.raises(UsageError, match="begins with no data set of its own splits"):
        open_dataset(["train += web", "photos"], root)


def test_the_same_version_twice(root: Path) -> None:
    dataset = open_dataset(["photos?label == 'hat'", "photos?label == 'shoe'"], root, weights=[1, 4])
    steps = [*dataset.batches("train", batch_size=5, image_size=8)]
    assert [np.bincount(batch.labels).tolist() for batch in steps] == [[1, 4]] * len(steps)


def test_pixels_are_those_of_each_data_set(root: Path) -> None:
    both = open_dataset(["photos", "web"], root)
    own = [open_dataset(name, root) for name in ("photos", "web")]
    images = np.concatenate([batch.images for batch in both.batches("validation", image_size=16)])
    apart = [batch.images for one in own for batch in one.batches("validation", image_size=16)]
    assert np.array_equal(images, np.concatenate(apart))


@pytest.mark.parametrize("reading", [{}, {"cache": "memory", "cache_form": "decoded"}])
def test_encodings_may_differ(root: Path, reading: dict[str, Any]) -> None:
    both = open_dataset(["photos", "lossless"], root, **reading)
    own = [open_dataset(name, root) for name in ("photos", "lossless")]
    images = np.concatenate([batch.images for batch in both.batches("test", image_size=16)])
    apart = [batch.images for one in own for batch in one.batches("test", image_size=16)]
    assert np.array_equal(images, np.concatenate(apart))


@pytest.mark.parametrize("cache", [{"cache": "memory"}, {"cache": "memory", "cache_form": "decoded"}])
def test_a_cache_keeps_the_records_of_all(root: Path, cache: dict[str, Any]) -> None:
    plain, cached = (
        open_dataset(["photos", "web"], root, weights=[0.4, 0.6], **given) for given in ({}, cache)
    )
    steps = [*plain.batches("train", batch_size=6, image_size=16, epochs=2)]
    again = [*cached.batches("train", batch_size=6, image_size=16, epochs=2)]
    assert len(steps) > 4
    for one, other in zip(steps, again, strict=True):
        assert np.array_equal(one.images, other.images)
        assert one.labels.tolist() == other.labels.tolist()


def test_blocks_and_rules_hold_over_all_without_shares(root: Path) -> None:
    both = open_dataset(["photos", "web"], root)
    blocks = [*both.batches("train", batch_size=11, image_size=8, granularity="block", block_records=4)]
    assert sorted(np.concatenate([batch.ordinals for batch in blocks]).tolist()) == [*range(44)]
    uniform = both.batches("train", batch_size=11, image_size=8, balance="uniform")
    labels = np.concatenate([batch.labels for batch in uniform])
    assert np.bincount(labels).tolist() == [15, 15, 14]


def test_several_labels_are_renumbered(root: Path) -> None:
    dataset = open_dataset(["shades", "colours"], root)
    assert dataset.classes == ["blue", "grey", "red", "green"]
    alone = open_dataset("colours", root)
    table, own = dataset.table("train"), alone.table("train")
    moved = table.labels_of(np.arange(3, 12))
    assert np.array_equal(moved[:, [2, 3, 0]], own.labels_of(np.arange(9)))
    assert np.isnan(moved[:, 1]).all(), "nobody has looked for grey"
    nan = np.nan
    expected = [[0, 1, nan, nan], [1, 0, nan, nan], [1, 0, nan, nan]]
    assert np.array_equal(sorted(table.labels_of(np.arange(3)).tolist()), expected, equal_nan=True)


def test_pixel_statistics_are_those_of_all_pixels(tmp_path: Path) -> None:
    pictures = (
        measured("uint16", 5, {"train": {"a": 6}}),
        measured("uint16", 5, {"train": {"b": 4}}, size=(9, 31)),
    )
    for name, own in zip("ab", pictures, strict=True):
        publish(tmp_path, own, name=name)
    found = pixels_of(open_dataset(["a", "b"], tmp_path).version.manifest, 5)
    pixels = np.concatenate([one.pixels.reshape(-1, 5) for own in pictures for one in own]).astype(np.float64)
    assert found is not None
    assert found.mean == pytest.approx(pixels.mean(axis=0), rel=1e-12)
    assert found.std == pytest.approx(pixels.std(axis=0), rel=1e-12)


@pytest.mark.parametrize(
    ("refs", "message"),
    [
        (
            ["photos", "deep"],
            "images of photos@1 are uint8 with 1 or 3 channels, those of deep@1 uint16 with 5",
        ),
        (["photos", "raw"], "pixels of stored images of photos@1 are encoded, those of raw@1 raw"),
        (["photos", "colours"], "labels of photos@1 are one class an image, those of colours@1 several"),
        (["photos", "numbers"], "those of numbers@1 numbers"),
        (["photos", "missing"], "missing"),
        (["photos", "web", "train += photos"], "photos@1 is named 2 times"),
        ([], "no dataset is named"),
        (["photos", "web?nothing > 3"], "nothing"),
    ],
)
def test_what_cannot_be_joined_is_refused(root: Path, refs: list[str], message: str) -> None:
    with pytest.raises(ShardmillError, match=message):
        open_dataset(refs, root)


def test_arguments_are_named_as_they_were_given(root: Path) -> None:
    with pytest.raises((ConfigError, UsageError)) as wrong:
        open_dataset(["photos", "web"], root, weights=[1, 1, 1]).batches("train", image_size=8)
    assert str(wrong.value).startswith("weights has 3 numbers for 2 data sets")
    with pytest.raises(UsageError, match="cannot be queried as a whole"):
        open_dataset(["photos", "web"], root).query("width > 3")
    with pytest.raises(UsageError, match="cannot be queried as a whole"):
        open_dataset(["photos", "web"], root).to_arrow()
    with pytest.raises(DataError):
        open_dataset(["photos", "deep"], root)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures 0 to 7, and a second data set with some of them: in train 1 as a mirror image, 5 larger and 9.

    Its validation split has 3, turned, and 10; its record of one colour is an exact copy.
    """
    root, flat = tmp_path_factory.mktemp("alike"), np.full((48, 64, 3), 90, np.uint8)
    splits = ["train"] * 4 + ["validation"] * 2 + ["test"] * 2
    first = [Picture(split, "a", picture(seed)) for seed, split in enumerate(splits)]
    second = [
        Picture("train", "b", picture(1)[:, ::-1].copy()),
        Picture("train", "b", cv2.resize(picture(5), (96, 72), interpolation=cv2.INTER_AREA)),
        Picture("train", "b", picture(9)),
        Picture("train", "b", flat),
        Picture("validation", "b", np.rot90(picture(3)).copy()),
        Picture("validation", "b", picture(10)),
    ]
    publish(root, [*first, Picture("train", "a", flat)], name="photos", has_looks=True)
    publish(root, second, name="web", container="none", has_looks=True)
    return root


def test_near_duplicates_between_data_sets(alike: Path) -> None:
    found = open_dataset(["photos", "web"], alike).near_duplicates().to_pylist()
    groups: dict[int, list[tuple[int, str, bool]]] = {}
    for row in found:
        groups.setdefault(row["group"], []).append((row["data_set"], row["split"], row["is_superfluous"]))
    assert sorted(groups.values()) == [
        [(0, "train", False), (1, "train", True)],  # the mirror image
        [(0, "train", False), (1, "train", True)],  # of one colour
        [(0, "train", True), (1, "validation", False)],
        [(0, "validation", False), (1, "train", True)],
    ]
    with pytest.raises(UsageError, match="photos@1 is one data set"):
        open_dataset("photos", alike).near_duplicates()


def test_near_duplicates_are_left_out_of_train(alike: Path) -> None:
    dataset = open_dataset(["photos", "web"], alike, drop_near_duplicates=True)
    assert dataset.version.ref == "photos@1; web@1; without near-duplicates"
    assert dataset.table("train").set_sizes == (4, 1)
    assert dataset.version.num_examples("train") == 5
    assert (len(dataset.table("validation")), len(dataset.table("test"))) == (4, 2)
    found = dataset.near_duplicates().to_pylist()
    left_out = {(row["data_set"], row["record_id"]) for row in found if row["is_superfluous"]}
    table, ordinals = dataset.table("train"), np.arange(5)
    kept = zip(table.data_set_of(ordinals).tolist(), table.ids(ordinals), strict=True)
    assert not left_out.intersection(kept)
    images = [batch.images for batch in dataset.batches("train", batch_size=5, image_size=16, training=False)]
    assert [len(part) for part in images] == [5]
    only = open_dataset(["photos", "train += web"], alike, drop_near_duplicates=True)
    assert only.table("train").set_sizes == (5, 1), "its validation split is not read"
    with pytest.raises(UsageError, match="names one data set"):
        open_dataset("photos; without near-duplicates", alike)


def test_images_that_were_prepared_otherwise_are_named(root: Path, tmp_path: Path) -> None:
    for name, size, build in (("small", 64, "3.1"), ("large", 256, "3.2")):
        manifest = publish(tmp_path, coloured({"train": {"hat": size}}), name=name).manifest
        image = {"size": size, "max_pixels": size, "quality": 90}
        given = {"config": {"image": image}, "codecs": {"turbojpeg": build, "opencv": "4"}}
        Catalog(tmp_path).publish(manifest.model_copy(update={**given, "version": 2}))
    found = Catalog(tmp_path).open_view("small; large")
    assert isinstance(found, JoinedVersion)
    assert found.differences == [
        "image.size is 64 in small@2 and 256 in large@2",
        "small@2 and large@2 had different builds of turbojpeg",
    ]
    alike = Catalog(root).open_view("photos; web")
    assert isinstance(alike, JoinedVersion)
    assert alike.differences == []


def test_an_image_with_two_labels_that_become_one_has_it_once(root: Path) -> None:
    """Pictures of colours are red, green and blue in channels above a half; here red and green are one."""
    alone, names = open_dataset("colours", root), {"green": "red"}
    joined = open_dataset(["colours", "shades"], root, classes=names, missing_classes="absent")
    own, found = (one.table("train").labels_of(np.arange(9)) for one in (alone, joined))
    assert (own[:, :2].sum(axis=1) == 2).any()
    assert found[:, 0].tolist() == own[:, :2].max(axis=1).tolist()
    assert joined.version.count_classes("train")["red"] == found[:, 0].sum()
