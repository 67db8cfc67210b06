"""Captions and further keys of images in COCO files, also in files beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.sources.kinds import coco
from shardmill.infra.errors import ConfigError
from tests.unit.beam_jobs.sources.kinds.test_objects import (
    FILTERED,
    LOST,
    READ,
    configured,
    outcomes,
    with_images,
)

CATS: list[Any] = [{"id": 1, "name": "cat"}]


def write(folder: Path, name: str, **lists: Any) -> None:
    (folder / name).write_text(json.dumps({"images": [], "annotations": [], **lists}))


def feature(listing: coco.Listing, name: str) -> dict[str, Any]:
    """Image -> its value of a feature."""
    table = listing.table
    return dict(zip(table["uri"].to_pylist(), table[f"feature:{name}"].to_pylist(), strict=True))


def test_captions_and_further_keys_of_images_are_features(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg", "b.jpg", "c.jpg", "alone.jpg")
    images: list[Any] = [
        {"id": 1, "file_name": "a.jpg", "licence": 3, "place": "Oslo", "score": 1, "tags": ["x", "y"]},
        {"id": 2, "file_name": "b.jpg", "licence": None, "place": "\u00e9", "score": 0.5},
        {"id": 3, "file_name": "c.jpg", "licence": "none", "tags": []},
    ]
    objects = [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}]
    captions: list[Any] = [
        {"image_id": 17, "caption": "second"},
        {"image_id": 17, "caption": "first \u00e9"},
        {"image_id": 19, "caption": "nobody else names it"},
        {"image_id": 18, "caption": 7},
        {"image_id": [], "caption": "lost"},
        {"image_id": 99, "caption": "lost"},
    ]
    names = enumerate(("a.jpg", "./b.jpg", "alone.jpg"), 17)
    write(tmp_path, "instances.json", images=images, annotations=objects, categories=CATS)
    write(
        tmp_path,
        "captions.json",
        images=[{"id": at, "file_name": name} for at, name in names],
        annotations=captions,
    )
    features: dict[str, Any] = {"place": {}, "licence": {"dtype": "int64"}, "points": "score", "tags": {}}
    parts = [{"file": "captions.json", "split": "train"}, {"file": "instances.json"}]
    listing = coco.list_inputs(source, configured("coco", parts, features=features))
    assert outcomes(listing)["instances.json#image=3"] == (LOST, "broken_row")
    texts = feature(listing, "captions")
    assert (texts["a.jpg"], texts["b.jpg"]) == (["second", "first \u00e9"], None)
    assert texts["alone.jpg"] == ["nobody else names it"]
    assert (feature(listing, "place")["a.jpg"], feature(listing, "place")["b.jpg"]) == ("Oslo", "\u00e9")
    assert (feature(listing, "points")["a.jpg"], feature(listing, "points")["b.jpg"]) == (1.0, 0.5)
    assert (feature(listing, "licence")["a.jpg"], feature(listing, "licence")["b.jpg"]) == (3, None)
    assert (feature(listing, "tags")["a.jpg"], feature(listing, "tags")["b.jpg"]) == (["x", "y"], None)
    splits = dict(zip(listing.table["uri"].to_pylist(), listing.table["split"].to_pylist(), strict=True))
    assert (splits["a.jpg"], splits["alone.jpg"]) == ("train", "train")
    (warning,) = listing.warnings
    assert warning == (
        "3 captions left out: 2 of an unknown image (first annotation 5 of captions.json: []), 1 that are no "
        "text (first annotation 4 of captions.json)"
    )


def test_a_feature_that_no_image_has_is_refused(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg")
    write(tmp_path, "t.json", images=[{"id": 1, "file_name": "a.jpg", "licence": 1}], categories=CATS)
    with pytest.raises(ConfigError, match=r"no image of the annotations has 'license'") as caught:
        coco.list_inputs(source, configured("coco", "t.json", features="license"))
    assert caught.value.remedy == "did you mean 'licence'?"


def test_captions_of_another_split_contradict(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg")
    images = [{"id": 1, "file_name": "a.jpg"}]
    write(tmp_path, "instances.json", images=images, categories=CATS)
    write(tmp_path, "captions.json", images=images, annotations=[{"image_id": 1, "caption": "it"}])
    parts = [{"file": "instances.json", "split": "train"}, {"file": "captions.json", "split": "test"}]
    listing = coco.list_inputs(source, configured("coco", parts))
    assert outcomes(listing)["a.jpg"] == (LOST, "contradicting_rows")


@pytest.mark.parametrize(("unannotated", "outcome"), [("keep", None), ("leave_out", "no_objects")])
def test_images_without_objects_are_kept_or_left_out(tmp_path: Path, unannotated: str, outcome: Any) -> None:
    source = with_images(tmp_path, "a.jpg", "bare.jpg", "dropped.jpg")
    names = enumerate(("a.jpg", "bare.jpg", "dropped.jpg"))
    objects = [
        {"image_id": image, "category_id": category, "bbox": [1, 2, 3, 4]}
        for image, category in [(0, 1), (2, 2)]
    ]
    write(
        tmp_path,
        "t.json",
        images=[{"id": at, "file_name": name} for at, name in names],
        annotations=objects,
        categories=[*CATS, {"id": 2, "name": "unclear"}],
    )
    config = configured("coco", "t.json", unannotated=unannotated, drop_labels="unclear")
    found = {uri: reason for uri, (_, reason) in outcomes(coco.list_inputs(source, config)).items()}
    assert found == {"a.jpg": None, "bare.jpg": outcome, "dropped.jpg": outcome, "t.json": "table"}


def test_images_of_lvis_have_their_names_in_addresses(tmp_path: Path) -> None:
    source = with_images(tmp_path, "train2017/1.jpg", "val2017/1.jpg")
    places = ("train2017/1.jpg", "val2017/1.jpg")
    images = [{"id": at, "coco_url": f"http://images.example/{name}"} for at, name in enumerate(places)]
    write(tmp_path, "lvis_v1.json", images=images, categories=CATS)
    assert outcomes(coco.list_inputs(source, configured("coco", "lvis_v1.json"))) == {
        "lvis_v1.json": (FILTERED, "table"), "train2017/1.jpg": (READ, None), "val2017/1.jpg": (READ, None),
    }  # fmt: skip


def test_paths_of_another_machine_are_found_by_their_ends(tmp_path: Path) -> None:
    source = with_images(tmp_path, "a/1.jpg", "b/1.jpg", "b/2.jpg")
    names = ("/home/me/a/1.jpg", "C:\\data\\b\\1.jpg", "file:///mnt/c/2.jpg", "/x/1.jpg", "/3.jpg")
    images = [{"id": at, "file_name": name} for at, name in enumerate(names)]
    write(tmp_path, "t.json", images=images, categories=CATS)
    assert outcomes(coco.list_inputs(source, configured("coco", "t.json"))) == {
        **dict.fromkeys(("a/1.jpg", "b/1.jpg", "b/2.jpg"), (READ, None)),
        "t.json#image=4": (LOST, "several_files"),
        "t.json#image=5": (LOST, "missing_file"),
        "t.json": (FILTERED, "table"),
    }


@pytest.mark.parametrize("name", [["car"], {"en": "car"}, None])
def test_a_category_whose_name_is_no_text_has_none(name: Any, tmp_path: Path) -> None:
    source = with_images(tmp_path, "a.jpg")
    objects = [{"image_id": 1, "category_id": at, "bbox": [1, 2, 3, 4]} for at in (1, 2)]
    categories = [*CATS, {"id": 2, "name": name}]
    images = [{"id": 1, "file_name": "a.jpg"}]
    write(tmp_path, "instances.json", images=images, annotations=objects, categories=categories)
    listing = coco.list_inputs(source, configured("coco", [{"file": "instances.json"}]))
    assert feature(listing, "objects/label")["a.jpg"] == [CATS[0]["name"]]
    assert "1 of 2 objects are left out" in " ".join(listing.warnings)
